"""The synthetic cloud `local`: a spot market of the bidding era, generated from a seed.

Prices stay near a floor far below on-demand, move in small steps, jump and fall back, and sometimes
spike above the on-demand price, in part in both zones of a type at once.
docs/decisions/0002-synthetic-sample.md says what the parameters were fitted to, and how well.

Every draw is an inverse transform of `Generator.random()`: numpy guarantees the bits of PCG64, but
not those of its distributions, and the shipped file must be reproducible from its seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pricing_data.catalog import Catalog
from pricing_data.fetched_rows import PriceBatch
from pricing_data.market import Market
from pricing_data.samples import bundled_catalog
from pricing_data.series import Ints
from pricing_data.units import DAY, HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND, parse_time

Floats = NDArray[np.float64]

SEED = 1
START = parse_time("2026-01-01T00:00:00Z")
PRICE_STEP = NANOS_PER_DOLLAR // 10_000
# Times take most of the file, and finer ones compress worse.
TIME_STEP = 30 * SECOND
# As a multiple of on-demand: the highest bid that was accepted.
HIGHEST = 10.0


@dataclass(frozen=True, slots=True)
class Temper:
    """How volatile a market is. Sizes are natural logarithms of price ratios, durations of spikes
    are minutes.

    The price is set `looks_per_day` times, often to the same value: it is on a ladder of bids,
    `rung` apart. `push` is the mean size of a lasting step up or down, `wobble` of one that is gone
    at the next look. `jumps_per_day` times the price jumps up by `jump` on average, then falls back
    over hours. `spikes_per_day` times it rises above on-demand, by `spike_rise` on average and for
    a median of `spike_minutes`. `spike_spread` 0 makes all spikes equally long, `evenness` 1 makes
    them equally spaced.
    """

    looks_per_day: float = 0.0
    push: float = 0.0
    wobble: float = 0.0
    rung: float = 0.006
    jumps_per_day: float = 0.0
    jump: float = 0.0
    spikes_per_day: float = 0.0
    spike_rise: float = 1.35
    spike_minutes: float = 18.0
    spike_spread: float = 1.5
    evenness: float = 0.0


FROZEN = Temper()
SLEEPY = Temper(
    looks_per_day=80, push=0.0005, wobble=0.001, rung=0.004, jumps_per_day=0.2, jump=0.02
)
QUIET = Temper(
    looks_per_day=190, push=0.001, wobble=0.0013, rung=0.002, jumps_per_day=0.7, jump=0.05
)
LIVELY = Temper(
    looks_per_day=180, push=0.007, wobble=0.0015, rung=0.006, jumps_per_day=5.0, jump=0.18
)
NERVOUS = replace(LIVELY, looks_per_day=260, spikes_per_day=0.25)
WILD = Temper(
    looks_per_day=170, push=0.03, wobble=0.02, jumps_per_day=8.0, jump=0.35, spikes_per_day=2.5
)
# No real market was like this: it evicts several times per hour, so that a demonstration of an hour
# shows evictions.
STORMY = Temper(
    looks_per_day=24, push=0.01, wobble=0.01, jumps_per_day=2.0, jump=0.1,
    spikes_per_day=110, spike_rise=0.2, spike_minutes=0.5, spike_spread=0.4, evenness=0.85,
)  # fmt: skip
TEMPERS = {
    "frozen": FROZEN,
    "sleepy": SLEEPY,
    "quiet": QUIET,
    "lively": LIVELY,
    "nervous": NERVOUS,
    "wild": WILD,
    "stormy": STORMY,
}

_ZONES = (
    "sim-east/sim-east-a",
    "sim-east/sim-east-b",
    "sim-west/sim-west-a",
    "sim-west/sim-west-b",
)
# For each type: the floor as a share of on-demand, and the temper in each zone.
_PLAN = {
    "c4.xlarge": (0.12, (QUIET, SLEEPY, QUIET, QUIET)),
    "c4.2xlarge": (0.13, (STORMY, QUIET, STORMY, LIVELY)),
    "g2.2xlarge": (0.16, (WILD, NERVOUS, LIVELY, SLEEPY)),
    "g2.8xlarge": (0.30, (LIVELY, LIVELY, WILD, NERVOUS)),
    "m3.medium": (0.13, (QUIET, SLEEPY, QUIET, FROZEN)),
    "m4.4xlarge": (0.12, (LIVELY, NERVOUS, QUIET, LIVELY)),
    "p2.xlarge": (0.14, (FROZEN, SLEEPY, QUIET, NERVOUS)),
    "r3.2xlarge": (0.10, (NERVOUS, NERVOUS, LIVELY, SLEEPY)),
}


class Listing(NamedTuple):
    """One market of the sample: its on-demand price and its floor in nano-dollars per hour, and its
    temper.
    """

    market: Market
    on_demand: int
    floor: float
    temper: Temper

    def is_sibling(self, other: Listing) -> bool:
        """Whether both are the same type in different zones of a region."""
        mine, theirs = self.market, other.market
        return (mine.region, mine.instance_type) == (
            theirs.region,
            theirs.instance_type,
        ) and mine.zone != theirs.zone


@dataclass(frozen=True, slots=True)
class SampleParameters:
    """The parameters of a sample, apart from the random generator.

    `calming` is the time in which a deviation from the floor shrinks to 37%. `echo` is the
    probability that a spike spreads to another zone of its type, if that zone has spikes at all; it
    arrives `echo_delay` later on average.
    """

    listings: tuple[Listing, ...]
    start: int = START
    days: int = 30
    calming: int = 3 * HOUR
    echo: float = 0.15
    echo_delay: int = 3 * MINUTE

    @property
    def end(self) -> int:
        """When the sample ends."""
        return self.start + self.days * DAY


class Spike(NamedTuple):
    """From `start` until `end` the price is `height` times on-demand."""

    start: int
    end: int
    height: float


def sample_parameters(catalog: Catalog) -> SampleParameters:
    """The parameters of the shipped sample; the catalog gives the on-demand prices."""
    listings = []
    for instance_type, (floor, tempers) in _PLAN.items():
        for zone, temper in zip(_ZONES, tempers, strict=True):
            market = Market.parse(f"local/{zone}/{instance_type}")
            on_demand = catalog.on_demand(market, START).price
            listings.append(Listing(market, on_demand, floor * on_demand, temper))
    return SampleParameters(tuple(sorted(listings, key=lambda listing: str(listing.market))))


def stormy_markets() -> frozenset[Market]:
    """The markets for demonstrations, which are not fitted to real markets."""
    parameters = sample_parameters(bundled_catalog())
    return frozenset(listing.market for listing in parameters.listings if listing.temper == STORMY)


def shipped_sample() -> PriceBatch:
    """Generates the events of the shipped file."""
    return generate(
        sample_parameters(bundled_catalog()), np.random.Generator(np.random.PCG64(SEED))
    )


def generate(parameters: SampleParameters, rng: np.random.Generator) -> PriceBatch:
    """The sample's events, market by market in the order of the listings, each sorted by time."""
    spikes = _all_spikes(parameters, rng)
    events = [_events(listing, spikes[listing], parameters, rng) for listing in parameters.listings]
    return PriceBatch(
        tuple(listing.market for listing in parameters.listings),
        np.repeat(np.arange(len(events), dtype=np.int64), [times.size for times, _ in events]),
        np.concatenate([times for times, _ in events]),
        np.concatenate([prices for _, prices in events]),
    )


