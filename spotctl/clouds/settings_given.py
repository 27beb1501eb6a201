"""Fills the settings of an SDK's session with what the user set."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

T = TypeVar("T")


def with_given(defaults: T, **given: str | None) -> T:
    """Settings with the user's values; None keeps the default."""
    return replace(defaults, **{name: value for name, value in given.items() if value is not None})  # type: ignore[type-var]
