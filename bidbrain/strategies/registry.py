"""The registered strategies: turns a name and inputs into a strategy that is ready to run; and the
default strategy for each billing rule, with the reason, which names the replays behind the
choice."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import expm1, inf, nan

from bidbrain.errors import BidBrainError
from bidbrain.eviction.hazard import Hazard
from bidbrain.outbid.bid import BidTerms
from bidbrain.strategies.base import (
    AGILE,
    LOOK_AGAIN,
    ChosenStrategy,
    Decision,
    Offer,
    Recovery,
    Situation,
    Strategy,
    StrategyInputs,
    TimePrice,
    mean_time_to_failure,
    with_hazard,
)
from bidbrain.strategies.lookahead import Lookahead, NextHour
from bidbrain.strategies.names import MAY_HAVE_ARGUMENT, NAMES, ON_DEMAND
from bidbrain.strategies.price_capacity import POOLS, PriceCapacity, Prospects
from bidbrain.strategies.proteus import JobCosts, Odds, Proteus, bid_deltas
from bidbrain.strategies.standard import AlwaysOnDemand, Standard, TierMl, mttf_by_tenth
from pricing_data.errors import BadInput
from pricing_data.market import Market
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, format_usd, parse_usd, usd_text

CHECKPOINTS_APART = 10.0
"""The time between checkpoints of a machine at a bid, over the time that one takes: about 10% goes
into them."""
USUAL_SHARE = 0.55
"""Price of time as a share of the baseline's on-demand cost per hour, where no replay sets it."""


class BadStrategy(BidBrainError):
    """A strategy name that is unknown, or whose argument is wrong; the message says how to write
    it.
    """


@dataclass(frozen=True, slots=True)
class StrategySetup:
    """A strategy that is ready to run, and how the job recovers under it.

    With `reliable`, the job also holds the reliable machines of the inputs from start to end.
    `note` is what a user must know about how it was set up.
    """

    name: str
    strategy: Strategy
    recovery: Recovery
    reliable: bool
    note: str = ""


def set_up(name: str, inputs: StrategyInputs) -> StrategySetup:
    """Builds the strategy with this name (and argument)."""
    kind, _, argument = name.partition(":")
    if kind not in _MAKERS or (argument and kind not in MAY_HAVE_ARGUMENT):
        raise BadStrategy(f"{name!r} is unknown (known: {', '.join(NAMES)})")
    return _MAKERS[kind](name, argument, inputs)


def _usual_fleet(name: str, _: str, inputs: StrategyInputs) -> StrategySetup:
    """The fleets that others rent, with the recovery of each."""
    kind = name.partition(":")[0]
    if kind == ON_DEMAND:
        return StrategySetup(name, AlwaysOnDemand(), AGILE, reliable=False)
    if kind == "standard+agileml":
        return StrategySetup(name, Standard(), AGILE, reliable=True)

    intervals = {
        offer.market: inputs.checkpoints.interval(
            with_hazard(
                mean_time_to_failure(inputs.histories[offer.market], offer.on_demand),
                inputs.hazards[offer.market],
            )
        )
        for offer in inputs.offers
    }

    recovery = Recovery(inputs.checkpoints.speed, lambda offer: intervals.get(offer.market, inf))
    return StrategySetup(name, Standard(), recovery, reliable=False)


def _tierml(name: str, _: str, inputs: StrategyInputs) -> StrategySetup:
    mttf = {}
    for offer in inputs.offers:
        by_tenth = mttf_by_tenth(inputs.histories[offer.market], offer.on_demand)
        hazard = inputs.hazards[offer.market]
        mttf[offer.market] = tuple(with_hazard(mean, hazard) for mean in by_tenth)
    return StrategySetup(name, TierMl(mttf), AGILE, reliable=True)


def _proteus(name: str, argument: str, inputs: StrategyInputs) -> StrategySetup:
    """`proteus`, or with a single bid above the price `fixed-bid`."""
    deltas = bid_deltas(10)
    spelled = "proteus"
    if name.startswith("fixed-bid"):
        try:
            delta = parse_usd(argument, "bid delta")
        except BadInput as error:
            raise BadStrategy(f"{name!r}: {error} (write fixed-bid:0.0001)") from None
        deltas = (delta,)
        spelled = f"fixed-bid:{format_usd(delta)}"

    odds = odds_of(inputs)
    application = application_of(inputs)
    strategy = AmongOpen(
        lambda among: Proteus(
            among,
            odds,
            application,
            inputs.request_nu,
            deltas,
            spelled,
            inputs.now,
            inputs.stated,
        ),
        inputs.offers,
        spelled,
    )

    return StrategySetup(name, strategy, AGILE, reliable=True)


