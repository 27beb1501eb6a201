"""The facts that a policy decides on: which nodes can be given work, and the sums of a finished clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Footprint:
    """Nodes that can be given something, longest running first."""

    reliable: tuple[str, ...]
    transient: tuple[str, ...]


@dataclass(slots=True)
class Clocked:
    """What was reported of one clock."""

    chunks: int = 0
    seconds: float = 0.0
    pushed: int = 0
    pulled: int = 0
    backup: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
