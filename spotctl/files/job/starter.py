"""The starter file that `spotctl init` writes."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from spotctl.home.errors import BadRequest, SpotctlError


class CannotWrite(SpotctlError):
    """The file system refuses the file."""


def starter_text() -> str:
    """A commented job that runs without changes."""
    return files("spotctl.files.job").joinpath("starter_job.yaml").read_text("utf-8")


def write_starter(path: Path) -> None:
    """Writes the starter file atomically; refuses to overwrite a file."""
    if path.is_dir():
        raise BadRequest(f"{path}: is a folder; name a file in it: {path / 'job.yaml'}")
    neighbor = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        neighbor.write_text(starter_text(), "utf-8")
        # Unlike a rename, a hard link never replaces a file that was created in between.
        path.hardlink_to(neighbor)
    except FileExistsError:
        raise BadRequest(f"{path}: already exists; name another file, or delete it first") from None
    except (FileNotFoundError, NotADirectoryError):
        raise BadRequest(f"{path}: there is no folder {path.parent}; name a file in an existing one") from None
    except OSError as error:
        raise CannotWrite(
            f"{path}: cannot be written: {error.strerror}; choose a folder that you may write to"
        ) from error
    finally:
        with suppress(OSError):
            neighbor.unlink()
