"""Expected machine lifetimes of a plan, and the checkpoint interval that follows from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log1p

from bidbrain.strategies.base import Rent
from pricing_data.units import HOUR
from spotctl.agent.interval import best_interval
from spotctl.files.job.programs import Command
from spotctl.planning.expected import crossing_of
from spotctl.planning.job import Job
from spotctl.planning.market_history import CHECKPOINT, MarketHistory

LONGEST_INTERVAL = HOUR
"""Longest automatic interval: machines also fail for reasons that no eviction model covers."""

_BELOW_ONE = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class CheckpointInterval:
    """Interval, assumed cost of a checkpoint, and mean time to an eviction, in microseconds.

    `is_fixed` says that the job file sets the interval; `life` is infinite for on-demand machines.
    """

    every: float
    cost: float
    life: float
    is_fixed: bool

    @property
    def useful_share(self) -> float:
        """The share of time that is not spent on checkpoints."""
        return self.every / (self.every + self.cost)


def mean_life(market_history: MarketHistory, rent: Rent, price: int) -> float:
    """The mean time, in microseconds, until the first of some machines is evicted, from the history of such bids.

    The price evicts all of them at once, other causes each one independently. If no price ever crossed the bid, one
    crossing in the length of the history is assumed.
    """
    if rent.bid is None:
        return inf
    history, hazard = market_history.histories[rent.offer.market], market_history.hazards[rent.offer.market]
    share = crossing_of(history, rent.bid - price).share
    crossing = max(-log1p(-min(share, _BELOW_ONE)) / HOUR, 1 / max(history.last - history.first, HOUR))
    if hazard is None:
        return 1 / crossing
    return min(1 / (crossing + rent.machines * hazard.rate[0] / HOUR), hazard.longest_life * HOUR)


def checkpoints_of(
    job: Job, rents: Sequence[tuple[Rent, int]], market_history: MarketHistory
) -> CheckpointInterval | None:
    """The interval of a command for some allocations and their current prices, the shortest mean lifetime counts; None
    for a training.

    A checkpoint takes as long as in earlier runs. Without any, a program is assumed to save no more often than it can
    afford: an interval in the job file bounds the assumed cost.
    """
    program = job.spec.program
    if not isinstance(program, Command):
        return None
    life = min((mean_life(market_history, rent, price) for rent, price in rents), default=inf)
    every = None if program.checkpoint is None else program.checkpoint.every
    if every is None:
        taken = CHECKPOINT.write if job.save_time is None else job.save_time
        return CheckpointInterval(best_interval(taken, life, LONGEST_INTERVAL), taken, life, is_fixed=False)
    affordable = every * (1 / CHECKPOINT.speed - 1)
    cost = min(CHECKPOINT.write, affordable) if job.save_time is None else min(job.save_time, every)
    return CheckpointInterval(every, cost, life, is_fixed=True)
