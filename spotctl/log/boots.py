"""The boot of a rented machine, from its order until its agent answers: its stages, and when it counts as silent.

A new stage, and any change within one, is a sign of life (`BootAdvanced`). A machine is silent once it has shown none
for the time stated for its kind, however far it has come; one that goes on showing signs may take `_LONGEST` times as
long. A silent machine is returned before another takes its place. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pricing_data.catalog import XEN
from pricing_data.known_clouds import has_part, part_of
from pricing_data.market import Market
from pricing_data.units import MINUTE
from spotctl.home.cloud import cloud_of

if TYPE_CHECKING:
    from spotctl.clouds.link import LeaseTimes
    from spotctl.log.state import Allocation, Held, RunState

STAGES = ("ordered", "running", "console", "ssh", "packages", "agent")
"""In this order: granted, running by its cloud's word, its console shows output, ssh answers, what it needs is copied
to it, its agent answers."""

_USUAL, _WITH_GPUS, _LATE_CONSOLE, _BARE_METAL = 4 * MINUTE, 8 * MINUTE, 10 * MINUTE, 20 * MINUTE
"""The longest time without a sign. Assumed, as no account has measured it: firmware that counts terabytes of memory is
quiet for minutes, bare metal for a quarter of an hour, and EC2 posts the console of types before Nitro minutes late."""

_LONGEST = 3.5
"""How many times its stated time a boot may take until files can be copied to the machine."""


def stated_time(market: Market) -> int | None:
    """How long a booting machine of a market may show no sign of life; None on a cloud that rents nothing."""
    if cloud_of(market.cloud).settings is None:
        return None
    if not has_part(market.cloud, "machine_types"):
        return _LATE_CONSOLE
    traits = part_of(market.cloud, "machine_types").traits_of(market.instance_type)
    if traits.hypervisor == "none":
        return _BARE_METAL
    if traits.hypervisor == XEN:
        return _LATE_CONSOLE
    return _USUAL if traits.accelerator_gib is None else _WITH_GPUS


def first_lease(market: Market, times: LeaseTimes) -> int:
    """How long the lease of an order lasts: a machine ends itself when it boots after the end of its lease."""
    return max(times.lease, round((stated_time(market) or 0) * _LONGEST))


@dataclass(frozen=True, slots=True)
class Boot:
    """A boot that goes on: its stage, and the moment from which the machine counts as silent, for this reason."""

    stage: str
    due: int
    why: str


def boot_of(state: RunState, held: Held, teardown: int = 0, watched_since: int = 0) -> Boot | None:
    """The boot of a machine; None once its agent has answered, or its return was requested.

    `watched_since`: an earlier sign would not have been seen.
    """
    if held.ran is not None or held.returning or not held.alive:
        return None
    # A lease ends a machine whose agent works; one whose agent never answered may run on, and be billed.
    due, why = held.lease_until + teardown, "its lease has ended, and its agent never answered"
    stated = stated_time(state.allocations[held.allocation].market)
    if stated is not None:
        quiet = max(held.signed_at, watched_since) + stated
        if quiet < due:
            due, why = quiet, f"it has shown nothing new for {stated // MINUTE} minutes (last stage: {held.stage})"
        longest = max(held.granted_at, watched_since) + round(stated * _LONGEST)
        if longest < due and held.stage != "packages":
            due, why = longest, f"it has not come up in {stated * _LONGEST / MINUTE:.0f} minutes (stage: {held.stage})"
    return Boot(held.stage, due, why)


def stages_passed(before: RunState, after: RunState, allocation: Allocation) -> tuple[str, ...]:
    """The stages to which the last machine of an allocation has come between two states, on clouds that show them."""
    if stated_time(allocation.market) is None or allocation.number not in before.allocations:
        return ()
    was, is_ = (
        min((STAGES.index(held.stage) for held in state.of(allocation.number)), default=len(STAGES))
        for state in (before, after)
    )
    return STAGES[was + 1 : is_ + 1] if is_ < len(STAGES) else ()


def silent(state: RunState, teardown: int, now: int, watched_since: int) -> Iterator[tuple[Held, str]]:
    """The machines that have just become silent, and why they count as such."""
    for held in state.alive:
        boot = boot_of(state, held, teardown, watched_since)
        if boot is not None and not held.silence and now > boot.due:
            yield held, boot.why


def never_answered(state: RunState, reason: str) -> str:
    """The end of machines in a row, with a cure; `reason` is why an agent last did not answer."""
    last = max((held for held in state.machines.values() if held.useless), key=lambda held: held.allocation)
    console = f"the console of {last.id} ends: {last.console}" if last.console else ""
    cure = "name another image or other types in the job file" if last.stage in STAGES[:3] else ""
    details = "; ".join(filter(None, (reason, last.silence, console, cure if last.silence else "")))
    return f"ended before their agents answered{details and f': {details}'}"


def clouds_that_answer(state: RunState) -> frozenset[str]:
    """The clouds with a stated time in which a machine of the run has booted."""
    markets = {state.allocations[held.allocation].market for held in state.machines.values() if held.ran is not None}
    return frozenset(market.cloud for market in markets if stated_time(market) is not None)


def zones_without_answer(state: RunState) -> frozenset[tuple[str, str, str]]:
    """Where machines were silent and none has answered: clouds, regions and zones."""
    zones: dict[bool, set[tuple[str, str, str]]] = {True: set(), False: set()}
    for held in state.machines.values():
        market = state.allocations[held.allocation].market
        if held.useless or held.ran is not None:
            zones[held.useless].add((market.cloud, market.region, market.zone))
    return frozenset(zones[True] - zones[False])
