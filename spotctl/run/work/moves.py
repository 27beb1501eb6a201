"""Moves of a command's checkpoint to another place: the data sent, its cost, and how long the transfer takes. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bidbrain.strategies.base import SavedState
from pricing_data.list_prices import ListPrices, Location, egress
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import JobSpec
from spotctl.log import events as ev
from spotctl.log.state import RunState
from spotctl.planning.roaming import GB, transfer_time

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class CheckpointMove:
    """A checkpoint that a new attempt needs elsewhere: the data that the old place sends, and when they arrive."""

    sent: ev.Sent
    there_at: int


def saved_of(state: RunState, spec: JobSpec) -> SavedState | None:
    """The place and the size of a command's checkpoint; the size as declared in the job file, else as measured."""
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
    """The move of the checkpoint to the machines of a new attempt; None if the checkpoint is there already."""
    saved, attempt = saved_of(state, spec), state.work.attempt
    if saved is None or attempt is None:
        return None
    held = [state.machines[machine] for machine in machines]
    origin, target = Location.of(saved.market), Location.of(state.allocations[held[0].allocation].market)
    if (origin.cloud, origin.region) == (target.cloud, target.region):
        return None
    # The price is known: the plan uses no market without such a price.
    price = round(egress(origin, target, now, lists()).usd_per_gb * NANOS_PER_DOLLAR * _GIB / GB)
    there_at = max(machine.ran or machine.started for machine in held) + transfer_time(saved.gigabytes)
    return CheckpointMove(
        ev.Sent(attempt.machines[0], now, round(saved.gigabytes * GB), price, f"{target.cloud}/{target.region}"),
        there_at,
    )
