"""One stream of notices that a machine will be taken, whoever sends them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from spotctl.machines.base import Machine, MachineState
from spotctl.runlog.state import RunState


class NoticeKind(Enum):
    """What is known."""

    EVICTION = "eviction"
    """The machine will be taken at the deadline."""
    HINT = "hint"
    """It may be taken; nothing has to be done at once."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A machine will be taken at a moment (microseconds UTC on the provider's clock), says a source."""

    node: str
    deadline: int
    kind: NoticeKind
    source: str


def from_machines(machines: Iterable[Machine], source: str) -> Iterator[Notice]:
    """What the provider says about machines that still run."""
    for machine in machines:
        if machine.warned_until is not None and machine.state is not MachineState.GONE:
            yield Notice(machine.id, machine.warned_until, NoticeKind.EVICTION, source)


def unheard(notices: Iterable[Notice], state: RunState) -> list[Notice]:
    """Notices that say something new, one for each machine: the eviction with the earliest deadline."""
    earliest: dict[str, Notice] = {}
    for notice in notices:
        held = state.machines.get(notice.node)
        known = earliest.get(notice.node)
        if held is None or not held.alive or notice.kind is NoticeKind.HINT:
            continue
        if known is None or notice.deadline < known.deadline:
            earliest[notice.node] = notice
    return [
        notice
        for node, notice in earliest.items()
        if (until := state.machines[node].warned_until) is None or notice.deadline < until
    ]
