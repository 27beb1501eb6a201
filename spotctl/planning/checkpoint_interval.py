"""How long machines of a plan are expected to live, and how often a program on them writes its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log1p

from bidbrain.strategies.base import Rent
from pricing_data.units import HOUR
from spotctl.agent.interval import best_interval
from spotctl.files.job.spec import Checkpoint
from spotctl.planning.expected import beta_of
from spotctl.planning.market_history import CHECKPOINT, MarketHistory

LONGEST = HOUR
"""A checkpoint is written so often at least, where the job leaves it to us: machines fail, too."""

_SURE = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """How often one is written, what one is taken to cost, and the mean time to an eviction; all in microseconds.

    `asked` says that the job file sets how often; `life` is infinite where nobody takes the machines.
    """

    every: float
    cost: float
    life: float
    asked: bool

    @property
    def useful_share(self) -> float:
        """The share of the time in which the program works on."""
        return self.every / (self.every + self.cost)


def mean_life(past: MarketHistory, rent: Rent, price: int) -> float:
    """The mean time, in microseconds, until the first of some machines is taken: as often as in the past at such a bid.

    The price takes all of them at once, everything else each for itself. Where no price ever crossed the bid, that is
    taken to happen once in as long a time as is known.
    """
    if rent.bid is None:
        return inf
    history, hazard = past.histories[rent.offer.market], past.hazards[rent.offer.market]
    each = 0.0 if hazard is None else hazard.rate[0] / HOUR
    both = -log1p(-min(beta_of(past, rent, price).probability, _SURE)) / HOUR
    crossing = max(both - each, 1 / max(history.last - history.first, HOUR))
    return 1 / (crossing + rent.machines * each)


def checkpoints_of(asked: Checkpoint | None, rents: Sequence[tuple[Rent, int]], past: MarketHistory) -> Checkpoints:
    """For allocations and what they cost now; of several, the one whose machines live the shortest counts."""
    life = min((mean_life(past, rent, price) for rent, price in rents), default=inf)
    if asked is not None and asked.every is not None:
        return Checkpoints(asked.every, CHECKPOINT.write, life, asked=True)
    return Checkpoints(best_interval(CHECKPOINT.write, life, LONGEST), CHECKPOINT.write, life, asked=False)
