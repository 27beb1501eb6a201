"""The wheels of a package index that run on a machine's platform: chosen by pip, and named by their SHA-256.

pip reads the index, and proxies and logins for it, from its own configuration on this computer.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import ipaddress
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

from pricing_data.atomic_write import atomic_write
from spotctl.clouds.errors import Unusable
from spotctl.clouds.remote.platforms import MachinePlatform
from spotctl.clouds.remote.requirements import Closure, KnownPackage, closure

_MAX_ROUNDS = 8
_PIP = (sys.executable, "-P", "-m", "pip", "--no-input", "--disable-pip-version-check", "--quiet", "--retries=1")
_ONLY_THESE = ("--no-deps", "--only-binary=:all:")
_MISSING = re.compile(r"No matching distribution found for (?P<wanted>\S+)")
_NO_ANSWER, _CHANGED = "connection broken", "DO NOT MATCH THE HASHES"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file of a package index."""

    name: str
    version: str
    url: str
    sha256: str

    @property
    def is_public(self) -> bool:
        """Whether another computer may reach its address. pip hides logins in addresses, so these are of no use."""
        parts = urlsplit(self.url)
        return parts.scheme in ("http", "https") and "@" not in parts.netloc and not _is_own(parts.hostname or "")


def digest_of(wheels: Iterable[Wheel]) -> str:
    """The name of a folder with the content of these wheels."""
    return hashlib.sha256("\n".join(sorted(wheel.sha256 for wheel in wheels)).encode()).hexdigest()


def chosen_wheels(folder: Path, names: Sequence[str], platform: MachinePlatform) -> tuple[Wheel, ...]:
    """The wheels of packages and their requirements, in the versions that are installed here; kept below `folder`.

    Unusable: the index has no such wheels, or does not answer.
    """
    installed = closure(names, look_up_installed, platform.markers)
    text = f"{platform.python} {platform.processor} {platform.glibc} {' '.join(installed.pinned)}"
    known = folder / f"wheels-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    try:
        return tuple(Wheel(**fields) for fields in json.loads(known.read_text()))
    except FileNotFoundError:
        wheels = _choose(installed, names, platform)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with atomic_write(known) as new:
        new.write_text(json.dumps([asdict(wheel) for wheel in wheels]))
    return wheels


@cache
def look_up_installed(name: str) -> KnownPackage | None:
    """The installed version of a package, if there is one."""
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    return KnownPackage(distribution.version, tuple(distribution.requires or ()))


def download(wheels: Sequence[Wheel], platform: MachinePlatform, into: Path) -> list[Path]:
    """Downloads wheels to a folder. Unusable: the index does not have them any more."""
    lines = [f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in wheels]
    wanted = into / "wanted.txt"
    wanted.write_text("".join(lines))
    _run("download", platform, ("--require-hashes", f"--dest={into}", f"--requirement={wanted}"))
    return sorted(into.glob("*.whl"))


def _choose(installed: Closure, names: Sequence[str], platform: MachinePlatform) -> tuple[Wheel, ...]:
    """Asks the index until it has told the requirements of everything that is needed."""
    needed, seen = installed, dict[str, KnownPackage]()

    def look_up(name: str) -> KnownPackage | None:
        return seen.get(name) or look_up_installed(name)

    for _ in range(_MAX_ROUNDS):
        rows = _ask(needed.pinned, platform)
        seen |= {_name(row): _package(row) for row in rows}
        needed = closure(names, look_up, platform.markers)
        if not needed.unknown and needed.known.keys() <= {_name(row) for row in rows}:
            wheels = (_wheel(row) for row in rows if _name(row) in needed.known)
            return tuple(sorted(wheels, key=lambda wheel: wheel.name))
    raise Unusable(f"cannot find out what {', '.join(names)} require on machines with {platform}")


def _ask(requirements: Sequence[str], platform: MachinePlatform) -> list[Mapping[str, Any]]:
    """The rows of pip's report on an installation of exactly these packages."""
    with tempfile.TemporaryDirectory(prefix="spotctl-") as scratch:
        report = Path(scratch, "report.json")
        options = ("--dry-run", "--ignore-installed", f"--target={scratch}/none", f"--report={report}", *requirements)
        _run("install", platform, options)
        rows: list[Mapping[str, Any]] = json.loads(report.read_text())["install"]
    return rows


def _about(row: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata: Mapping[str, Any] = row["metadata"]
    return metadata


def _name(row: Mapping[str, Any]) -> str:
    return canonicalize_name(_about(row)["name"])


def _package(row: Mapping[str, Any]) -> KnownPackage:
    return KnownPackage(_about(row)["version"], tuple(_about(row).get("requires_dist", ())))


def _wheel(row: Mapping[str, Any]) -> Wheel:
    source = row["download_info"]
    return Wheel(_name(row), _about(row)["version"], source["url"], source["archive_info"]["hashes"]["sha256"])


def _run(command: str, platform: MachinePlatform, options: Sequence[str]) -> None:
    if find_spec("pip") is None:
        raise Unusable(
            f"machines with {platform} need packages from an index, and this Python has no pip to ask it:"
            f" {sys.executable} -m ensurepip"
        )
    words = [*_PIP, command, *_ONLY_THESE, *platform.pip_options, *options]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise Unusable(_refusal(done.stderr, platform))


def _refusal(said: str, platform: MachinePlatform) -> str:
    """One line for the words of a pip that has failed."""
    if _CHANGED in said:
        return f"the package index now has other files for machines with {platform} than when they were chosen"
    missing = _MISSING.search(said)
    if missing is None:
        last = said.strip().splitlines() or ["it gave no reason"]
        return f"pip cannot find packages for machines with {platform}: {last[-1].removeprefix('ERROR: ')}"
    wanted = missing["wanted"]
    name = re.split(r"[<>=!~]", wanted)[0]
    if _NO_ANSWER in said:
        return (
            f"the package index, from which machines with {platform} get {wanted}, does not answer: correct pip's index"
            " (pip config list), or use an image with the Python of this computer"
        )
    return (
        f"the package index has no wheel of {wanted} for machines with {platform}: install another version of {name} on"
        " this computer, or use another image"
    )


def _is_own(host: str) -> bool:
    """Whether a host is the computer that names it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost")
