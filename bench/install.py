"""Disk and time of an installation: `python -m bench.install [EXTRA...]`.

This installs this clone into a new virtual environment, without and then with each of these extras, in one of its own.
Sizes are those of the installed files. Times include building the wheel of spotctl, and downloads that pip has not
cached.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
LARGEST = 6

_SIZES = """
import json
from importlib.metadata import distributions
def bytes_of(package):
    paths = map(package.locate_file, package.files or ())
    return sum(path.stat().st_size for path in paths if path.is_file())
print(json.dumps({package.name: bytes_of(package) for package in distributions() if package.name != "pip"}))
"""


def install(folder: Path, what: str) -> Iterator[str]:
    """Lines about one installation."""
    venv.create(folder, with_pip=True)
    python, before, started = folder / "bin" / "python", _processor_seconds(), time.monotonic()
    subprocess.run([python, "-m", "pip", "install", "-qq", what], cwd=ROOT, check=True)
    seconds, processor = time.monotonic() - started, _processor_seconds() - before
    printed = subprocess.run([python, "-c", _SIZES], check=True, capture_output=True, text=True).stdout
    sizes: dict[str, int] = json.loads(printed)
    yield (
        f"pip install '{what}': {sum(sizes.values()) / 2**20:,.0f} MiB in {len(sizes)} packages, {seconds:.0f} s"
        f" ({processor:.0f} s of processor time)"
    )
    for name in sorted(sizes, key=lambda package: -sizes[package])[:LARGEST]:
        yield f"    {sizes[name] / 2**20:8,.1f} MiB  {name}"


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    for extra in ("", *sys.argv[1:]):
        with TemporaryDirectory() as folder:
            for line in install(Path(folder), f".[{extra}]" if extra else "."):
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
