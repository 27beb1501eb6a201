"""The file that `spotctl init` writes."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from spotctl.errors import BadRequest, SpotctlError


class CannotWrite(SpotctlError):
    """The system does not let the file be written."""


def starter_text() -> str:
    """A commented job that runs as it is."""
    return files("spotctl.files.job").joinpath("starter_job.yaml").read_text("utf-8")


def write_starter(path: Path) -> None:
    """Writes it, whole or not at all, where no file is yet."""
    if path.is_dir():
        raise BadRequest(f"{path}: is a folder; name a file in it: {path / 'job.yaml'}")
    neighbour = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        neighbour.write_text(starter_text(), "utf-8")
        # Unlike a rename, a link never takes the place of a file that came in between.
        path.hardlink_to(neighbour)
    except FileExistsError:
        raise BadRequest(f"{path}: is there already; name another file, or delete it first") from None
    except (FileNotFoundError, NotADirectoryError):
        raise BadRequest(f"{path}: there is no folder {path.parent}; name a file in one that is there") from None
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be written: {error.strerror}; name a file in a folder of yours") from error
    finally:
        with suppress(OSError):
            neighbour.unlink()
