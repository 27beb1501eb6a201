"""What runs beside the training on a rented machine. It imports `agileml` and the standard library, nothing else."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotctl.agent.checkpoints import Checkpoints, Place
    from spotctl.agent.errors import AgentError, BadCheckpoint, BrokenProtocol
    from spotctl.agent.iterator import LeaseEnded, LeaseIterator, Options
    from spotctl.agent.lease import LeaseGiver, LeaseHolder

__all__ = [
    "AgentError",
    "BadCheckpoint",
    "BrokenProtocol",
    "Checkpoints",
    "LeaseEnded",
    "LeaseGiver",
    "LeaseHolder",
    "LeaseIterator",
    "Options",
    "Place",
]

_MODULES = {
    "checkpoints": ("Checkpoints", "Place"),
    "errors": ("AgentError", "BadCheckpoint", "BrokenProtocol"),
    "iterator": ("LeaseEnded", "LeaseIterator", "Options"),
    "lease": ("LeaseGiver", "LeaseHolder"),
}
_WHERE = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Loads what a script uses when it uses it: the process of a machine starts with parts of this package only."""
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
