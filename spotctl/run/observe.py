"""What the provider shows, as events that the log does not hold yet. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pricing_data.units import MINUTE
from spotctl.machines.base import EndReason, Machine, MachineState
from spotctl.run.notices import Notice, from_machines, unheard
from spotctl.runlog import events as ev
from spotctl.runlog.events import Event
from spotctl.runlog.state import EVICTED, Held, RunState

PATIENCE = 5 * MINUTE
"""How long a machine may be missing from a provider's list before it is taken for gone: lists are behind at times."""

RUN_TAG, INTENT_TAG = "spotctl-run", "spotctl-intent"

_REASONS = {
    EndReason.RETURNED: "returned",
    EndReason.EVICTED: EVICTED,
    EndReason.LEASE_ENDED: "lease ended",
    EndReason.FAILED: "failed",
}


def news(
    state: RunState, machines: Sequence[Machine], now: int, source: str, notices: Sequence[Notice] = ()
) -> list[Event]:
    """What has changed: machines that nobody knew of, that run, that are warned, that are gone."""
    found: list[Event] = list(_unknown(state, machines))
    ours = [machine for machine in machines if (held := state.machines.get(machine.id)) is not None and held.alive]
    for machine in ours:
        held = state.machines[machine.id]
        if machine.state is MachineState.GONE:
            found.append(ev.MachineEnded(machine.id, _end_of(machine, now), _reason(machine)))
        elif machine.state is MachineState.RUNNING and not held.running:
            found.append(ev.MachineRan(machine.id))
    found.extend(
        ev.MachineWarned(notice.node, notice.deadline, notice.kind.value, notice.source)
        for notice in unheard([*from_machines(machines, source), *notices], state)
    )
    listed = {machine.id for machine in machines}
    found.extend(_missing(held, now) for held in state.alive if held.id not in listed and now - held.started > PATIENCE)
    return found


def _unknown(state: RunState, machines: Sequence[Machine]) -> Iterator[Event]:
    """Machines with the run's tag of which no answer told: the answer was lost."""
    for machine in machines:
        intent = int(machine.tags.get(INTENT_TAG, "0"))
        # While the order is open it is repeated, and its answer names all its machines; not so when the run ends.
        awaited = intent in state.open and state.stopping is None
        if machine.id not in state.machines and intent in state.orders and not awaited:
            yield ev.Rented(intent, (ev.Granted(machine.id, machine.started),))


def _missing(held: Held, now: int) -> Event:
    # Until when it ran nobody can say; it is paid for to the end of its lease at the latest.
    return ev.MachineEnded(held.id, min(now, held.lease_until), "not listed any more")


def _end_of(machine: Machine, now: int) -> int:
    return now if machine.ended is None else max(machine.ended, machine.started)


def _reason(machine: Machine) -> str:
    return "unknown" if machine.end_reason is None else _REASONS[machine.end_reason]
