"""What runs beside the training on a rented machine. It imports `agileml` and the standard library, nothing else."""

from __future__ import annotations

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
