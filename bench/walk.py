"""The walk of a job file to its plan: the functions of a package in the order in which a real
command first calls them.

Bodies of modules, lambdas and comprehensions are no steps: they are read where they stand. Bodies
of classes and properties are, since a reader goes there to learn what a value holds; the strict
walk leaves them out, too. A return is a file that is entered again after another: a reader turns
back to it.

`python -P bench/walk.py OUT PACKAGE WORDS` writes the steps of a command of the package that can be
imported.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from types import FrameType


@dataclass(frozen=True)
class Walk:
    """The steps in the order of their first calls: a file, a name, and whether that is a function
    and no property.
    """

    steps: tuple[tuple[str, str, bool], ...]

    def within(self, *folders: str) -> Walk:
        """The part of the walk in some folders."""
        return Walk(tuple(step for step in self.steps if step[0].startswith(folders)))

    def strict(self) -> Walk:
        """The walk without bodies of classes and properties."""
        return Walk(tuple(step for step in self.steps if step[2]))

    @property
    def entered(self) -> list[str]:
        """Each file that is entered from another, in order."""
        return [file for file, _ in groupby(file for file, _, _ in self.steps)]

    @property
    def files(self) -> int:
        return len(set(self.entered))

    @property
    def returns(self) -> int:
        return len(self.entered) - self.files


def walk_of(root: Path, package: str, words: Sequence[str]) -> Walk:
    """The walk of a command of a package of a checkout, in a process of its own."""
    with tempfile.TemporaryDirectory() as home:
        out = Path(home, "walk.json")
        ended = subprocess.run(
            [sys.executable, "-P", __file__, str(out), package, *words],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root), "SPOTCTL_HOME": f"{home}/home"},
            check=False,
            capture_output=True,
            text=True,
        )
        if ended.returncode:
            raise SystemExit(
                f"{package} {' '.join(words)} ended with {ended.returncode}: {ended.stderr}"
            )
        return Walk(
            tuple(
                (file, name, plain)
                for file, name, plain in json.loads(out.read_text(encoding="utf-8"))
            )
        )


def traced(out: Path, package: str, words: list[str]) -> None:
    """Runs a command in this process, and writes down what it calls."""
    from importlib import import_module

    folder = f"{Path.cwd() / package}{os.sep}"
    steps: dict[tuple[str, str], bool] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(folder)
            and not code.co_name.startswith("<")
        ):
            function = bool(code.co_flags & inspect.CO_OPTIMIZED)
            plain = function and code.co_firstlineno not in properties(code.co_filename)
            steps.setdefault((code.co_filename.removeprefix(folder), code.co_qualname), plain)

    main = import_module(f"{package}.__main__").main
    sys.setprofile(note)
    try:
        main(words)
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        sys.setprofile(None)
        out.write_text(
            json.dumps([(*step, plain) for step, plain in steps.items()]), encoding="utf-8"
        )


@cache
def properties(path: str) -> frozenset[int]:
    """The lines at which the properties of a file begin, with their decorators."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return frozenset(
        min(mark.lineno for mark in node.decorator_list)
        for node in functions
        if any(
            ast.unparse(mark).rpartition(".")[2] in ("property", "cached_property")
            for mark in node.decorator_list
        )
    )


if __name__ == "__main__":
    traced(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
