"""The prices of accelerators over time, and where a job runs (Figure 6.5).

A job stays on one offer to the end, or follows whichever is cheapest as prices change. Everything
is per accelerator; a job's rate on an offer is its throughput there times the share of time that is
not wasted. Jobs are columns, because a strategy is evaluated from many starts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.errors import TooLittleHistory
from bidbrain.lab.gavel.movement import Movement
from pricing_data.catalog import InstanceType
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, format_time

# A job may end beyond the prices by this fraction, which is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class AcceleratorOffer:
    """A market of machines with accelerators. The price of one accelerator is its share of the
    machine's price.

    This price holds for a job that uses all accelerators of a machine, or where other jobs use the
    rest (Figure 6.4). `useful_share` is the share of paid time that evictions do not waste.
    """

    market: Market
    accelerator: str
    accelerators: int
    useful_share: float = 1.0

    def __str__(self) -> str:
        return f"{self.market} ({self.accelerators}x{self.accelerator})"


@dataclass(frozen=True, slots=True, eq=False)
class PriceBoard:
    """An accelerator-hour of offer `o` costs `usd[o, i]` from `hours[i]` after `begin` on, until
    `end`.
    """

    offers: tuple[AcceleratorOffer, ...]
    begin: int
    end: int
    hours: Floats
    usd: Floats
    paid_before: Floats = field(init=False)

    def __post_init__(self) -> None:
        spans = np.diff(self.hours)
        nothing = np.zeros((len(self.offers), 1))
        usd_of_spans = self.usd[:, :-1] * spans
        summed = np.cumsum(usd_of_spans, axis=1)
        paid = np.concatenate((nothing, summed), axis=1)
        object.__setattr__(self, "paid_before", paid)

    @property
    def span(self) -> float:
        """Hours from begin to end."""
        return (self.end - self.begin) / HOUR

    def moment(self, hours: Floats) -> Ints:
        """Index of the price in force at each time."""
        place = np.searchsorted(self.hours, hours, side="right") - 1
        return place.astype(np.int64)

    def paid(self, offers: Ints, start: Floats, stop: Floats) -> Floats:
        """Dollars for an accelerator of each offer held from start to stop."""
        return self._paid_until(offers, stop) - self._paid_until(offers, start)

    def _paid_until(self, offers: Ints, hours: Floats) -> Floats:
        at = self.moment(hours)
        before = self.paid_before[offers, at]
        since = hours - self.hours[at]
        paid_since = self.usd[offers, at] * since
        total: Floats = before + paid_since
        return total


def board_of(
    histories: Sequence[PriceSeries],
    machine: Callable[[Market], InstanceType],
    useful_share: Callable[[Market], float] | None = None,
) -> PriceBoard:
    """The board of the markets with prices over a common span; `machine` says what each market
    offers.

    Among all spans with prices from every cloud, it uses the one that maximizes (markets with
    prices throughout) x time, so that a market that began late or ended early does not shorten the
    span of all others.
    """
    begin, end = _common_span(histories)
    known = [series for series in histories if series.first <= begin and series.last >= end]
    windows = [series.window(begin, end) for series in known]
    changes = [window.times[1:][np.diff(window.prices) != 0] for window in windows]
    begins = np.array([begin], dtype=np.int64)
    moments = np.unique(np.concatenate((begins, *changes)))

    # A change at the very end would hold for no time.
    moments = moments[moments < end]
    offers = []

    for series in known:
        kind = machine(series.market)
        assert kind.accelerator is not None
        share = 1.0
        if useful_share is not None:
            share = useful_share(series.market)
        offers.append(AcceleratorOffer(series.market, kind.accelerator, kind.accelerators, share))

    usd = np.array(
        [
            window.prices[np.searchsorted(window.times, moments, side="right") - 1]
            / (NANOS_PER_DOLLAR * offer.accelerators)
            for window, offer in zip(windows, offers, strict=True)
        ]
    )

    hours = (moments - begin) / HOUR
    return PriceBoard(tuple(offers), begin, end, hours, usd)


def left_out(histories: Sequence[PriceSeries], board: PriceBoard) -> list[Market]:
    """The markets whose history does not cover the board."""
    held = {offer.market for offer in board.offers}
    return [series.market for series in histories if series.market not in held]


def _common_span(histories: Sequence[PriceSeries]) -> tuple[int, int]:
    clouds = sorted({series.market.cloud for series in histories})
    begins = np.array([series.first for series in histories], dtype=np.int64)
    ends = np.array([series.last for series in histories], dtype=np.int64)
    cloud = np.array([clouds.index(series.market.cloud) for series in histories])
    best = 0.0
    span = None

    for begin in np.unique(begins):
        covers_begin = (begins <= begin) & (ends > begin)
        covering = ends[covers_begin]
        candidates = np.unique(covering)
        begun = (begins <= begin)[:, None]
        not_ended = ends[:, None] >= candidates
        covers = begun & not_ended
        whole = np.all([covers[cloud == code].any(axis=0) for code in range(len(clouds))], axis=0)
        how_many = covers.sum(axis=0)
        spans_of_ends = (candidates - begin).astype(np.float64)
        areas = np.where(whole, how_many * spans_of_ends, 0.0)
        if areas.size and areas.max() > best:
            best = float(areas.max())
            span = (int(begin), int(candidates[areas.argmax()]))

    if span is None:
        spans_of_clouds = (
            f"{name} {format_time(int(begins[cloud == code].min()))} to "
            f"{format_time(int(ends[cloud == code].max()))}"
            for code, name in enumerate(clouds)
        )
        spans = ", ".join(spans_of_clouds)
        raise TooLittleHistory(
            f"the price histories have no time in common: {spans or 'none is given'}"
        )

    return span


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """The offers that a job may use, and whether it moves while running.

    `home` is a cloud and region (`aws/us-east-1`), `baseline` the accelerator of the fixed type;
    empty means any. `dataset_everywhere` is the paper's assumption that many jobs share the cost of
    moving the dataset.
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
    """The strategies of Figure 6.5, each with one more freedom; the last pays to move its dataset
    once per cloud.
    """
    fixed_type = PlacementRule("fixed-type", accelerator=baseline, home=home, single=True)
    best_type = PlacementRule("best-type", home=home, single=True)
    multi_gpu = PlacementRule("multi-gpu", home=home)
    by_data = PlacementRule("dynamic+data", moves=True, dataset_everywhere=False)
    return (
        fixed_type,
        best_type,
        multi_gpu,
        PlacementRule("multi-cloud"),
        PlacementRule("dynamic", moves=True),
        by_data,
    )


