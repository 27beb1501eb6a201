"""The boot of a rented machine, from its order until its agent answers: its phases, and when it
counts as silent.

A new phase, and any change within one, is a sign of life (`BootAdvanced`). A machine is silent once
it has shown none for the time stated for its kind, however far it has come; one that goes on
showing signs may take `LONGEST` times as long. A silent machine is returned before another takes
its place. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from pricing_data.units import MINUTE
from spotctl.clouds.boot import LONGEST, STAGES, stated_time

if TYPE_CHECKING:
    from spotctl.log.state import Allocation, Held, RunState

MAX_SILENT_MACHINES = 3
"""A run ends after this many machines in a row whose agents never answered: the image, the network
or the start-up script is at fault, and the next machine would not answer either."""


@dataclass(frozen=True, slots=True)
class Boot:
    """A boot that goes on: its phase (`stage`), and the moment from which the machine counts as
    silent, for this reason.
    """

    stage: str
    due: int
    why: str


def boot_of(state: RunState, held: Held, teardown: int = 0, watched_since: int = 0) -> Boot | None:
    """The boot of a machine; None once its agent has answered, or its return was requested.

    `watched_since`: an earlier sign would not have been seen.
    """
    if held.ran is not None or held.returning or not held.alive:
        return None

    # A lease ends a machine whose agent works; one whose agent never answered may run on, and be
    # billed.
    due = held.lease_until + teardown
    why = "its lease has ended, and its agent never answered"
    stated = stated_time(state.allocations[held.allocation].market)
    if stated is not None:
        quiet = max(held.signed_at, watched_since) + stated
        if quiet < due:
            due = quiet
            why = (
                f"it has shown nothing new for {stated // MINUTE} minutes (last stage: "
                f"{held.phase})"
            )
        longest = max(held.granted_at, watched_since) + round(stated * LONGEST)
        if longest < due and held.phase != "packages":
            due = longest
            why = (
                f"it has not come up in {stated * LONGEST / MINUTE:.0f} minutes (stage: "
                f"{held.phase})"
            )

    return Boot(held.phase, due, why)


def phases_passed(before: RunState, after: RunState, allocation: Allocation) -> tuple[str, ...]:
    """The phases to which the last machine of an allocation has come between two states, on clouds
    that show them.
    """
    if stated_time(allocation.market) is None or allocation.number not in before.allocations:
        return ()
    was, is_ = (
        min((STAGES.index(held.phase) for held in state.of(allocation.number)), default=len(STAGES))
        for state in (before, after)
    )
    return STAGES[was + 1 : is_ + 1] if is_ < len(STAGES) else ()


def silent(
    state: RunState, teardown: int, now: int, watched_since: int
) -> Iterator[tuple[Held, str]]:
    """The machines that have just become silent, and why they count as such."""
    for held in state.alive:
        boot = boot_of(state, held, teardown, watched_since)
        if boot is not None and not held.silence and now > boot.due:
            yield held, boot.why


def never_answered(state: RunState, reason: str) -> str:
    """The end of machines in a row, with a cure; `reason` is why an agent last did not answer."""
    last = max(
        (held for held in state.machines.values() if held.useless), key=attrgetter("allocation")
    )
    console = f"the console of {last.id} ends: {last.console}" if last.console else ""
    cure = "name another image or other types in the job file" if last.phase in STAGES[:3] else ""
    details = "; ".join(filter(None, (reason, last.silence, console, cure if last.silence else "")))
    return f"ended before their agents answered{details and f': {details}'}"


def clouds_that_answer(state: RunState) -> frozenset[str]:
    """The clouds with a stated time in which a machine of the run has booted."""
    markets = {
        state.allocations[held.allocation].market
        for held in state.machines.values()
        if held.ran is not None
    }
    return frozenset(market.cloud for market in markets if stated_time(market) is not None)
