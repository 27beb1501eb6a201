"""The interface of an acquisition strategy: inputs once, then situation in, decision out.

A strategy is a pure function: everything it may know is in its inputs and in the situation, and the
decision's reason contains the figures behind it. The inputs are the offers of one place, what
history says about them, the job's costs, and how it recovers from an eviction: through an elastic
parameter server, or from checkpoints. A backtest fills them from its training span, live planning
from the history up to now.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Protocol

from bidbrain.billing import BillingRule, highest_price
from bidbrain.errors import BidBrainError
from bidbrain.eviction.estimate import Estimate
from bidbrain.eviction.hazard import Hazard
from bidbrain.outbid.bid import HostMarket
from bidbrain.strategies.spells import SpotSpell
from pricing_data.known_clouds import markets_of
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, bid_usd

REQUEST_VCPUS = 128.0
"""The size of one request of the published strategies."""

LOOK_AGAIN = 2 * MINUTE
"""How soon to decide again where markets refused, or did not have all that was wanted."""


@dataclass(frozen=True, slots=True)
class Overheads:
    """Time in microseconds without work: start-up of new machines, and pauses of the whole job.

    `eviction` is the papers' lambda (pause after an eviction), `resize` their sigma (pause after a
    join or a return).
    """

    startup: int
    eviction: int
    resize: int


class ImpossibleOffer(BidBrainError, ValueError):
    """An offer at a price that its market cannot have."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A machine type that can be rented in a market: work per hour (nu, vCPUs by default) and
    on-demand price.

    The price of a reservation is the user's, and may be 0.
    """

    market: Market
    nu: float
    on_demand: int
    # Every decision looks up prices by offer, many times; hashing a market's five parts each time
    # would show.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.on_demand < (0 if self.market.reservation else 1):
            raise ImpossibleOffer(
                f"{self.market} at {self.on_demand} nano-dollars: only a reservation can cost "
                "nothing"
            )
        value = hash((self.market, self.nu, self.on_demand))
        object.__setattr__(self, "_hash", value)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> "tuple[type[Offer], tuple[Market, float, int]]":
        # Another process hashes text differently.
        return Offer, (self.market, self.nu, self.on_demand)


@dataclass(frozen=True, slots=True)
class Rent:
    """Machines of one offer, bought together. Without a bid they are on-demand machines, which are
    never evicted.
    """

    offer: Offer
    machines: int
    bid: int | None

    @property
    def spot(self) -> bool:
        return self.bid is not None

    @property
    def highest_price(self) -> int:
        """The most that an hour of one of these machines can cost, in nano-dollars."""
        return highest_price(self.offer.market.cloud, self.bid, self.offer.on_demand)


def described(rent: Rent) -> str:
    """A purchase as a decision's reason names it: `8 x c4.xlarge, bid $0.0299/h`."""
    return f"{rent.machines} x {rent.offer.market.instance_type}, {terms_of(rent)}"


def terms_of(rent: Rent) -> str:
    """At which price machines are bought: `bid $0.0299/h`."""
    if rent.offer.market.reservation:
        return f"reservation {rent.offer.market.reservation} at {bid_usd(rent.offer.on_demand)}/h"
    if rent.bid is None:
        return "on demand"
    if not markets_of(rent.offer.market.cloud).takes_bids:
        return "at the spot price"
    return f"bid {bid_usd(rent.bid)}/h"


@dataclass(frozen=True, slots=True)
class Return:
    """The return of an allocation, now or at a later moment (the end of its paid hour; its machines
    work until then).

    `replaced` says that the allocation stays if the machines bought by the same decision are not
    all granted.
    """

    allocation: int
    at: int | None = None
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class Holding:
    """An allocation in use: bought at `start`, working from `ready`, to be returned at
    `leaves_at`."""

    allocation: int
    rent: Rent
    start: int
    ready: int
    leaves_at: int | None = None

    @property
    def nu(self) -> float:
        """Work per hour of all its machines."""
        return self.rent.machines * self.rent.offer.nu

    def hour_end(self, now: int) -> int:
        """The end of the hour of its life that is under way."""
        hours = (now - self.start) // HOUR
        return self.start + (hours + 1) * HOUR


def gang_works(holdings: Iterable[Holding], nodes: int) -> bool:
    """Whether a gang that needs this many nodes can work on these machines. 0 nodes: not a gang."""
    return sum(holding.rent.machines for holding in holdings) >= nodes


