"""The walk of a command: the functions of the packages in the order in which it first calls them.

All threads and all processes of Python that the command starts are walked, each process as its
own: a reader follows one after the other, in the order in which they began. Bodies of modules and
of classes, lambdas and comprehensions are no steps: they are read where they stand. Properties are.
A return is a file that is entered again after another: a reader turns back to it.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType


@dataclass(frozen=True)
class Walk:
    """The steps in the order of their first calls: a file and the name of a function."""

    steps: tuple[tuple[str, str], ...]

    def within(self, *folders: str) -> Walk:
        """The part of the walk in some folders."""
        return Walk(tuple(step for step in self.steps if step[0].startswith(folders)))

    @property
    def entered(self) -> list[str]:
        """Each file that is entered from another, in order."""
        return [file for file, _ in groupby(file for file, _ in self.steps)]

    @property
    def files(self) -> int:
        return len(set(self.entered))

    @property
    def returns(self) -> int:
        return len(self.entered) - self.files


def walk_of(root: Path, packages: Sequence[str], words: Sequence[str]) -> Walk:
    """The walk of a command of the first package of a checkout, in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        started = Path(place, "start", "sitecustomize.py")
        started.parent.mkdir()
        started.write_text(_START.format(bench=str(Path(__file__).parents[1])), encoding="utf-8")
        steps = Path(place, "steps")
        steps.mkdir()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(started.parent), str(root))),
            "SPOTCTL_HOME": f"{place}/home",
            FOLDERS: os.pathsep.join(f"{root / package}{os.sep}" for package in packages),
            STEPS: str(steps),
        }
        ended = subprocess.run(
            [sys.executable, "-P", "-m", packages[0], *words],
            cwd=root,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )
        if ended.returncode:
            raise SystemExit(
                f"{packages[0]} {' '.join(words)} ended with {ended.returncode}: {ended.stderr}"
            )

        return Walk(tuple(_read(steps, root)))


def _read(folder: Path, root: Path) -> Iterator[tuple[str, str]]:
    """The steps of all processes, without those that an earlier process has taken."""
    processes = [path.read_text(encoding="utf-8").splitlines() for path in folder.iterdir()]
    steps = dict[tuple[str, str], None]()
    for lines in sorted(processes, key=lambda lines: int(lines[0])):
        for line in lines[1:]:
            file, _, name = line.partition("\t")
            steps.setdefault((file.removeprefix(f"{root}{os.sep}"), name))
    yield from steps


FOLDERS, STEPS = "WALK_FOLDERS", "WALK_STEPS"
_START = """
import sys
sys.path.append({bench!r})
from bench.walk import begin
sys.path.remove({bench!r})
begin()
"""


def begin() -> None:
    """Writes down what this process calls from now on, each function once."""
    folders = tuple(os.environ[FOLDERS].split(os.pathsep))
    known = set[CodeType]()
    path = Path(os.environ[STEPS], f"{os.getpid()}-{time.monotonic_ns()}")
    # A process that is killed has written down what it did before.
    out = path.open("a", buffering=1, encoding="utf-8")
    out.write(f"{time.monotonic_ns()}\n")

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code in known:
            return
        known.add(code)
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED) and code.co_name[0] != "<"
        if is_function and code.co_filename.startswith(folders):
            out.write(f"{code.co_filename}\t{code.co_qualname}\n")

    threading.setprofile(note)
    sys.setprofile(note)
