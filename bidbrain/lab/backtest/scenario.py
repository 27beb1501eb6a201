"""`Scenario`: everything that a backtest depends on, with its eviction model.

A model gives the replay of the test span, which only the engine sees, and the hazards that the
training span shows. In every model a price above the bid evicts as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil

import numpy as np

from bidbrain.billing import BillingRule
from bidbrain.errors import BidBrainError
from bidbrain.eviction.hazard import Evidence, Hazard, hazard_of, in_force
from bidbrain.eviction.survival import AGELESS, AgeProfile, Exposure, exposure_of_lives
from bidbrain.replay.market import Capacity, DrawnLives, MarketReplay
from bidbrain.strategies.base import Checkpointing, Offer, Overheads, Rent
from pricing_data.availability import AvailabilityTrace, Lifetime
from pricing_data.market import Market
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import HOUR, SECOND, Span, format_time

LONGEST_RATIO = 3.0
"""How long a job is replayed, as a multiple of its hours."""

# Age bands in hours with their own risk; each is shrunk towards the mean rate with the weight of
# one eviction.
_AGE_BANDS = (0.0, 0.25, 1.0, 3.0, 12.0)
_AGE_WEIGHT = 1.0
# Most starts at which lives are read off a trace; more would add no information.
_STARTS = 400


class BadEvictions(BidBrainError):
    """An eviction model that cannot be replayed."""


@dataclass(frozen=True, slots=True)
class ByAvailability:
    """Markets have the capacity that traces show: n of N machines up is the share n / N of
    `machines`.

    `machines` is a market's capacity when its trace is fully up; None means as many as the job
    could use. Traces are played from the start of training. A trace that is too short for that is
    cut in proportion to the two spans, and each part is repeated within its own span, so that the
    test never replays what was learned from.
    """

    traces: Mapping[Market, AvailabilityTrace]
    machines: int | None = None

    def __post_init__(self) -> None:
        for market, trace in self.traces.items():
            if len(trace) < 2:
                raise BadEvictions(
                    f"availability of {market}: trace {trace.name} has one tick; it needs at least "
                    "two"
                )

    def replay(
        self, histories: Iterable[PriceSeries], room: Mapping[Market, int], train: Span, test: Span
    ) -> MarketReplay:
        """Replays prices, and the capacity of each market that has a trace.

        `room` is the most machines of each market that the job could use.
        """
        known = list(histories)
        capacities = {}
        for market in (series.market for series in known if series.market in self.traces):
            trace = self.traces[market]
            machines = self.machines or room[market]
            _, played, begin = _divided(trace, train, test)
            gap = trace.gap_seconds * SECOND
            ticks_there = (test.end - begin) // gap
            ticks = np.resize(played, ticks_there + 1)
            there = ticks * machines // max(trace.wanted, 1)
            kept = np.flatnonzero(np.diff(there, prepend=-1))
            times_there = begin + kept * gap
            capacities[market] = Capacity(times_there, there[kept])

        return MarketReplay(known, capacities)

    def learned(
        self, markets: Iterable[Market], train: Span, test: Span
    ) -> dict[Market, Hazard | None]:
        """The hazards that machines show which are bought at any time of the training span."""
        seen = {}
        for market, trace in self.traces.items():
            ticks, _, _ = _divided(trace, train, test)
            seen[market] = _watched(market, trace, ticks)

        evidence = tuple(Evidence(market, exposure) for market, (exposure, _) in seen.items())
        ages_of = {market: ages for market, (_, ages) in seen.items()}
        return {
            market: hazard_of(market, evidence, (), ages_of.get(market, AGELESS))
            for market in markets
        }


PRICE_ALONE = ByAvailability({})
"""Only a price above the bid evicts a machine: AWS until 2017. Strategies learn that from prices
directly."""


class ByHazard(DrawnLives):
    """Machines live as long as drawn from a hazard; all that start together in one market share the
    draw.
    """

    def replay(
        self,
        histories: Iterable[PriceSeries],
        room: Mapping[Market, int],  # noqa: ARG002 - as in `ByAvailability`
        train: Span,  # noqa: ARG002 - as in `ByAvailability`
        test: Span,  # noqa: ARG002 - as in `ByAvailability`
    ) -> MarketReplay:
        """Replays prices, and drawn lives."""
        return MarketReplay(histories, lives=self)

    def learned(
        self,
        markets: Iterable[Market],
        train: Span,
        test: Span,  # noqa: ARG002 - as in `ByAvailability`
    ) -> dict[Market, Hazard | None]:
        """The hazards that one machine per market shows which runs throughout training and is
        replaced after each eviction."""
        seen: dict[Market, list[Lifetime]] = {}
        for market in self.mortality:
            seen[market], start = [], train.start
            while start < train.end:
                taken = self.evicted_at(market, start)
                end = train.end if taken is None else min(taken, train.end)
                seconds = (end - start) / SECOND
                life = Lifetime(
                    market.cloud, market.zone, market.instance_type, start, seconds, end == taken
                )
                seen[market].append(life)
                start = end

        ages = AgeProfile.of(chain.from_iterable(seen.values()), _AGE_BANDS, _AGE_WEIGHT)
        evidence = tuple(
            Evidence(market, exposure_of_lives(known, ages)) for market, known in seen.items()
        )
        return {
            market: hazard_of(market, evidence, (), ages if market in seen else AGELESS)
            for market in markets
        }


EvictionModel = ByAvailability | ByHazard
"""A cause of evictions."""


def deal(
    markets: Sequence[Market], traces: Sequence[AvailabilityTrace]
) -> dict[Market, AvailabilityTrace]:
    """Assigns traces of other places in turn; neighboring markets, which could replace each other,
    get different ones."""
    return {market: traces[i % len(traces)] for i, market in enumerate(sorted(markets))}


def _divided(trace: AvailabilityTrace, train: Span, test: Span) -> tuple[Ints, Ints, int]:
    """The ticks of training, those of testing, and the time of the first of these."""
    gap = trace.gap_seconds * SECOND
    if len(trace) * gap >= test.end - train.start:
        before = (test.start - train.start) // gap
        train_time = train.end - train.start
        later = trace.up[before:]
        from_ = train.start + before * gap
        return (trace.up[: train_time // gap], later, from_)

    whole_time = train.end - train.start + test.end - test.start
    share = (train.end - train.start) / whole_time
    share_of_ticks = len(trace) * share
    least = max(round(share_of_ticks), 1)
    cut = min(least, len(trace) - 1)
    return trace.up[:cut], trace.up[cut:], test.start


def _watched(market: Market, trace: AvailabilityTrace, up: Ints) -> tuple[Exposure, AgeProfile]:
    """Lives that begin at any tick at which a machine is up, and end where it goes down.

    A purchase at a random moment mostly falls into a long spell, so these machines live longer than
    an average spell, and their risk is highest when they are young. All lives of a spell end in the
    same eviction, and the machines of one trace mostly go together, so the lives count for no more
    than the spells of one machine.
    """
    lives = []
    most_up = up.max(initial=0)
    for machine in range(1, int(most_up) + 1):
        # Machines bought at up to `_STARTS` ticks: how many ticks each lives, and whether an
        # eviction ends it.
        starts = np.flatnonzero(up >= machine)
        downs = np.flatnonzero(up < machine)
        least_apart = -(-starts.size // _STARTS)
        for start in starts[:: max(1, least_apart)].tolist():
            at = int(np.searchsorted(downs, start))
            ended = at < downs.size
            ticks_up = (int(downs[at]) if ended else up.size) - start
            seconds = ticks_up * trace.gap_seconds
            life = Lifetime(market.cloud, market.zone, market.instance_type, 0, seconds, ended)
            lives.append(life)

    whole = exposure_of_lives(lives)
    part = AvailabilityTrace(trace.name, trace.gap_seconds, up)
    most_machines = int(up.max(initial=0))
    drops = part.preemptions / max(most_machines, 1)
    if not whole.evictions:
        return Exposure(part.preemptions, part.machine_hours), AGELESS

    share = drops / whole.evictions
    observed = whole.scaled(share)
    profile = AgeProfile.of(lives, _AGE_BANDS, _AGE_WEIGHT / share)
    return observed, profile


class BadScenario(BidBrainError):
    """A scenario that cannot be replayed; the message names the part and the reason."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Markets with their histories, the training span to learn from, the test span to replay, and
    the jobs.

    A job of h hours is what the baseline does on demand in that time. Each job runs in one zone;
    `starts` jobs begin at random moments per zone and length. With `zones_together` a job may use
    all zones of the region, as if they were a single zone. Each market has at most `depth`
    machines. `reliable` machines are held from start to end by strategies that recover through
    them. Work is nu (vCPUs by default) times time. A `deadline` is a multiple of a job's hours;
    what is not done by then is unfinished, and without one, what takes `LONGEST_RATIO` times as
    long.
    """

    histories: tuple[PriceSeries, ...]
    offers: tuple[Offer, ...]
    train: Span
    test: Span
    baseline: Rent
    reliable: Rent | None
    hours: tuple[float, ...]
    most_nu: float
    billing: BillingRule
    overheads: Overheads
    checkpoints: Checkpointing
    starts: int
    seed: int
    evictions: EvictionModel = PRICE_ALONE
    zones_together: bool = False
    depth: int | None = None
    deadline: float | None = None

    def __post_init__(self) -> None:
        if not self.offers:
            raise BadScenario("markets: no price history has a requested type")

        if self.train.end > self.test.start:
            raise BadScenario(
                f"train ends at {format_time(self.train.end)}, after test begins at "
                f"{format_time(self.test.start)}:"
                " the two spans must not overlap"
            )

        for name, span in (("train", self.train), ("test", self.test)):
            if span.end <= span.start:
                raise BadScenario(
                    f"{name}: ends at {format_time(span.end)}, which is not after its start"
                )

        if self.starts <= 0:
            raise BadScenario(f"starts: {self.starts} is not above 0")
        if self.baseline.machines <= 0:
            raise BadScenario(
                f"job: a baseline of {self.baseline.machines} machines; it needs at least 1"
            )

        for hours in self.hours:
            self._require_possible(hours)
        for series in self.histories:
            # A history begins with the first row of a download, up to some hours after the span's
            # nominal start.
            begins_after = series.first > self.train.end
            begins_late = begins_after or series.first > self.test.start
            if begins_late or series.last < self.test.end - HOUR:
                known, test = (
                    f"from {format_time(begin)} to {format_time(end)}"
                    for begin, end in (
                        (series.first, series.last),
                        (self.test.start, self.test.end),
                    )
                )
                raise BadScenario(
                    f"prices: {series.market} has prices {known}, which does not cover the test "
                    f"{test}"
                )

    def latest_start(self, hours: float) -> int:
        return self.test.end - int(LONGEST_RATIO * hours * HOUR)

    def work(self, hours: float) -> float:
        """The work of a job: what the baseline does in its hours."""
        return self.baseline.machines * self.baseline.offer.nu * hours * HOUR

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones that jobs run in; with `zones_together`, the regions."""
        places = {self._place(offer.market) for offer in self.offers}
        return tuple(sorted(places))

    def offers_in(self, zone: str) -> tuple[Offer, ...]:
        return tuple(offer for offer in self.offers if self._place(offer.market) == zone)

    def histories_in(self, zone: str) -> dict[Market, PriceSeries]:
        return {
            series.market: series for series in self.histories if self._place(series.market) == zone
        }

    def replay_in(self, zone: str) -> MarketReplay:
        """The market of a zone during the test; only the engine may ask it about the future."""
        room = {}
        for offer in self.offers_in(zone):
            wanted = self.most_nu / offer.nu
            room[offer.market] = ceil(wanted)
        replay = self.evictions.replay(
            self.histories_in(zone).values(), room, self.train, self.test
        )
        if self.depth is None:
            return replay
        return replay.at_most(self.depth)

    def hazards(self, markets: Iterable[Market]) -> dict[Market, Hazard | None]:
        """Capacity-eviction hazard of each market, from the training span; None where only the
        price evicts.
        """
        if self.evictions == PRICE_ALONE:
            return dict.fromkeys(markets)
        learned = self.evictions.learned(markets, self.train, self.test)
        return {
            market: in_force(market, hazard, self.test.start) for market, hazard in learned.items()
        }

    def learned(self, market: Market) -> PriceSeries:
        """The part of a history that strategies may learn from."""
        series = next(series for series in self.histories if series.market == market)
        since = max(series.first, self.train.start)
        until = min(series.last, self.train.end)
        return series.window(since, until)

    def _place(self, market: Market) -> str:
        return market.region if self.zones_together else market.zone

    def _require_possible(self, hours: float) -> None:
        if hours <= 0 or self.latest_start(hours) <= self.test.start:
            raise BadScenario(
                f"job: {hours:g} hours need a test of three times that, to be sure to finish; it "
                f"lasts from {format_time(self.test.start)} to {format_time(self.test.end)}"
            )

        soonest = 1 + self.overheads.startup / (hours * HOUR)
        if self.deadline is not None and not soonest <= self.deadline <= LONGEST_RATIO:
            raise BadScenario(
                f"job: a deadline of {self.deadline:g} times {hours:g} hours: on demand, jobs take "
                f"{soonest:.4g} times"
                f" their hours, and a replay lasts {LONGEST_RATIO:g} times as long; write a number "
                "in between"
            )
