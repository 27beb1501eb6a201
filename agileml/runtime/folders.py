"""Files of a job that one process or one user owns: temporary folders, folders that are read as
code, the secret.
"""

import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agileml.errors import BadInput
from agileml.runtime.ground import is_locked, locked, move
from agileml.transport.addresses import LONGEST_UNIX_PATH
from agileml.transport.handshake import SHORTEST_SECRET

_LONGEST_NAME = len("/controller.sock")
_PREFIX = "agileml-join-"
_LOCK = "lock"
_SHORT = Path("/tmp")  # noqa: S108 - for a new folder, with an unpredictable name


def short_folder(prefix: str = "agileml-", longest_name: int = _LONGEST_NAME) -> Path:
    """A new folder for its owner alone, with a path short enough for Unix sockets in it."""
    folder = tempfile.mkdtemp(prefix=prefix)
    if len(os.fsencode(folder)) + longest_name <= LONGEST_UNIX_PATH:
        return Path(folder)
    Path(folder).rmdir()
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_SHORT))


@contextmanager
def own_folder(longest_name: int = _LONGEST_NAME) -> Iterator[Path]:
    """A folder that exists as long as this process or a fork of it. Folders of killed processes are
    removed.

    `longest_name` is the length of the longest path of a socket in it.
    """
    for place in {Path(tempfile.gettempdir()), _SHORT}:
        for abandoned in place.glob(f"{_PREFIX}*/{_LOCK}"):
            # Another user's, or one that is being removed.
            with suppress(OSError):
                if not is_locked(abandoned):
                    shutil.rmtree(abandoned.parent, ignore_errors=True)

    folder = short_folder(_PREFIX, longest_name)
    try:
        # The file is named once it is locked, so that another process cannot take the folder for an
        # abandoned one.
        unnamed = folder / f"{_LOCK}.new"
        with locked(unnamed):
            move(unnamed, folder / _LOCK)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class NotPrivate(BadInput):
    """A folder that another user of this computer owns or can write to."""


def require_private(folder: Path) -> None:
    """Raises NotPrivate if another user can write to the folder; one that does not exist passes.

    A link counts as well: its owner decides where it leads.
    """
    for status in (os.lstat, os.stat):
        try:
            seen = status(folder)
        except FileNotFoundError:
            return
        if seen.st_uid != os.getuid():
            raise NotPrivate(
                f"{folder} belongs to another user of this computer; nothing is read from it"
            )
    if seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotPrivate(f"other users can write to {folder}; nothing is read from it")


SECRET_VARIABLE = "AGILEML_SECRET"  # noqa: S105 - the name of a variable, not a secret

_MAX_BYTES = 4096

_LOG = logging.getLogger(__name__)


def read_secret(path: Path) -> bytes:
    """The secret, without white space around it. Raises BadInput for a file that is not fit to hold
    one.
    """
    make = f"create one with: (umask 077; openssl rand -hex 32 > {path})"
    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise BadInput(f"secret file {path}: no such file; {make}") from None
    except OSError as error:
        raise BadInput(f"secret file {path} cannot be read: {error.strerror or error}") from None

    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        # No reason to refuse: Docker and Kubernetes mount secrets this way, read-only.
        _LOG.warning(
            "secret file %s can be read by other users; if it is yours, run: chmod 600 %s",
            path,
            path,
        )

    # Before white space is removed: what follows was not read.
    if len(content) > _MAX_BYTES:
        raise BadInput(f"secret file {path} has more than {_MAX_BYTES} bytes; {make}")

    secret = content.strip()
    if not secret:
        raise BadInput(f"secret file {path} is empty; {make}")
    if len(secret) < SHORTEST_SECRET:
        raise BadInput(
            f"secret file {path} has {len(secret)} bytes; at least {SHORTEST_SECRET} random ones "
            f"are needed; {make}"
        )

    return secret