def _lookahead(name: str, argument: str, inputs: StrategyInputs) -> StrategySetup:
    make = lookahead_of(inputs, name)
    time = _time_price(name, argument, inputs, lambda usd: make(inputs.offers, usd))
    strategy = AmongOpen(lambda among: make(among, time.usd_per_hour), inputs.offers, name)
    note = (
        time.note or f"an hour of the job is valued at {usd_text(time.usd_per_hour)}: {time.basis}"
    )
    return StrategySetup(name, strategy, AGILE, reliable=True, note=note)


def _time_price(
    name: str, argument: str, inputs: StrategyInputs, make: Callable[[float], Strategy]
) -> TimePrice:
    """From the strategy's name, from the user, from a replay of the past, or the usual one."""
    if argument:
        try:
            usd_per_hour = float(argument)
        except ValueError:
            usd_per_hour = nan

        if not 0 <= usd_per_hour < inf:
            raise BadStrategy(
                f"{name!r}: {argument!r} is not a price of time in dollars per hour (write "
                "lookahead:12.5)"
            )

        return TimePrice(usd_per_hour, "part of the strategy's name")

    if inputs.value_of_time is not None:
        return TimePrice(inputs.value_of_time, "value_of_time of the job")

    rival = Proteus(inputs.offers, odds_of(inputs), application_of(inputs), inputs.request_nu)
    return inputs.price_of_time(inputs, make, rival) or usual_price_of_time(inputs)


def usual_price_of_time(inputs: StrategyInputs) -> TimePrice:
    """The price of time for when no replay of the past sets it."""
    baseline = inputs.baseline
    usd_per_hour = USUAL_SHARE * (baseline.machines * baseline.offer.on_demand / NANOS_PER_DOLLAR)
    return TimePrice(
        usd_per_hour,
        f"the usual {USUAL_SHARE:.0%} of its on-demand cost; value_of_time sets another",
    )


def lookahead_of(
    inputs: StrategyInputs, name: str
) -> Callable[[tuple[Offer, ...], float], Lookahead]:
    """Makes `lookahead` for some of the offers at a price of time (dollars per hour)."""
    application = application_of(inputs)
    hours = {
        offer.market: NextHour.of(
            inputs.histories[offer.market],
            inputs.billing,
            application.startup_hours,
            inputs.hazards[offer.market],
        )
        for offer in inputs.offers
    }

    return lambda among, usd_per_hour: Lookahead(among, hours, application, usd_per_hour, name)


def _price_capacity(name: str, argument: str, inputs: StrategyInputs) -> StrategySetup:
    margins = dict[Market, float]()
    hazards = dict[Market, Hazard | None]()
    for offer in inputs.offers:
        market = offer.market
        if market not in inputs.hosts:
            hazards[market] = inputs.hazards[market]
            continue

        # A market of hosts: above its price, the margin at which a machine's work is cheapest, its
        # time included.
        hosts = inputs.hosts[market]
        price = int(inputs.histories[market].prices[-1])
        margin = margins[market] = hosts.margin(price, offer.on_demand, bid_terms(offer, inputs))
        hazards[market] = hosts.hazard(round(price * (1 + margin)))

    fresh = {market: Prospects.of(hazard, inputs.billing, 0) for market, hazard in hazards.items()}
    old = {market: Prospects.of(hazard, inputs.billing, 1) for market, hazard in hazards.items()}
    if argument and not (argument.isdecimal() and int(argument)):
        raise BadStrategy(
            f"{name!r}: {argument!r} is not a number of pools (write price-capacity:3)"
        )

    pools = int(argument) if argument else POOLS
    strategy = PriceCapacity(
        inputs.offers,
        fresh,
        old,
        application_of(inputs),
        pools,
        usd_per_hour=inputs.value_of_time,
        name=name,
        margins=margins,
    )

    return StrategySetup(name, strategy, AGILE, reliable=True)


def bid_terms(offer: Offer, inputs: StrategyInputs) -> BidTerms:
    """The terms by which bids for a machine of a market of hosts are compared."""
    baseline = inputs.baseline
    overheads = inputs.overheads
    usual = (
        usual_price_of_time(inputs).usd_per_hour
        if inputs.value_of_time is None
        else inputs.value_of_time
    )

    return BidTerms(
        loading_hours=0.0,
        startup_hours=(overheads.startup + overheads.eviction) / HOUR,
        checkpoint_every_hours=inputs.checkpoints.write / HOUR * CHECKPOINTS_APART,
        checkpoint_hours=inputs.checkpoints.write / HOUR,
        disk_usd_per_hour=0.0,
        time_usd_per_hour=usual * offer.nu / (baseline.machines * baseline.offer.nu),
    )


