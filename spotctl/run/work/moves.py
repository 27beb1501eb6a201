"""Moves of a command's checkpoint to another place: what is sent, what that costs, and how long it takes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bidbrain.strategies.base import SavedState
from pricing_data.egress import Location, egress
from pricing_data.list_prices import ListPrices
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import JobSpec
from spotctl.log import events as ev
from spotctl.log.state import RunState
from spotctl.planning.roaming import GB, transfer_time

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class CheckpointMove:
    """A checkpoint that a new attempt needs elsewhere: what the old place sends, and when the new one has it."""

    sent: ev.Sent
    there_at: int


def saved_of(state: RunState, spec: JobSpec) -> SavedState | None:
    """Where a command's checkpoint is and its size: as the job file says, or as it was measured."""
    program, attempt, kept = spec.program, state.work.attempt, state.work.checkpoint
    if not isinstance(program, Command) or program.checkpoint is None or attempt is None or kept is None:
        return None
    declared = program.checkpoint.size
    market = state.allocations[state.machines[attempt.machines[0]].allocation].market
    parts = 1 if program.nodes.is_range else program.nodes.most
    return SavedState(market, (kept.bytes * parts if declared is None else declared) / GB)


def move_to(
    state: RunState, spec: JobSpec, machines: Sequence[str], now: int, lists: Callable[[], ListPrices]
) -> CheckpointMove | None:
    """What taking the checkpoint to the machines of a new attempt means; None if it is there."""
    saved, attempt = saved_of(state, spec), state.work.attempt
    if saved is None or attempt is None:
        return None
    held = [state.machines[one] for one in machines]
    origin, target = Location.of(saved.market), Location.of(state.allocations[held[0].allocation].market)
    if (origin.cloud, origin.region) == (target.cloud, target.region):
        return None
    # Known by then: the plan has used no market without such a price.
    price = round(egress(origin, target, now, lists()).usd_per_gb * NANOS_PER_DOLLAR * _GIB / GB)
    there_at = max(one.ran or one.started for one in held) + transfer_time(saved.gigabytes)
    return CheckpointMove(
        ev.Sent(attempt.machines[0], now, round(saved.gigabytes * GB), price, f"{target.cloud}/{target.region}"),
        there_at,
    )
