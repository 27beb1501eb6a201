"""Eviction estimates of `spotctl lab beta`: the market, its sibling markets, bids, and evidence."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import partial

import numpy as np

from bidbrain.errors import BidBrainError
from bidbrain.eviction.crossing import Bid, BidAbove, CrossingHistory, FixedBid
from bidbrain.eviction.estimate import MEMORY, Estimate, PriceOutlook, closest, share_only, together
from bidbrain.eviction.hazard import Hazard, evidence_of_spans, hazard_of, in_force
from bidbrain.lab.calibration import Calibration, CalibrationPlan, calibrate
from pricing_data.errors import UnknownPrice
from pricing_data.library import Library, Selection
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.stats import on_demand_of
from pricing_data.store.facts import AVAILABILITY, INTERRUPTIONS
from pricing_data.units import format_time, parse_duration, parse_time, parse_usd
from spotctl.home.errors import BadRequest

ON_DEMAND = "on-demand"
_SEED = 7
_CURVE = (0.001, 1.0)
CURVE_BIDS = 16


@dataclass(frozen=True, slots=True)
class BetaQuery:
    """A market's history, what it and the closest markets say at a moment, and a window in
    microseconds.
    """

    library: Library
    series: PriceSeries
    outlook: PriceOutlook
    window: int
    at: int


@dataclass(frozen=True, slots=True)
class BidEstimate:
    """The estimate for one bid; `crossing` is the part that prices explain, `evidence` is the basis
    of the rest.
    """

    market: Market
    bid: Bid
    window: int
    at: int
    estimate: Estimate
    crossing: Estimate
    evidence: str
    historical_share: float


def query(library: Library, market: str, window: str, at: str) -> BetaQuery:
    """The query about a market, at the end of its history or at a time within it."""
    series = library.series(Market.parse(market))
    moment = parse_time(at) if at else series.last
    if not series.first <= moment <= series.last:
        first, last = format_time(series.first), format_time(series.last)
        raise BadRequest(f"--at {at}: the history of {series.market} covers {first} to {last}")

    span = parse_duration(window)
    of_cloud = library.select(Selection(clouds=(series.market.cloud,)))
    seen = library.table(closest(series.market, of_cloud)).with_last_seen()
    outlook = PriceOutlook(seen.markets, seen.series, moment, span)
    return BetaQuery(library, series, outlook, span, moment)


def bid_of(query: BetaQuery, delta: str, bid: str) -> Bid:
    """The bid that the options give; the on-demand price by default."""
    if delta and bid:
        raise BadRequest("beta: give either --bid-delta or --bid, not both")
    if delta:
        return BidAbove(_delta(delta))
    if bid and bid != ON_DEMAND:
        return FixedBid(parse_usd(bid, "bid"))

    try:
        return FixedBid(query.library.catalog.on_demand(query.series.market, query.at).price)
    except UnknownPrice as error:
        raise BadRequest(f"{error}; or give --bid-delta or --bid in dollars") from error


def answer(query: BetaQuery, bid: Bid, hazard: Hazard | None) -> BidEstimate:
    """The estimate for one bid.

    An amount is estimated as its distance from the price, which predicts better.
    """
    with _as_bad_request():
        known = query.series.window(query.series.first, query.at)
        past = CrossingHistory(known, query.window)
        if isinstance(bid, FixedBid):
            crossing = past.at_bid(bid.price)
            distance = bid.price - known.price_at(query.at)
        else:
            crossing = past.at_delta(bid.delta)
            distance = bid.delta

        if distance < 0:
            why = f"the price is above {bid} now, so no machine could be started"
            price = share_only(crossing, why)
        else:
            remembered = max(known.first, query.at - MEMORY)
            recent = known.window(remembered, query.at)
            price = query.outlook.of(recent, distance)
        estimate = together(price, hazard, query.window)

    evidence = "price" if hazard is None else hazard.kind
    return BidEstimate(
        query.series.market, bid, query.window, query.at, estimate, price, evidence, crossing.share
    )


def hazard_of_market(query: BetaQuery) -> Hazard | None:
    """The market's hazard from stored figures and stored records of availability."""
    market, at, store = query.series.market, query.at, query.library.store
    # An earlier moment may only use figures published before it.
    is_latest = at == query.series.last
    figures = store.facts(INTERRUPTIONS, market.cloud)
    published = [figure for figure in figures if figure.as_of <= at or is_latest]
    stored = evidence_of_spans(store.facts(AVAILABILITY, market.cloud), at)
    return in_force(market, hazard_of(market, stored, published), at)


def curve(query: BetaQuery, hazard: Hazard | None, step: Callable[[], None]) -> list[BidEstimate]:
    """Estimates over bids from 0.1% to 100% above the price.

    A higher bid is never more likely to be crossed, and the ends of its interval are no higher than
    those of lower bids: a price above a bid is above every lower bid, too.
    """
    price = query.series.price_at(query.at)
    deltas = dict.fromkeys(round(price * share) for share in np.geomspace(*_CURVE, CURVE_BIDS))
    answers: list[BidEstimate] = []
    for delta in deltas:
        at_bid = answer(query, BidAbove(delta), hazard)
        if answers:
            # No more likely than at the bid below.
            ends = zip(at_bid.estimate.interval(), answers[-1].estimate.interval(), strict=True)
            low, high = (min(pair) for pair in ends)
            estimate = replace(at_bid.estimate, interval=partial(tuple, (low, high)))
            at_bid = replace(at_bid, estimate=estimate)
        answers.append(at_bid)
        step()

    return answers


def plan(window: str, history: str, horizon: str) -> CalibrationPlan:
    """The calibration plan of the options; origins are one horizon apart."""
    seen, known, tested = map(parse_duration, (window, history, horizon))
    if seen >= known:
        raise BadRequest(
            f"calibrate: a history of {history} does not exceed the window of {window}"
        )
    return CalibrationPlan(seen, known, tested, tested)


def calibrations(
    library: Library,
    glob: str,
    planned: CalibrationPlan,
    bids: Sequence[str],
    step: Callable[[], None],
) -> dict[str, Calibration]:
    """The scores of each bid."""
    series = list(library.table(library.require(Selection(glob))))
    scored = {}
    for bid in bids:
        rng = np.random.default_rng(_SEED)
        with _as_bad_request():
            scored[bid] = calibrate(priced_at(library, series, bid), planned, rng)
        step()
    return scored


def priced_at(
    library: Library, series: Sequence[PriceSeries], delta: str
) -> list[tuple[PriceSeries, Bid]]:
    """Markets with one of the bids to calibrate; for on-demand bids, markets without a known price
    are left out.
    """
    if delta != ON_DEMAND:
        return [(history, BidAbove(_delta(delta))) for history in series]

    priced: list[tuple[PriceSeries, Bid]] = []
    for history in series:
        listed = on_demand_of(history.market, history.last, library.catalog)
        if listed is not None:
            priced.append((history, FixedBid(listed.price)))

    if not priced:
        raise BadRequest(
            "calibrate: no on-demand price is known for these markets (run spotctl prices import "
            "--on-demand TABLE)"
        )
    return priced


@contextmanager
def _as_bad_request() -> Iterator[None]:
    """Reports a history that is too short for the request as a BadRequest."""
    try:
        yield
    except BidBrainError as error:
        raise BadRequest(str(error)) from error


def _delta(text: str) -> int:
    try:
        if Decimal(text) == 0:
            return 0
    except InvalidOperation:
        pass
    return parse_usd(text, "bid delta")
