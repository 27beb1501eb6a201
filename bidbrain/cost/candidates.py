"""The cost per work of a footprint with each of many candidates: the equations of `footprint` over arrays.

A decision compares every market at every bid delta in several counts. Inputs that do not depend on one of these have
length 1 along it and are computed once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.billing import usd
from bidbrain.cost.footprint import (
    Application,
    Dependence,
    FootprintAllocation,
    ImpossibleAllocation,
    chance_of_eviction,
    cumulative_hazard,
    largest_hazards,
)
from pricing_data.market import Market
from pricing_data.series import Ints
from pricing_data.units import HOUR, SECOND


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Possible purchases: the fields of `FootprintAllocation`, as arrays.

    All arrays have the same number of axes, the first one for markets, and broadcast against each other: prices of
    shape (markets, 1, 1), betas of (markets, deltas, 1) and machines of (markets, 1, counts) make markets x deltas x
    counts. `eviction_after` is ignored where `beta` is 0. `startup` is the same for all.
    """

    markets: tuple[Market, ...]
    machines: Ints
    price: Ints
    nu: Floats
    left: Ints
    beta: Floats
    eviction_after: Floats
    paid_seconds: Floats | None = None
    startup: int = 0

    def __post_init__(self) -> None:
        arrays = [getattr(self, name) for name in _FIELDS]
        if self.paid_seconds is not None:
            arrays.append(self.paid_seconds)
        if len({array.ndim for array in arrays}) != 1 or self.shape[:1] != (len(self.markets),):
            raise ImpossibleAllocation(
                f"candidates of {len(self.markets)} markets have arrays of shapes"
                f" {', '.join(str(array.shape) for array in arrays)}: all need the same number of axes, markets first"
            )
        if not all(np.all(array > 0) for array in (self.machines, self.price, self.left)) or np.any(self.nu < 0):
            raise ImpossibleAllocation("candidates need machines, prices and times left above 0, and nu not below 0")
        if self.startup < 0:
            raise ImpossibleAllocation(f"candidates start up in {self.startup} microseconds, which is below 0")
        if not np.all((self.beta >= 0) & (self.beta <= 1)):
            raise ImpossibleAllocation("some candidate's beta is not a probability")

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of candidates along each axis."""
        return np.broadcast_shapes(*(getattr(self, name).shape for name in _FIELDS))

    def allocation(self, index: Sequence[int]) -> FootprintAllocation:
        """One candidate as a planned allocation."""

        def at(array: Ints | Floats) -> float:
            return np.broadcast_to(array, self.shape)[tuple(index)].item()  # type: ignore[no-any-return]

        beta = at(self.beta)
        return FootprintAllocation(
            market=self.markets[index[0]],
            machines=int(at(self.machines)),
            price=int(at(self.price)),
            nu=at(self.nu),
            left=int(at(self.left)),
            beta=beta,
            eviction_after=at(self.eviction_after) if beta > 0 else None,
            paid_seconds=None if self.paid_seconds is None else at(self.paid_seconds),
            startup=self.startup,
            planned=True,
        )


_FIELDS = ("machines", "price", "nu", "left", "beta", "eviction_after")


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """C, W and E of the footprint with each candidate, in the candidates' shape."""

    cost_usd: Floats
    work: Floats
    usd_per_work: Floats

    def best(self) -> tuple[int, ...] | None:
        """Index of the smallest E; None if no candidate does any work."""
        at = int(np.argmin(self.usd_per_work))
        index = tuple(int(i) for i in np.unravel_index(at, self.usd_per_work.shape))
        return index if np.isfinite(self.usd_per_work[index]) else None


def with_each(
    footprint: Sequence[FootprintAllocation], candidates: Candidates, application: Application, dependence: Dependence
) -> Outcomes:
    """Evaluates the footprint with one more candidate, for each candidate."""
    eviction = _eviction_with_each(footprint, candidates, dependence)
    lost = eviction * (application.lambda_ / HOUR) + application.sigma / HOUR
    # Where beta is 0 the time to eviction does not matter.
    after = np.where(candidates.beta > 0, np.minimum(candidates.eviction_after, candidates.left), 0)
    runs = candidates.left * (1 - candidates.beta) + after * candidates.beta
    omega = np.maximum(runs - candidates.startup, 0) / HOUR
    rate = candidates.machines * candidates.nu
    size = sum(allocation.rate for allocation in footprint) + rate
    work = application.scaling(size) * (_work_of_held(footprint, lost) + rate * np.maximum(omega - lost, 0))
    paid = candidates.paid_seconds
    if paid is None:
        paid = (1 - candidates.beta) * (candidates.left / SECOND)
    usd_per_second = candidates.machines * candidates.price * usd(1)
    cost = usd_per_second * paid + sum(allocation.cost_usd for allocation in footprint)
    cost, work = np.broadcast_to(cost, candidates.shape), np.broadcast_to(work, candidates.shape)
    nothing = np.full(candidates.shape, np.inf)
    return Outcomes(cost, work, np.divide(cost, work, out=nothing, where=work > 0))


def _work_of_held(footprint: Sequence[FootprintAllocation], lost: Floats) -> Floats:
    """Work of the held machines if each loses `lost` hours: linear between the points at which one has none left."""
    omega = np.array([allocation.expected_hours for allocation in footprint])
    rate = np.array([allocation.rate for allocation in footprint])
    bends = np.unique(np.append(omega, 0.0))
    at_bends = (np.maximum(omega - bends[:, None], 0) * rate).sum(axis=1)
    return np.asarray(np.interp(lost, bends, at_bends))


def _eviction_with_each(
    footprint: Sequence[FootprintAllocation], candidates: Candidates, dependence: Dependence
) -> Floats:
    """The probability of any eviction with each candidate; only in its own market is a candidate evicted with
    others."""
    beta, left = np.broadcast_arrays(candidates.beta, candidates.left)
    held = 1 - chance_of_eviction(footprint, dependence)
    eviction: Floats = 1 - held * (1 - beta)
    if dependence is Dependence.INDEPENDENT:
        return eviction
    own = {allocation.market for allocation in footprint}
    for row, market in enumerate(candidates.markets):
        if market not in own:
            continue
        together = [allocation for allocation in footprint if allocation.market == market]
        others = [allocation for allocation in footprint if allocation.market != market]
        survives = 1 - chance_of_eviction(others, dependence)
        eviction[row] = 1 - survives * np.exp(-_hazard_together(together, beta[row], left[row]))
    return eviction


def _hazard_together(held: Sequence[FootprintAllocation], beta: Floats, left: Ints) -> Floats:
    """The cumulative hazard of allocations that are evicted together, for each candidate."""
    hazard = cumulative_hazard(beta) / left
    steps = largest_hazards(held)
    total = hazard * np.maximum(left - steps[-1][1], 0)
    for since, until, already in steps:
        shared = np.clip(left - since, 0, until - since)
        total += already * (until - since) + np.maximum(hazard - already, 0) * shared
    return np.asarray(total)