def _all_spikes(
    parameters: SampleParameters, rng: np.random.Generator
) -> dict[Listing, list[Spike]]:
    """Each market's own spikes, and echoes of spikes in other zones."""
    own = {listing: _spikes(listing.temper, parameters, rng) for listing in parameters.listings}
    total = {listing: list(spikes) for listing, spikes in own.items()}
    for listing, echoes in total.items():
        for source in (
            other for other in own if listing.is_sibling(other) and listing.temper.spikes_per_day
        ):
            for spike in own[source]:
                delay = int(_on_grid(parameters.echo_delay * _exponential(rng, 1))[0])
                if rng.random() < parameters.echo:
                    echoes.append(Spike(spike.start + delay, spike.end + delay, spike.height))
    return total


def _spikes(temper: Temper, parameters: SampleParameters, rng: np.random.Generator) -> list[Spike]:
    if temper.spikes_per_day == 0:
        return []
    # Six standard deviations more than expected: the surplus is after the end and is cut off.
    expected = temper.spikes_per_day * parameters.days
    count = int(expected + 6 * expected**0.5) + 6
    gaps = (temper.evenness + (1 - temper.evenness) * _exponential(rng, count)) * (
        DAY / temper.spikes_per_day
    )
    starts = parameters.start + _on_grid(np.cumsum(gaps))
    # Log-logistic, because most observed spikes last minutes, and some half a day; hardly any
    # lasted under two minutes.
    odds = rng.random(count)
    minutes = 2 + np.minimum((odds / (1 - odds)) ** temper.spike_spread * temper.spike_minutes, 720)
    ends = starts + _on_grid(minutes * MINUTE)
    heights = np.minimum(1.02 * np.exp(temper.spike_rise * _exponential(rng, count)), HIGHEST)
    spikes = map(Spike, starts.tolist(), ends.tolist(), heights.tolist())
    return [spike for spike in spikes if spike.start < parameters.end]


