"""Mistakes in a job's trainer, model and shell commands, found without running a line of the user's
code.
"""

import ast
import re
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from agileml.apps import BUILT_IN
from agileml.apps.code import split
from spotctl.files.job.conversions import meant

_ANY = "*"


def app_problem(app: str, workdir: Path, has_setup: bool) -> str | None:
    """Why there is no such app, or None. With `setup`, a module may still be installed later."""
    path, attribute = split(app)
    if path:
        if not (workdir / path).is_file():
            return f"there is no file {path!r} in {workdir}; expected a path relative to workdir"
        return _no_class(workdir / path, attribute) if attribute else None

    module, colon, name = app.partition(":")
    if not colon:
        expected = f"{', '.join(BUILT_IN)}, module:Class or FILE.py:NAME"
        unknown = f"{app!r} is not a built-in app{meant(app, BUILT_IN)}; expected {expected}"
        return None if app in BUILT_IN else unknown

    place = workdir.joinpath(*module.split("."))
    file = next(
        (file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None
    )
    if file is not None:
        return _no_class(file, name)

    # Below the top level, looking for a module runs the packages above it.
    if has_setup or find_spec(module.partition(".")[0]) is not None:
        return None
    return (
        f"{app!r}: there is no module {module} in {workdir}, nor an installed one; correct the "
        "name, or set workdir"
    )


def model_problem(app: str, workdir: Path) -> str | None:
    """Why there is no such model to split, or None."""
    from agileml.pipeline.builtin import BUILT_IN as MODELS

    path, attribute = split(app)
    if not path or not attribute:
        if app in MODELS:
            return None
        return f"{app!r} is no model; expected {', '.join(MODELS)}, or FILE.py:FUNCTION"
    if not (workdir / path).is_file():
        return f"there is no file {path!r} in {workdir}; expected a path relative to workdir"

    return _no_class(workdir / path, attribute)


def arguments_problem(app: str, arguments: Mapping[str, object]) -> str | None:
    """Why a built-in app does not take these arguments, or None; other apps check theirs when they
    run.
    """
    if app not in BUILT_IN:
        return None

    from agileml.apps.registry import TrainerSource
    from agileml.errors import AgileMLError

    try:
        TrainerSource(app, arguments).load()
    except AgileMLError as error:
        return str(error)
    return None


def _no_class(file: Path, name: str) -> str | None:
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        return f"{file}{line} is not Python: {error.args[0]}; correct it"
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}"

    names = _names_in(tree.body)
    if name in names or _ANY in names:
        return None
    return (
        f"{file} defines no {name}{meant(name, names)}; expected a class or function of that file"
    )


def _names_in(body: list[ast.stmt]) -> set[str]:
    """The names that statements define at the top level, also in both branches of an `if` or
    `try`."""
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in statement.names}
        else:
            names |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            inner = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt)]
            names |= _names_in(inner)

    return names


_SCRIPT = re.compile(
    r"(?:exec\s+)?(?:(?:python[\d.]*|bash|sh)\s+(?:-[uOB]+\s+)*(?!-)|(?=\./))(?P<path>[\w./-]+)(?=\s|$)"
)
"""A command that begins with a program of the job's folder: `python train.py`, `./train.sh`."""


def syntax_problem(text: str) -> str | None:
    """The reason why no shell can read a command; None if one can."""
    if "\0" in text:
        return "contains a NUL byte, which no command can; remove it"

    read = subprocess.run(
        ["/bin/sh", "-n"], input=text, stderr=subprocess.PIPE, text=True, check=False
    )
    if read.returncode == 0:
        return None

    said = read.stderr.strip().splitlines()[-1].rpartition("yntax error: ")[2].strip().lower()
    return f"is no command that a shell can read ({said}); correct it, and try it with sh -n"


def script_problem(command: str, workdir: Path) -> str | None:
    """Why the script with which a command begins is not there; None if it is, or if there is
    none."""
    named = _SCRIPT.match(command.strip())
    if named is None or (workdir / named["path"]).is_file():
        return None
    return f"there is no file {named['path']} in {workdir}; correct the name, or write workdir"
