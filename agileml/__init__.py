"""Training that goes on through evictions: an elastic parameter server with tiers of reliability."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agileml.training import train

__all__ = ["train"]


def __getattr__(name: str) -> object:
    """Loads what a script uses when it uses it: nodes of a job import parts of this package only."""
    if name in __all__:
        from agileml import training

        return getattr(training, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
