"""The points of a run that a tracker gets, from the run's events. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bidbrain.billing import usd
from pricing_data.units import SECOND
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.log_row import LogRow
from spotctl.log.state import RunState
from spotctl.show.runs.figures import Money

LOSS = "loss"
PREFIX = "spotctl/"
"""The names of everything else begin with it, next to what the user's script logs."""

MoneyAt = Callable[[RunState, int], Money]
"""The money of a run in a state, at a moment of the run's clock."""


@dataclass(frozen=True, slots=True)
class Point:
    """A value at a moment of the run's clock. `step` is the clock of a loss, else seconds since the run began."""

    name: str
    value: float
    step: int
    at: int


def points_of(before: RunState, rows: Sequence[LogRow], money_at: MoneyAt) -> tuple[RunState, list[Point]]:
    """The state after the events, and their points: each loss, and the standing whenever the machines change."""
    state, points = before, list[Point]()
    for row in rows:
        earlier, state = state, fold([row], state)
        if isinstance(row.event, ev.Progressed):
            # Commands report no clocks.
            if state.work.attempt is None and row.event.loss is not None:
                points.append(Point(LOSS, row.event.loss, row.event.clock, row.at))
        elif state.ended is not None or _fleet(state) != _fleet(earlier):
            points += standing(state, row.at, money_at(state, row.at))
    return state, points


def standing(state: RunState, at: int, money: Money) -> list[Point]:
    """The cost of a run by then, and its machines."""
    amounts = {"spent_usd": money.spent, "committed_usd": money.committed, "on_demand_usd": money.on_demand}
    values = {name: float(usd(amount)) for name, amount in amounts.items() if amount is not None}
    spot, on_demand, evictions = _fleet(state)
    values |= {"spot_machines": spot, "on_demand_machines": on_demand, "evictions": evictions}
    return [Point(f"{PREFIX}{name}", value, (at - state.started) // SECOND, at) for name, value in values.items()]


def _fleet(state: RunState) -> tuple[int, int, int]:
    bids = [state.allocations[held.allocation].bid for held in state.alive]
    return sum(bid is not None for bid in bids), sum(bid is None for bid in bids), state.evictions
