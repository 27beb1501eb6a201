"""Training that survives evictions: an elastic parameter server on reliable and transient nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agileml.training import train

__all__ = ["train"]


def __getattr__(name: str) -> object:
    """Loads `train` on first use: the nodes of a job import only parts of this package."""
    if name in __all__:
        from agileml import training

        return getattr(training, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