@dataclass(frozen=True, slots=True)
class TrainingJobs:
    """Jobs: the start of each (hours since the board begins), its work, and its rate on each offer
    (run, offer).

    Work is in steps and rates in steps per hour, or both in any other unit. A rate of 0 means that
    it may not run there.
    """

    start: Floats
    work: Floats
    rates: Floats

    @property
    def hours_per_step(self) -> Floats:
        """The inverse of the rates: infinite where a job may not run."""
        endless = np.full(self.rates.shape, np.inf)
        steps = np.divide(1.0, self.rates, out=endless, where=self.rates > 0)
        return np.asarray(steps, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """Cost and course of jobs: dollars (`moved_usd` of them for data), end times, number of moves,
    first offers.

    `usd` and `stop` are NaN where a job would have run beyond the end of the prices.
    """

    usd: Floats
    moved_usd: Floats
    stop: Floats
    moves: Ints
    first: Ints


def stay(board: PriceBoard, runs: TrainingJobs, movement: Movement) -> TrainingCost:
    """Runs each job to the end on the offer that is cheapest for it at its start.

    The comparison assumes that the price at the start will hold.
    """
    data_usd = [movement.dataset_usd(offer.market.cloud) for offer in board.offers]
    data = np.array(data_usd)
    hours = runs.work[:, None] * runs.hours_per_step
    moments = board.moment(runs.start)
    usd_of_work = hours * board.usd[:, moments].T
    first = (usd_of_work + data).argmin(axis=1)
    first_hours = hours[np.arange(first.size), first]
    stop = runs.start + first_hours
    late = stop > board.span * (1 + _ROUNDING)
    until = np.minimum(stop, board.span)
    paid = board.paid(first, runs.start, until)
    usd = paid + data[first]
    usd[late], stop[late] = np.nan, np.nan
    no_moves = np.zeros(first.size, dtype=np.int64)
    return TrainingCost(usd, data[first], stop, no_moves, first)


def follow(board: PriceBoard, runs: TrainingJobs, movement: Movement) -> TrainingCost:
    """Runs each job on the offer that is cheapest for its remaining work, reconsidered whenever a
    price changes.

    A job moves if the rest, the checkpoint, the time to move and the dataset (once per cloud) would
    cost less elsewhere than the rest costs here, if current prices held. Future prices are unknown.
    """
    return _Walk(board, runs, movement).to_the_end()


class _Walk:
    """The jobs of `follow` from one price change to the next, all at once."""

    def __init__(self, board: PriceBoard, runs: TrainingJobs, movement: Movement) -> None:
        # Offers that no job can use would only slow the loop down.
        may_run = (runs.rates > 0).any(axis=0)
        self.index = np.flatnonzero(may_run)
        self.pace = runs.hours_per_step[:, self.index]
        self.board = board
        self.runs = runs
        self.move_hours = movement.hours
        offers = [board.offers[i] for i in self.index]
        clouds = sorted({offer.market.cloud for offer in offers})
        cloud_numbers = [clouds.index(offer.market.cloud) for offer in offers]
        self.cloud_of = np.array(cloud_numbers)
        self.checkpoint = _checkpoint_costs(offers, movement)

        # The cost of moving the dataset to each cloud, by the set of clouds (as bits) that already
        # have it.
        sets = [
            [cloud for bit, cloud in enumerate(clouds) if mask >> bit & 1]
            for mask in range(1 << len(clouds))
        ]
        data_usd = [[movement.dataset_usd(cloud, held) for cloud in clouds] for held in sets]
        self.data_by_held = np.array(data_usd)
        count = runs.start.size
        self.left = runs.work.copy()
        self.busy = np.zeros(count)
        self.at = np.full(count, -1, dtype=np.int64)
        self.held = np.zeros(count, dtype=np.int64)
        self.usd = np.zeros(count)
        self.moved = np.zeros(count)
        self.moves = np.zeros(count, dtype=np.int64)
        self.first = np.zeros(count, dtype=np.int64)
        self.stop = np.full(count, np.nan)

    def to_the_end(self) -> TrainingCost:
        edges = np.append(self.board.hours, self.board.span)
        prices = self.board.usd[self.index]
        steps = np.diff(prices, axis=1, prepend=prices[:, :1])
        for moment in range(self.board.hours.size):
            has_begun = self.runs.start < edges[moment + 1]
            runs_on = np.isnan(self.stop)
            here = np.flatnonzero(has_begun & runs_on)
            if here.size:
                usd_now = prices[:, moment]
                steps_now = steps[:, moment]
                self._look(here, usd_now, steps_now)

                # They run from the later of this moment and their start, to the next or their end.
                end = edges[moment + 1]
                start = np.maximum(self.runs.start[here], edges[moment])
                pace = self.pace[here, self.at[here]]
                needed = self.busy[here] + self.left[here] * pace
                spent = np.minimum(needed, end - start)
                done = needed <= (end - start) * (1 + _ROUNDING)
                self.usd[here] += spent * usd_now[self.at[here]]
                worked = np.maximum(0.0, spent - self.busy[here])
                self.busy[here] = np.maximum(0.0, self.busy[here] - spent)
                left = self.left[here] - worked / pace
                self.left[here] = np.where(done, 0.0, left)
                self.stop[here[done]] = (start + spent)[done]

        is_running = np.isnan(self.stop)
        usd = np.where(is_running, np.nan, self.usd)
        first_offers = self.index[self.first]
        return TrainingCost(usd, self.moved, self.stop, self.moves, first_offers)

    def _look(self, jobs: Ints, usd_per_hour: Floats, steps: Floats) -> None:
        """Compares all offers for jobs that must choose, and only the offers that became cheaper
        for all others.

        A move that was not worthwhile is even less so with less work left, until a price changes:
        the current one upward, or the other one downward. No way over a third place is cheaper,
        because egress is paid by the place that data leaves.
        """
        fresh = self.at[jobs] < 0
        everything = fresh | (steps[self.at[jobs]] > 0)
        new = jobs[fresh]
        data = self.data_by_held[self.held[new]][:, self.cloud_of]
        hours_left = self.left[new, None] * self.pace[new]
        best = (hours_left * usd_per_hour + data).argmin(axis=1)
        self.first[new] = best
        data_of_best = data[np.arange(new.size), best]
        self._settle(new, best, data_of_best)
        fallen = np.flatnonzero(steps < 0)
        waiting = jobs[everything & ~fresh]
        self._consider(waiting, np.arange(usd_per_hour.size), usd_per_hour)
        self._consider(jobs[~everything], fallen, usd_per_hour)

    def _consider(self, jobs: Ints, offers: Ints, usd_per_hour: Floats) -> None:
        """Moves these jobs to the best of these offers if the rest costs less there, move
        included."""
        if jobs.size == 0 or offers.size == 0:
            return

        at = self.at[jobs]
        cells = np.ix_(self.held[jobs], self.cloud_of[offers])
        data = self.data_by_held[cells]
        moved = data + self.checkpoint[np.ix_(at, offers)]
        pace = self.pace[np.ix_(jobs, offers)]
        working = self.left[jobs, None] * pace
        usd_there = (self.move_hours + working) * usd_per_hour[offers]
        costs = usd_there + moved
        best = costs.argmin(axis=1)
        rows = np.arange(jobs.size)
        work_left = self.left[jobs] * self.pace[jobs, at]
        hours_there = self.busy[jobs] + work_left
        staying = hours_there * usd_per_hour[at]
        is_cheaper = costs[rows, best] < staying
        going = is_cheaper & (offers[best] != at)
        self.moves[jobs[going]] += 1
        self.busy[jobs[going]] = self.move_hours
        next_offers = offers[best[going]]
        moved_usd = moved[rows, best][going]
        self._settle(jobs[going], next_offers, moved_usd)

    def _settle(self, jobs: Ints, offers: Ints, moved_usd: Floats) -> None:
        self.at[jobs] = offers
        self.usd[jobs] += moved_usd
        self.moved[jobs] += moved_usd
        self.held[jobs] |= 1 << self.cloud_of[offers]


def _checkpoint_costs(offers: list[AcceleratorOffer], movement: Movement) -> Floats:
    """Cost of a checkpoint from each offer to each other; computed once per place."""
    places = {
        (offer.market.cloud, offer.market.region, offer.market.zone): offer.market
        for offer in offers
    }
    markets = list(places.values())
    place_of = {place: i for i, place in enumerate(places)}
    costs_between = [
        [movement.checkpoint_usd(source, target) for target in markets] for source in markets
    ]
    costs = np.array(costs_between)
    at = np.array(
        [place_of[offer.market.cloud, offer.market.region, offer.market.zone] for offer in offers]
    )
    chosen: Floats = costs[np.ix_(at, at)]

    return chosen
