"""What an installation takes: `python -m bench.install [EXTRA...]`.

It installs this clone into a new virtual environment, without and then with each of these extras, in one of its own.
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
def bytes_of(one):
    return sum(one.locate_file(file).stat().st_size for file in one.files or () if one.locate_file(file).is_file())
print(json.dumps({one.name: bytes_of(one) for one in distributions() if one.name != "pip"}))
"""


def installed(folder: Path, what: str) -> Iterator[str]:
    """Lines about one installation."""
    venv.create(folder, with_pip=True)
    python, before, begun = folder / "bin" / "python", _processor_seconds(), time.monotonic()
    subprocess.run([python, "-m", "pip", "install", "-qq", what], cwd=ROOT, check=True)
    seconds, processor = time.monotonic() - begun, _processor_seconds() - before
    printed = subprocess.run([python, "-c", _SIZES], check=True, capture_output=True, text=True).stdout
    sizes: dict[str, int] = json.loads(printed)
    yield (
        f"pip install '{what}': {sum(sizes.values()) / 2**20:,.0f} MiB in {len(sizes)} packages, {seconds:.0f} s"
        f" ({processor:.0f} s of processor time)"
    )
    for name in sorted(sizes, key=lambda one: -sizes[one])[:LARGEST]:
        yield f"    {sizes[name] / 2**20:8,.1f} MiB  {name}"


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    for extra in ("", *sys.argv[1:]):
        with TemporaryDirectory() as folder:
            for line in installed(Path(folder), f".[{extra}]" if extra else "."):
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
