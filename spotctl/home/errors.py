"""Errors and warnings of the product itself, by what the caller can do about them, and packages
that are missing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path


class SpotctlError(Exception):
    """Root of this package's errors; the message names the object, the value and the solution."""


class BadSettings(SpotctlError):
    """A setting in the file or the environment is invalid."""


class BadRequest(SpotctlError):
    """A command cannot be carried out as given."""

    mistakes: tuple[str, ...] = ()
    """Where there are several, each in a line of its own."""


class UnreadableJob(BadRequest):
    """The log has a run whose job file is incomplete, or of another version."""


class MissingSecret(SpotctlError):
    """A secret that a job names is not in the environment."""


class Interrupted(SpotctlError):
    """The user ended the command early; the message says what was kept."""


class OldName(FutureWarning):
    """A name that is still read; the message says what it is called now."""


EXTRAS = {"matplotlib": "plots", "duckdb": "sql"}
"""By module. `doctor` checks those of clouds and of the live status, which say themselves what they
need."""


def missing_extra(error: ModuleNotFoundError) -> BadRequest | None:
    """The error that says what to install; None if no extra installs the module."""
    module = (error.name or "").partition(".")[0]
    return _of(module) if module in EXTRAS else None


def require_plots(destination: Path | None) -> None:
    """BadRequest if pictures are to be written and what draws them is missing, before work is done
    that they show.
    """
    if destination is not None and find_spec("matplotlib") is None:
        raise _of("matplotlib")


@contextmanager
def requiring_extras() -> Iterator[None]:
    """Turns the failed import of an extra's module into the error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None


def _of(module: str) -> BadRequest:
    return BadRequest(f"this needs {module}: pip install 'spotctl[{EXTRAS[module]}]'")
