"""Types a page of the documentation and times it: `python -m bench.walkthrough [PAGE] [--install]`.

It clones this repository into a temporary folder and runs the page's commands there, with a home of
their own: all of the tutorial but its last part, which needs a cloud. With `--install`, the page's
installation runs, too, in an environment of its own; without it, what is installed here is used.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(
    r"^```sh(?: slow| trainers)?\n(.*?)^```|^ {4}((?:python3 -m venv|pip install)[^\n]*)",
    re.MULTILINE | re.DOTALL,
)
_SHOWN = re.compile(r"done|survived|model |cost  |trained|accuracy|resuming")


def commands(page: str, *, install: bool) -> Iterator[str]:
    """The commands of a page, in order."""
    for block in _BLOCK.finditer(page):
        for line in (block[1] or block[2]).splitlines():
            if install or line.startswith("spotctl "):
                yield line.split("  #")[0].strip()


def walk(page: Path, folder: Path, *, install: bool) -> int:
    """Runs the commands in a clone; prints each with its seconds and what it says of the result."""
    clone, begun = folder / "clone", time.monotonic()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "SPOTCTL_HOME": str(folder / "home"),
        "COLUMNS": "100",
    }
    # What a user types.
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)  # noqa: S607
    _line("git clone", begun)
    for command in commands(page.read_text(encoding="utf-8"), install=install):
        at = time.monotonic()
        activate = "[ ! -f .venv/bin/activate ] || . .venv/bin/activate; " if install else ""
        shell = ["/bin/bash", "-c", activate + command]
        ended = subprocess.run(
            shell, cwd=clone, env=environment, capture_output=True, text=True, check=False
        )
        _line(command, at)
        for line in [line for line in ended.stdout.splitlines() if _SHOWN.search(line)][-6:]:
            print(f"           {line.strip()}")
        if ended.returncode:
            print(ended.stderr[-1000:])
            return 1
    _line("all of it", begun)
    return 0


def _line(what: str, since: float) -> None:
    print(f"{time.monotonic() - since:8.1f} s {what}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", nargs="?", type=Path, default=ROOT / "docs" / "tutorial.md")
    parser.add_argument("--install", action="store_true")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        return walk(given.page, Path(folder), install=given.install)


if __name__ == "__main__":
    sys.exit(main())
