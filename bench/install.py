"""Disk and time of an installation: `python -m bench.install [EXTRA...]`.

This installs this clone into a new virtual environment, without and then with each of these extras,
in one of its own. Sizes are those of the installed files; bytecode, which pip compiles and neither
`uv tool install` nor `pip install --no-compile` does, is counted by itself. `--all` prints each
package. Times include building the wheel of spotctl, and downloads that pip has not cached.
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
    paths = [package.locate_file(path) for path in package.files or ()]
    sizes = {path: path.stat().st_size for path in paths if path.is_file()}
    return sum(sizes.values()), sum(size for path, size in sizes.items() if path.suffix == ".pyc")
print(json.dumps({package.name: bytes_of(package) for package in distributions()}))
"""


def install(folder: Path, what: str, shown: int | None = LARGEST) -> Iterator[str]:
    """Lines about one installation, with the largest packages; None shows all."""
    venv.create(folder, with_pip=True)
    python, before, started = folder / "bin" / "python", _processor_seconds(), time.monotonic()
    subprocess.run([python, "-m", "pip", "install", "-qq", what], cwd=ROOT, check=True)
    seconds, processor = time.monotonic() - started, _processor_seconds() - before
    printed = subprocess.run(
        [python, "-c", _SIZES], check=True, capture_output=True, text=True
    ).stdout
    sizes: dict[str, tuple[int, int]] = json.loads(printed)
    whole, compiled = (sum(size[part] for size in sizes.values()) / 2**20 for part in range(2))
    yield (
        f"pip install '{what}': {whole:,.0f} MiB in {len(sizes)} packages ({compiled:,.0f} MiB of "
        f"it bytecode), {seconds:.0f} s ({processor:.0f} s of processor time)"
    )
    for name in sorted(sizes, key=lambda package: -sizes[package][0])[:shown]:
        size, of_bytecode = (part / 2**20 for part in sizes[name])
        yield f"    {size:8,.1f} MiB, {size - of_bytecode:6,.1f} without bytecode  {name}"


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    words = sys.argv[1:]
    for extra in ("", *(word for word in words if word != "--all")):
        with TemporaryDirectory() as folder:
            for line in install(
                Path(folder), f".[{extra}]" if extra else ".", None if "--all" in words else LARGEST
            ):
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
