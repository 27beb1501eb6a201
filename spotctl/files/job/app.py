"""Finds the trainer that a job file names, without running a line of the user's code."""

import ast
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
        return None if app in BUILT_IN else _no_built_in(app)
    file = _module_file(module, workdir)
    if file is not None:
        return _no_class(file, name)
    if has_setup or _is_installed(module):
        return None
    return f"{app!r}: there is no module {module} in {workdir}, nor an installed one; correct the name, or set workdir"


def model_problem(app: str, workdir: Path) -> str | None:
    """Why there is no such model to split, or None."""
    from agileml.pipeline.model.user_model import BUILT_IN as MODELS

    path, attribute = split(app)
    if not path or not attribute:
        return None if app in MODELS else f"{app!r} is no model; expected {', '.join(MODELS)}, or FILE.py:FUNCTION"
    if not (workdir / path).is_file():
        return f"there is no file {path!r} in {workdir}; expected a path relative to workdir"
    return _no_class(workdir / path, attribute)


def arguments_problem(app: str, arguments: Mapping[str, object]) -> str | None:
    """Why a built-in app does not take these arguments, or None; other apps check theirs when they run."""
    if app not in BUILT_IN:
        return None
    from agileml.apps.registry import TrainerSource
    from agileml.errors import AgileMLError

    try:
        TrainerSource(app, arguments).load()
    except AgileMLError as error:
        return str(error)
    return None


def _no_built_in(app: str) -> str:
    expected = f"{', '.join(BUILT_IN)}, module:Class or FILE.py:NAME"
    return f"{app!r} is not a built-in app{meant(app, BUILT_IN)}; expected {expected}"


def _module_file(module: str, workdir: Path) -> Path | None:
    path = workdir.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _is_installed(module: str) -> bool:
    # Below the top level, looking for a module runs the packages above it.
    return find_spec(module.partition(".")[0]) is not None


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
    return f"{file} defines no {name}{meant(name, names)}; expected a class or function of that file"


def _names_in(body: list[ast.stmt]) -> set[str]:
    """The names that statements define at the top level, also in both branches of an `if` or `try`."""
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