RECORD_WINDOW = 2 * HOUR
"""How far back `SpotRecord` counts paid and lasting time."""


@dataclass(frozen=True, slots=True)
class SpotRecord:
    """A job's evictions from spot machines (`taken`) and its moves to on-demand machines
    (`fallbacks`), as moments.

    `paid` is the time on spot machines within the window and `lasting` the part of it that no
    eviction undoes, both in microseconds. `resumes` says that the job continues from a checkpoint
    when it is moved.
    """

    taken: tuple[int, ...] = ()
    fallbacks: tuple[int, ...] = ()
    paid: int = 0
    lasting: int = 0
    resumes: bool = True


UNTRIED = SpotRecord()
"""The record of a job that has not run yet."""


@dataclass(frozen=True, slots=True)
class Look:
    """An observation, from a try or from a machine's life: whether a market had the machines that
    the job wants.
    """

    at: int
    market: Market
    up: bool


@dataclass(frozen=True, slots=True)
class SavedState:
    """Where a job's checkpoint is, in the market where it last ran, and how many GB it has."""

    market: Market
    gigabytes: float


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a strategy knows when it decides. `price` answers for this moment only.

    `most_nu` is the most work per hour that may be rented in total; `baseline` is what the job
    would rent on demand. `usd_left` is what the budget still allows to commit, and `usd_reserved`
    what it keeps back for the leases of what is held: both together may still be spent. `record` is
    what the job's spot machines were worth so far. `unsaved` is the work that an eviction now would
    undo, and `spell` how long spot capacity has been there, or gone; None if that is unknown.
    `deadline` is the moment by which the work has to be done. `looks` are what the job has seen of
    its markets, in order, and `saved` is where its checkpoint is, if it has one. `refused` has the
    machines of the last order that a market refused as a whole, if it has granted none since, by
    whether they were spot machines. `leaving` counts machines, in the same way, that are warned or
    being returned: they are not among the holdings, but count against quotas until they are gone.
    `highest_bid` is the most that may be bid for an offer; None without such a limit.
    """

    now: int
    offers: tuple[Offer, ...]
    price: Callable[[Offer], int]
    holdings: tuple[Holding, ...]
    baseline: Rent
    most_nu: float
    work_left: float
    usd_left: float = inf
    usd_reserved: float = 0.0
    record: SpotRecord = UNTRIED
    unsaved: float = 0.0
    spell: Callable[[], SpotSpell | None] | None = None
    deadline: int | None = None
    looks: Callable[[], tuple[Look, ...]] = tuple
    saved: SavedState | None = None
    refused: Mapping[tuple[Market, bool], int] = field(default_factory=dict)
    leaving: Mapping[tuple[Market, bool], int] = field(default_factory=dict)
    highest_bid: Callable[[Offer], int] | None = None

    @property
    def on_spot(self) -> tuple[Holding, ...]:
        return tuple(holding for holding in self.holdings if holding.rent.spot)

    @property
    def on_demand(self) -> tuple[Holding, ...]:
        listed = (holding for holding in self.holdings if not holding.rent.spot)
        return tuple(listed)

    def sells(self, rent: Rent) -> bool:
        """Whether a purchase can be made now: on demand, or of a listed offer whose price the bid
        covers.
        """
        return rent.bid is None or (
            rent.offer in self.offers and self.price(rent.offer) <= rent.bid
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The actions to take now, and the latest time of the next decision. An eviction always prompts
    a new decision.

    `unaffordable` says that machines are wanted that the budget does not cover.
    """

    actions: tuple[Rent | Return, ...] = ()
    wake_at: int | None = None
    reason: str = ""
    unaffordable: bool = False

    @property
    def rents(self) -> tuple[Rent, ...]:
        return tuple(action for action in self.actions if isinstance(action, Rent))

    @property
    def returns(self) -> tuple[Return, ...]:
        return tuple(action for action in self.actions if isinstance(action, Return))


class Strategy(Protocol):
    """A way of renting machines for a job."""

    @property
    def name(self) -> str:
        """The strategy's name in scenarios and results."""

    def decide(self, situation: Situation, /) -> Decision:
        """Which machines to rent and which to return."""


