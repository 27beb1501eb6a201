"""When machines are lost, warned and added: drawn from a seed, the same for every system."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.goodput.workload import NODES

KINDS = ("none", "kills", "warnings", "double", "joins", "coordinator")
RESTART_SECONDS = 2.0
"""From the loss of a machine to the start of the process on the one in its place. No spare process
waits for it."""

WARNING_SECONDS = 4.0
_EVERY = {"kills": 9.0, "warnings": 12.0, "double": 14.0, "joins": 12.0, "coordinator": 9.0}
_JITTER = 1.0
COORDINATOR = -1
"""In place of the number of a node."""


@dataclass(frozen=True)
class Event:
    """Seconds after the beginning, nodes are killed, `warning` seconds after they were told; or one
    is added.
    """

    second: float
    nodes: tuple[int, ...]
    warning: float = 0.0
    joins: bool = False


def drawn(kind: str, seconds: float, seed: int) -> list[Event]:
    """The events of a schedule. Every node is equally likely to be lost; the last loss has time to
    be repaired.
    """
    numbers = random.Random(f"{kind} {seed}")
    if kind == "none":
        return []
    if kind == "joins":
        moments = _moments(kind, seconds, numbers)[: NODES - 1]
        return [Event(second, (number,), joins=True) for number, second in enumerate(moments, 1)]
    if kind == "coordinator":
        # In turn with nodes, so that a coordinator must still know its nodes, and replace one,
        # after its own end.
        return [
            Event(second, (numbers.randrange(NODES) if number % 2 else COORDINATOR,))
            for number, second in enumerate(_moments(kind, seconds, numbers))
        ]
    lost = 2 if kind == "double" else 1
    return [
        Event(
            second,
            tuple(sorted(numbers.sample(range(NODES), lost))),
            WARNING_SECONDS * (kind == "warnings"),
        )
        for second in _moments(kind, seconds, numbers)
    ]


def first_nodes(kind: str) -> tuple[int, ...]:
    """The nodes with which a cell begins."""
    return (0,) if kind == "joins" else tuple(range(NODES))


def _moments(kind: str, seconds: float, numbers: random.Random) -> list[float]:
    """Losses at about equal intervals, the first one early."""
    every = _EVERY[kind]
    count = round(seconds / every)
    return [
        max(0.0, (number + 0.3) * every + numbers.uniform(-_JITTER, _JITTER))
        for number in range(count)
    ]