def _events(
    listing: Listing,
    spikes: Sequence[Spike],
    parameters: SampleParameters,
    rng: np.random.Generator,
) -> tuple[Ints, Ints]:
    """A market's price changes, with at least one event per day, as clouds report them."""
    temper = listing.temper
    daily = _daily(parameters, rng)
    edges = np.array(
        [edge for spike in spikes for edge in (spike.start, spike.end)], dtype=np.int64
    )
    times = np.unique(np.concatenate((_looks(temper, parameters, rng), edges, daily)))
    times = times[times <= parameters.end]
    height = _deviation(times, temper, parameters, rng)
    for spike in spikes:
        during = (times >= spike.start) & (times < spike.end)
        height[during] = np.maximum(
            height[during], np.log(spike.height * listing.on_demand / listing.floor)
        )
    height += temper.wobble * _laplace(rng, times.size)
    prices = _prices(height, listing)
    moved = np.diff(prices, prepend=0) != 0
    reported = moved | np.isin(times, daily)
    return times[reported], prices[reported]


def _daily(parameters: SampleParameters, rng: np.random.Generator) -> Ints:
    """The start, the end, and one time of each day."""
    time_of_day = _on_grid(rng.random(1) * DAY)
    days = np.arange(parameters.days, dtype=np.int64) * DAY
    return np.concatenate(
        ([parameters.start], parameters.start + days + time_of_day, [parameters.end])
    )


def _looks(temper: Temper, parameters: SampleParameters, rng: np.random.Generator) -> Ints:
    """When the price is set: in bursts, never twice within a minute."""
    if temper.looks_per_day == 0:
        return np.empty(0, dtype=np.int64)
    expected = temper.looks_per_day * parameters.days
    count = int(expected + 12 * expected**0.5) + 12
    mean = DAY / temper.looks_per_day - MINUTE
    in_burst = rng.random(count) < 0.75
    gaps = MINUTE + mean * np.where(in_burst, 0.4, 2.8) * _exponential(rng, count)
    return parameters.start + _on_grid(np.cumsum(gaps))


def _deviation(
    times: Ints, temper: Temper, parameters: SampleParameters, rng: np.random.Generator
) -> Floats:
    """How far the price is above its floor, as a logarithm: steps and jumps, with decay between
    them.
    """
    gaps = np.diff(times, prepend=times[:1])
    jumps = rng.random(times.size) < temper.jumps_per_day * gaps / DAY
    steps = temper.push * _laplace(rng, times.size) + jumps * temper.jump * _exponential(
        rng, times.size
    )
    kept = np.exp(-gaps / parameters.calming)
    path = np.empty(times.size)
    height = 0.0
    for i, (share, step) in enumerate(zip(kept.tolist(), steps.tolist(), strict=True)):
        height = max(height * share + step, 0.0)
        path[i] = height
    return path


def _prices(height: Floats, listing: Listing) -> Ints:
    """Prices on the rungs above the floor, rounded to the price list's step."""
    rung = listing.temper.rung
    prices = listing.floor * np.exp(rung * np.rint(np.maximum(height, 0.0) / rung))
    capped = np.minimum(prices, HIGHEST * listing.on_demand)
    return np.rint(capped / PRICE_STEP).astype(np.int64) * PRICE_STEP


def _on_grid(spans: Floats) -> Ints:
    return np.rint(spans / TIME_STEP).astype(np.int64) * TIME_STEP


def _exponential(rng: np.random.Generator, count: int) -> Floats:
    """Exponential draws of mean 1."""
    return -np.log1p(-rng.random(count))


def _laplace(rng: np.random.Generator, count: int) -> Floats:
    """Laplace draws whose size has mean 1."""
    centered = rng.random(count) - 0.5
    sizes: Floats = -np.log1p(-2 * np.abs(centered))
    return np.copysign(sizes, centered)