@dataclass(frozen=True, slots=True)
class ChosenStrategy:
    """A strategy by name, and why it is used. Of a default, `reason` says it in full for `--json`,
    and `summary` in a line for the terminal.
    """

    name: str
    reason: str
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The cost of protecting the work, and the loss by an eviction.

    `speed` is the fraction of the job's speed that remains while it protects its work. With an
    `interval` (time between checkpoints in a market, in microseconds) an eviction loses the work
    since the last checkpoint. A job that does not `resume` starts from scratch on other machines.
    """

    speed: float = 1.0
    interval: Callable[[Offer], float] | None = None
    resumes: bool = True

    def lost_time(self, rent: Rent, since: int, evicted: int) -> float:
        """Run time in microseconds that an eviction loses, for machines that have worked since
        `since`.
        """
        if self.interval is None or evicted <= since:
            return 0.0
        return (evicted - since) % self.interval(rent.offer)


AGILE = Recovery()
"""Recovery through an elastic parameter server: no work is lost, and an eviction costs only the
pause."""


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """Cost of checkpoints: the fraction of speed that remains, and the microseconds that writing
    one takes.

    The interval follows Young's rule, sqrt(2 x cost x mean time to failure), as in the papers'
    comparison.
    """

    speed: float
    write: int

    def interval(self, mean_time_to_failure: float) -> float:
        """Time between checkpoints, in microseconds: at least the time that writing one takes."""
        twice = 2 * self.write * mean_time_to_failure
        best = sqrt(twice)
        return max(best, float(self.write))


def usual_price(series: PriceSeries, on_demand: int) -> int:
    """The mean price of a market while it was observed, in nano-dollars per hour; what is above the
    on-demand price counts as that, at which the machines may be rented instead.
    """
    observed = series.held.sum()
    if not observed:
        return on_demand
    prices = series.prices[:-1].clip(max=on_demand).astype(float)
    return round(float(prices @ series.held) / float(observed))


def mean_time_to_failure(series: PriceSeries, on_demand: int) -> float:
    """Time at or below the on-demand price per crossing above it, in microseconds; the total if it
    never crosses.
    """
    above = series.prices > on_demand
    spans = series.times[1:] - series.times[:-1]
    below_before = ~above[:-1]
    time_below = (spans * below_before).sum()
    below = float(time_below)
    was_below = ~above[:-1]
    crossed = above[1:] & was_below
    crossings = int(crossed.sum())
    return below / max(crossings, 1)


def with_hazard(mean_time: float, hazard: Hazard | None) -> float:
    """Mean time to a price crossing or a capacity eviction, whichever is first; both are taken as
    memoryless.
    """
    if hazard is None:
        return mean_time
    return mean_time / (1 + mean_time * hazard.rate[0] / HOUR)


@dataclass(frozen=True, slots=True)
class TimePrice:
    """The value of an hour of a job's time, in dollars, and how it is known; `note` says what a
    user must know.
    """

    usd_per_hour: float
    basis: str
    note: str = ""


PriceOfTime = Callable[["StrategyInputs", Callable[[float], Strategy], Strategy], TimePrice | None]
"""The price of time at which a strategy (made from dollars per hour) was as fast as a rival in past
jobs; None if that is unknown."""


StatedOdds = Callable[[Offer, int], Estimate]
"""The estimate that a plan states for a bid at some distance above an offer's price."""


@dataclass(frozen=True, slots=True)
class StrategyInputs:
    """Inputs of every registered strategy; `histories` and `hazards` have an entry for each offer's
    market.

    A hazard of None means that no capacity evictions are known. `reliable` machines run from start
    to end next to what the strategy rents. `value_of_time` is what an hour of the job is worth to
    its user, in dollars; if that is unknown (None), `price_of_time` finds one. `hosts` are the
    markets in which each host runs the highest bid. `request_nu` is the size of one request of
    `proteus`, which at the moment `now` decides by the `stated` odds.
    """

    offers: tuple[Offer, ...]
    histories: Mapping[Market, PriceSeries]
    hazards: Mapping[Market, Hazard | None]
    baseline: Rent
    reliable: Rent | None
    billing: BillingRule
    overheads: Overheads
    checkpoints: Checkpointing
    price_of_time: PriceOfTime
    hosts: Mapping[Market, HostMarket] = field(default_factory=dict)
    value_of_time: float | None = None
    request_nu: float = REQUEST_VCPUS
    now: int | None = None
    stated: StatedOdds | None = None
