"""Packages that only some commands need: which extra of spotctl installs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spotctl.home.errors import BadRequest

EXTRAS = {"matplotlib": "plots", "duckdb": "sql", "pandas": "pandas"}
"""By module. `doctor` checks those of clouds and of the live status, which say themselves what they need."""


def missing_extra(error: ModuleNotFoundError) -> BadRequest | None:
    """The error that says what to install; None if no extra installs the module."""
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        return None
    return BadRequest(f"this needs {module}: pip install 'spotctl[{EXTRAS[module]}]'")


@contextmanager
def requiring_extras() -> Iterator[None]:
    """Turns the failed import of an extra's module into the error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
