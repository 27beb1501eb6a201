"""The code that runs on a rented machine. It imports only `agileml` and the standard library."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotctl.agent.checkpoints.local import Checkpoints, TrainingPosition
    from spotctl.agent.errors import AgentError, BadCheckpoint, BrokenProtocol
    from spotctl.agent.lease.job_lease import IteratorOptions, LeaseEnded, LeaseIterator
    from spotctl.agent.lease.lease_files import LeaseGrantor, LeaseHolder

__all__ = [
    "AgentError",
    "BadCheckpoint",
    "BrokenProtocol",
    "Checkpoints",
    "IteratorOptions",
    "LeaseEnded",
    "LeaseGrantor",
    "LeaseHolder",
    "LeaseIterator",
    "TrainingPosition",
]

_MODULES = {
    "checkpoints.local": ("Checkpoints", "TrainingPosition"),
    "errors": ("AgentError", "BadCheckpoint", "BrokenProtocol"),
    "lease.job_lease": ("LeaseIterator", "IteratorOptions", "LeaseEnded"),
    "lease.lease_files": ("LeaseGrantor", "LeaseHolder"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Imports a name when it is used: a machine's agent starts with few of these modules."""
    if name in _MODULE_OF:
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