def odds_of(inputs: StrategyInputs) -> dict[Market, Odds]:
    """Eviction odds per market from history, capacity evictions included.

    Both causes are independent; the median capacity eviction comes half an hour in.
    """
    odds = {}
    for offer in inputs.offers:
        market = offer.market
        hazard = inputs.hazards[offer.market]
        crossing = odds[market] = Odds.of(inputs.histories[market])
        if hazard is None:
            continue

        evicted = -expm1(-hazard.cumulative(0, 1)[0])
        betas = tuple(1 - (1 - beta) * (1 - evicted) for beta in crossing.betas)
        medians = tuple(
            (beta * median + evicted / 2) / (beta + evicted) if beta + evicted else median
            for beta, median in zip(crossing.betas, crossing.medians, strict=True)
        )
        odds[market] = Odds(crossing.distances, betas, medians)

    return odds


def application_of(inputs: StrategyInputs) -> JobCosts:
    """The job's own costs: hours of overheads, dollars per hour of reliable machines."""
    reliable = inputs.reliable
    held = 0.0
    if reliable:
        held = reliable.machines * reliable.offer.on_demand / NANOS_PER_DOLLAR
    overheads = inputs.overheads
    return JobCosts(
        overheads.eviction / HOUR, overheads.resize / HOUR, overheads.startup / HOUR, held
    )


_MAKERS: dict[str, Callable[[str, str, StrategyInputs], StrategySetup]] = {
    ON_DEMAND: _usual_fleet,
    "standard+checkpoint": _usual_fleet,
    "standard+agileml": _usual_fleet,
    "tierml": _tierml,
    "proteus": _proteus,
    "fixed-bid": _proteus,
    "price-capacity": _price_capacity,
    "lookahead": _lookahead,
}


@dataclass(frozen=True, slots=True)
class AmongOpen:
    """A strategy for the offers that are open; limited capacity closes some of them.

    `make` builds the strategy for a subset of the offers, once for each. Machines already held are
    kept or returned whether or not their market still has capacity.
    """

    make: Callable[[tuple[Offer, ...]], Strategy]
    offers: tuple[Offer, ...]
    name: str
    _among: dict[tuple[Offer, ...], Strategy] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def decide(self, situation: Situation) -> Decision:
        """Asks the wrapped strategy among the open offers; decides again soon, since more may be
        open by then.
        """
        if situation.offers not in self._among:
            self._among[situation.offers] = self.make(situation.offers)
        decision = self._among[situation.offers].decide(situation)
        if situation.offers == self.offers:
            return decision

        soon = situation.now + LOOK_AGAIN
        return replace(
            decision, wake_at=soon if decision.wake_at is None else min(decision.wake_at, soon)
        )


TODAY = ChosenStrategy(
    "price-capacity",
    "evictions depend on capacity rather than the bid, and at most a first hour is refunded. In "
    "replays of 2020 prices"
    " with recorded availability, price-capacity was cheapest where there are many markets, and "
    "cost about as much as"
    " proteus, with fewer evictions, where there are few (docs/decisions/0006-todays-default.md)",
    "cheapest in our backtests where there are many markets, and evicted less often than proteus "
    "at about the same cost where there are few (docs/decisions/0006-todays-default.md)",
)
"""Where capacity decides, which is on all clouds since 2017."""

BIDDING = ChosenStrategy(
    "lookahead",
    "the bid decides which machines are evicted, and an evicted hour is refunded. lookahead ranks "
    "bids by the expected"
    " cost of the next hour. With a price of time at which it finished as fast as proteus, the "
    "published strategy, it cost less in every window tested (docs/decisions/0005-backtest.md)",
    "cheapest in our backtests of markets that refund an evicted hour "
    "(docs/decisions/0005-backtest.md)",
)
"""Where prices evict and evicted hours are refunded."""


def default_for(billing: str) -> ChosenStrategy:
    """The default strategy in a market with this billing rule.

    >>> default_for("gcp").name
    'price-capacity'
    """
    return BIDDING if billing == "hourly-refund" else TODAY


RIVAL = "price-capacity"
"""Takes the default's place where it is cheaper or faster in plays of the past, and no worse. This
strategy bids the on-demand price. Strategies that learn their bids from the past do better when
they play that past than afterwards, so one of these could win a comparison without being better."""
