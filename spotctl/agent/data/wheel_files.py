"""Fetches wheels from a package index to a rented machine: `python -m
spotctl.agent.data.wheel_files`, fed with JSON.

The launcher has chosen the wheels and names each by its SHA-256, so any other file is refused.
"""

import hashlib
import json
import re
import shutil
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path

from agileml.runtime.ground import move
from spotctl.agent import layout
from spotctl.agent.errors import AgentError, TransferFailed

ANSWER_SECONDS = 20.0
_CHUNK = 1 << 20
_DATA = re.compile(r"[^/]+\.data/(?P<kind>[^/]+)/(?P<rest>.+)")
_IMPORTED = ("purelib", "platlib")


def place_of(name: str) -> str | None:
    """Where a file of a wheel belongs below the folder of packages; None if nothing imports or runs
    it.
    """
    data = _DATA.fullmatch(name)
    if data is None:
        return name
    if data["kind"] == "scripts":
        return f"bin/{data['rest']}"
    return data["rest"] if data["kind"] in _IMPORTED else None


def fetch(url: str, sha256: str, into: Path) -> None:
    """Fetches one file. TransferFailed: the index does not answer, or has another file there."""
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer, into.open("wb") as file:  # noqa: S310
            while part := answer.read(_CHUNK):
                digest.update(part)
                file.write(part)
    except (OSError, ValueError) as error:
        raise TransferFailed(f"{url}: {error}") from None

    if digest.hexdigest() != sha256:
        raise TransferFailed(
            f"{url}: is not the file that was chosen: its SHA-256 is {digest.hexdigest()}"
        )


def main() -> int:
    """Brings the wheels of the input to their folder. The reason of a failure is its last line."""
    given = json.load(sys.stdin)
    target = Path(layout.BUNDLES, given["name"])
    incoming = Path(tempfile.mkdtemp(dir=Path(layout.ROOT, "incoming")))
    try:
        (incoming / "unpacked").mkdir(mode=0o755)
        for url, sha256 in given["wheels"]:
            fetch(url, sha256, incoming / "wheel")
            # What a wheel's packages import.
            with zipfile.ZipFile(incoming / "wheel") as archive:
                for entry in archive.infolist():
                    place = place_of(entry.filename)
                    if place is not None and not entry.is_dir():
                        entry.filename = place
                        archive.extract(entry, incoming / "unpacked")
        if not target.is_dir():
            move(incoming / "unpacked", target)
    except (AgentError, OSError, zipfile.BadZipFile) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    finally:
        shutil.rmtree(incoming, ignore_errors=True)

    return 0


if __name__ == "__main__":
    sys.exit(main())
