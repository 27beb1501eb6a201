"""The environment of a night: what the owner wrote into the environment file, and nothing of anybody's shell.

A file of lines `NAME=value`, for its owner alone. Its values are taken into the run's own environment and are written
nowhere else.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from spotctl.errors import BadRequest

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_CLOUDS = ("AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_", "SPOTCTL_")
_NOT_ASKED_FOR = frozenset({"SPOTCTL_HOME"})
"""Resolved when a job is installed."""

_HEAD = """\
# Variables for the nightly runs of {name}, one NAME=value a line. This file must stay readable for its owner alone.
# Secrets that the job names, and credentials for its clouds, belong here: a timer knows nothing of your shell.
"""


def begin_file(path: Path, name: str, secrets: Iterable[str]) -> None:
    """Writes an environment file to fill in, unless there is one."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_HEAD.format(name=name) + "".join(f"#{secret}=\n" for secret in secrets))


def provided(path: Path) -> dict[str, str]:
    """What the file says; a file that others can read is refused, because it is there for secrets."""
    try:
        about = path.stat()
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path}: cannot be read: {error}") from None
    if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077:
        raise BadRequest(f"{path}: others can read it; run: chmod 600 {path} (and change what was in it)")
    return dict(_variable(path, number, line) for number, line in _lines(text))


def _lines(text: str) -> Iterable[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line.strip()


def _variable(path: Path, number: int, line: str) -> tuple[str, str]:
    # The value is not shown: it may be a secret.
    name, equals, value = line.removeprefix("export ").partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise BadRequest(f"{path}:{number}: is no NAME=value; write a variable's name, =, and its value")
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return name, value[1:-1] if quoted else value


def missing(secrets: Iterable[str], given: Mapping[str, str]) -> list[str]:
    """Secrets that are nowhere, or say nothing."""
    return [name for name in secrets if not given.get(name)]


def only_here(environ: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """Names of variables for clouds that are set in this shell and that no timer will know."""
    return sorted(
        name
        for name in environ
        if name.startswith(_OF_CLOUDS) and name not in given and name not in _NOT_ASKED_FOR and environ[name]
    )
