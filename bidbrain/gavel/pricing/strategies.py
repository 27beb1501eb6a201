"""Where a job runs: on one offer to the end, or on whichever is cheapest as prices change (Figure 6.5).

Everything is per accelerator; a job's rate on an offer is its throughput there times the share of time that is not
wasted. Jobs are columns, because a strategy is evaluated from many starts.
"""

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import FloatArray, IntArray
from bidbrain.gavel.effective_price import Movement
from bidbrain.gavel.pricing.board import AcceleratorOffer, PriceBoard

# A job may end beyond the prices by this fraction, which is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """The offers that a job may use, and whether it moves while running.

    `home` is a cloud and region (`aws/us-east-1`), `baseline` the accelerator of the fixed type; empty means any.
    `dataset_everywhere` is the paper's assumption that many jobs share the cost of moving the dataset.
    """

    name: str
    accelerator: str = ""
    home: str = ""
    single: bool = False
    moves: bool = False
    dataset_everywhere: bool = True

    def may_use(self, offer: AcceleratorOffer) -> bool:
        place = f"{offer.market.cloud}/{offer.market.region}"
        return (
            (not self.accelerator or offer.accelerator == self.accelerator)
            and (not self.home or place == self.home)
            and (not self.single or offer.accelerators == 1)
        )


def ladder(home: str, baseline: str) -> tuple[PlacementRule, ...]:
    """The strategies of Figure 6.5, each with one more freedom; the last pays to move its dataset once per cloud."""
    return (
        PlacementRule("fixed-type", accelerator=baseline, home=home, single=True),
        PlacementRule("best-type", home=home, single=True),
        PlacementRule("multi-gpu", home=home),
        PlacementRule("multi-cloud"),
        PlacementRule("dynamic", moves=True),
        PlacementRule("dynamic+data", moves=True, dataset_everywhere=False),
    )


@dataclass(frozen=True, slots=True)
class TrainingJobs:
    """Jobs: the start of each (hours since the board begins), its work, and its rate on each offer (run, offer).

    Work is in steps and rates in steps per hour, or both in any other unit. A rate of 0 means that it may not run
    there.
    """

    start: FloatArray
    work: FloatArray
    rates: FloatArray

    @property
    def hours_per_step(self) -> FloatArray:
        """The inverse of the rates: infinite where a job may not run."""
        endless = np.full(self.rates.shape, np.inf)
        return np.asarray(np.divide(1.0, self.rates, out=endless, where=self.rates > 0), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """Cost and course of jobs: dollars (`moved_usd` of them for data), end times, number of moves, first offers.

    `usd` and `stop` are NaN where a job would have run beyond the end of the prices.
    """

    usd: FloatArray
    moved_usd: FloatArray
    stop: FloatArray
    moves: IntArray
    first: IntArray


def stay(board: PriceBoard, runs: TrainingJobs, movement: Movement) -> TrainingCost:
    """Runs each job to the end on the offer that is cheapest for it at its start.

    The comparison assumes that the price at the start will hold.
    """
    data = np.array([movement.dataset_usd(offer.market.cloud) for offer in board.offers])
    hours = runs.work[:, None] * runs.hours_per_step
    first = (hours * board.usd[:, board.moment(runs.start)].T + data).argmin(axis=1)
    stop = runs.start + hours[np.arange(first.size), first]
    late = stop > board.span * (1 + _ROUNDING)
    usd = board.paid(first, runs.start, np.minimum(stop, board.span)) + data[first]
    usd[late], stop[late] = np.nan, np.nan
    return TrainingCost(usd, data[first], stop, np.zeros(first.size, dtype=np.int64), first)


def follow(board: PriceBoard, runs: TrainingJobs, movement: Movement) -> TrainingCost:
    """Runs each job on the offer that is cheapest for its remaining work, reconsidered whenever a price changes.

    A job moves if the rest, the checkpoint, the time to move and the dataset (once per cloud) would cost less elsewhere
    than the rest costs here, if current prices held. Future prices are unknown.
    """
    return _Walk(board, runs, movement).to_the_end()


class _Walk:
    """The jobs of `follow` from one price change to the next, all at once."""

    def __init__(self, board: PriceBoard, runs: TrainingJobs, movement: Movement) -> None:
        # Offers that no job can use would only slow the loop down.
        self.index = np.flatnonzero((runs.rates > 0).any(axis=0))
        self.pace = runs.hours_per_step[:, self.index]
        self.board, self.runs, self.move_hours = board, runs, movement.hours
        offers = [board.offers[i] for i in self.index]
        clouds = sorted({offer.market.cloud for offer in offers})
        self.cloud_of = np.array([clouds.index(offer.market.cloud) for offer in offers])
        self.checkpoint = _checkpoint_costs(offers, movement)
        self.data_by_held = _dataset_costs(clouds, movement)
        count = runs.start.size
        self.left = runs.work.copy()
        self.busy = np.zeros(count)
        self.at = np.full(count, -1, dtype=np.int64)
        self.held = np.zeros(count, dtype=np.int64)
        self.usd, self.moved = np.zeros(count), np.zeros(count)
        self.moves = np.zeros(count, dtype=np.int64)
        self.first = np.zeros(count, dtype=np.int64)
        self.stop = np.full(count, np.nan)

    def to_the_end(self) -> TrainingCost:
        edges = np.append(self.board.hours, self.board.span)
        prices = self.board.usd[self.index]
        steps = np.diff(prices, axis=1, prepend=prices[:, :1])
        for moment in range(self.board.hours.size):
            here = np.flatnonzero((self.runs.start < edges[moment + 1]) & np.isnan(self.stop))
            if here.size:
                self._look(here, prices[:, moment], steps[:, moment])
                self._run(here, prices[:, moment], edges[moment], edges[moment + 1])
        usd = np.where(np.isnan(self.stop), np.nan, self.usd)
        return TrainingCost(usd, self.moved, self.stop, self.moves, self.index[self.first])

    def _look(self, jobs: IntArray, usd_per_hour: FloatArray, steps: FloatArray) -> None:
        """Compares all offers for jobs that must choose, and only the offers that became cheaper for all others.

        A move that was not worthwhile is even less so with less work left, until a price changes: the current one
        upward, or the other one downward. No way over a third place is cheaper, because egress is paid by the place
        that data leaves.
        """
        fresh = self.at[jobs] < 0
        everything = fresh | (steps[self.at[jobs]] > 0)
        self._start(jobs[fresh], usd_per_hour)
        fallen = np.flatnonzero(steps < 0)
        self._consider(jobs[everything & ~fresh], np.arange(usd_per_hour.size), usd_per_hour)
        self._consider(jobs[~everything], fallen, usd_per_hour)

    def _start(self, jobs: IntArray, usd_per_hour: FloatArray) -> None:
        """Starts these jobs where that is cheapest."""
        data = self.data_by_held[self.held[jobs]][:, self.cloud_of]
        best = (self.left[jobs, None] * self.pace[jobs] * usd_per_hour + data).argmin(axis=1)
        self.first[jobs] = best
        self._settle(jobs, best, data[np.arange(jobs.size), best])

    def _consider(self, jobs: IntArray, offers: IntArray, usd_per_hour: FloatArray) -> None:
        """Moves these jobs to the best of these offers if the rest costs less there, move included."""
        if jobs.size == 0 or offers.size == 0:
            return
        at = self.at[jobs]
        data = self.data_by_held[np.ix_(self.held[jobs], self.cloud_of[offers])]
        moved = data + self.checkpoint[np.ix_(at, offers)]
        pace = self.pace[np.ix_(jobs, offers)]
        costs = (self.move_hours + self.left[jobs, None] * pace) * usd_per_hour[offers] + moved
        best = costs.argmin(axis=1)
        rows = np.arange(jobs.size)
        staying = (self.busy[jobs] + self.left[jobs] * self.pace[jobs, at]) * usd_per_hour[at]
        going = (costs[rows, best] < staying) & (offers[best] != at)
        self.moves[jobs[going]] += 1
        self.busy[jobs[going]] = self.move_hours
        self._settle(jobs[going], offers[best[going]], moved[rows, best][going])

    def _settle(self, jobs: IntArray, offers: IntArray, moved_usd: FloatArray) -> None:
        self.at[jobs] = offers
        self.usd[jobs] += moved_usd
        self.moved[jobs] += moved_usd
        self.held[jobs] |= 1 << self.cloud_of[offers]

    def _run(self, jobs: IntArray, usd_per_hour: FloatArray, begin: float, end: float) -> None:
        """Runs these jobs from the later of `begin` and their start, to `end` or their own end."""
        start = np.maximum(self.runs.start[jobs], begin)
        pace, price = self.pace[jobs, self.at[jobs]], usd_per_hour[self.at[jobs]]
        needed = self.busy[jobs] + self.left[jobs] * pace
        spent = np.minimum(needed, end - start)
        done = needed <= (end - start) * (1 + _ROUNDING)
        self.usd[jobs] += spent * price
        worked = np.maximum(0.0, spent - self.busy[jobs])
        self.busy[jobs] = np.maximum(0.0, self.busy[jobs] - spent)
        self.left[jobs] = np.where(done, 0.0, self.left[jobs] - worked / pace)
        self.stop[jobs[done]] = (start + spent)[done]


def _checkpoint_costs(offers: list[AcceleratorOffer], movement: Movement) -> FloatArray:
    """Cost of a checkpoint from each offer to each other; computed once per place."""
    places = {(offer.market.cloud, offer.market.region, offer.market.zone): offer.market for offer in offers}
    markets = list(places.values())
    place_of = {place: i for i, place in enumerate(places)}
    costs = np.array([[movement.checkpoint_usd(source, target) for target in markets] for source in markets])
    at = np.array([place_of[offer.market.cloud, offer.market.region, offer.market.zone] for offer in offers])
    chosen: FloatArray = costs[np.ix_(at, at)]
    return chosen


def _dataset_costs(clouds: list[str], movement: Movement) -> FloatArray:
    """Cost of moving the dataset to each cloud, by the set of clouds (as bits) that already have it."""
    sets = [[cloud for bit, cloud in enumerate(clouds) if mask >> bit & 1] for mask in range(1 << len(clouds))]
    return np.array([[movement.dataset_usd(cloud, held) for cloud in clouds] for held in sets])
