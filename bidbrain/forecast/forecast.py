"""The forecast of a job that begins now: its plays over the past, conditioned on today's prices and
calibrated.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from math import inf, log
from typing import TypeVar

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.forecast.values import HIGH, LOW, Forecast, ForecastJob, KnownPast, MarketBill, Spread
from bidbrain.forecast.windows import Ends, PastMarket, Played, plays
from bidbrain.strategies.names import ON_DEMAND
from bidbrain.strategies.registry import RIVAL
from pricing_data.market import Market
from pricing_data.series import Ints
from pricing_data.units import DAY, HOUR, counted


def forecast(job: ForecastJob, past: KnownPast) -> Forecast:
    """Forecasts what the job costs and how long it takes, if it begins now."""
    return forecast_in(PastMarket(job, past))


def forecast_in(market: PastMarket) -> Forecast:
    """Forecasts what the market's job costs and how long it takes, if it begins now."""
    past = market.past
    played = plays(market)
    play_starts = [play.start for play in played]
    starts = np.array(play_starts, dtype=np.int64)
    hours = np.array([play.hours for play in played])
    finished = np.array([play.finished for play in played])
    levels = market.reference(starts)
    length = HOUR * float(np.quantile(hours, HIGH))
    now = np.array([past.now], dtype=np.int64)
    level = float(market.reference(now)[0])
    hours_ends, usd_ends, rate_ends = market.ends(played)
    # What is left of the work of a play that did not end costs something, too.
    usd = np.array([play.usd for play in played])
    usd = np.where(finished, usd, np.maximum(usd, usd_ends[0]))

    def spread(values: Floats, ends: Ends, *, scales: bool) -> Spread:
        outcomes = PastOutcomes(starts, values, levels, length, ends)
        return calibrated(outcomes, level, past.now, scales=scales)

    cost = spread(usd, usd_ends, scales=True)
    days = market.span / DAY
    span = f"{days:.0f} days" if days >= 2 else f"{market.span / HOUR:.0f} hours"
    markets = {offer.market for offer in market.job.offers}
    evictions = _evictions(market.past, markets)
    hours_spread = spread(hours, hours_ends, scales=False)
    usd_per_hour = spread(usd / hours, rate_ends, scales=True)
    terms = _terms(played, cost.median)
    windows_on_spot = [play.on_spot for play in played]
    return Forecast(
        usd=cost,
        hours=hours_spread,
        usd_per_hour=usd_per_hour,
        terms=terms,
        unfinished=float(np.mean(~finished)),
        on_spot=float(np.mean(windows_on_spot)),
        basis=f"the job played over {len(played)} windows of the last {span}; {evictions}",
    )


def _terms(played: list[Played], expected: float) -> tuple[MarketBill, ...]:
    """The expected bill, divided like the mean bill of all plays; the largest part first."""
    machines: dict[Market, int] = {}
    dollars: dict[Market, float] = {}
    for bill in (bill for play in played for bill in play.bills):
        machines_before = machines.get(bill.market, 0)
        machines[bill.market] = max(machines_before, bill.machines)
        usd_before = dollars.get(bill.market, 0.0)
        dollars[bill.market] = usd_before + bill.usd
    scale = expected / (sum(dollars.values()) or 1.0)
    terms = (MarketBill(market, machines[market], part * scale) for market, part in dollars.items())
    costly_first = sorted(terms, key=lambda term: (-term.usd, str(term.market)))
    return tuple(costly_first)


def _evictions(past: KnownPast, markets: set[Market]) -> str:
    """Where evictions come from in the plays."""
    known = {
        market: hazard
        for market in sorted(markets)
        if (hazard := past.hazards.get(market)) is not None
    }

    looked = {market for market, spells in past.spells.items() if spells.up is not None}
    seen = [market for market in known if market in looked or known[market].kind == "observed"]
    parts = [f"spot comes and goes as observed in {counted(len(seen), 'market')}"] if seen else []
    if len(seen) < len(known):
        others = counted(len(known) - len(seen), "market")
        parts.append(
            f"no availability of {others} is recorded, so spot may be unobtainable there for hours"
        )

    if len(known) < len(markets):
        parts.append("evictions where the price rose above the bid")

    return ", ".join(parts)


_LEVELS = np.array([LOW, 0.5, HIGH])
_SLOPES = (1.0, 0.5, 0.0)
_NEAREST = (1.0, 0.4, 0.15)
"""The share of windows whose price level counts as near; 1: every window counts alike."""
_FINER_MODEL_LOSS = 0.98
"""A finer model must lower the loss to this share."""
_FADING = (0.25, 0.125)
"""Half-lives as shares of the past, for markets that change."""
_FADING_MODEL_LOSS = 0.9
"""A model with a half-life must lower the loss to this share."""
_HALF_LIFE = 14 * DAY
_MIN_NEAR = 12
_SAME_LEVEL = 1e-6
_MIN_WEIGHT = 1e-9
_NEARLY = 0.1
"""Price levels that differ by less, as a logarithm, count as equally far from the middle."""


@dataclass(frozen=True, slots=True, eq=False)
class PastOutcomes:
    """Values by start, and the price level (dollars per hour) at each; `length` is how long a
    window lasts, and `ends` are the least and the most that a value can be.
    """

    starts: Ints
    values: Floats
    levels: Floats
    length: float
    ends: Ends

    @property
    def independent(self) -> float:
        """How many windows fit into the span one after the other."""
        lengths = float(self.starts[-1] - self.starts[0]) / self.length
        return max(lengths + 1, 1.0)


@dataclass(frozen=True, slots=True)
class _OutcomeModel:
    """`slope`: the power of the price level that a value is in proportion to; `nearest`: the share
    of windows whose level counts as near; `half_life`: the time in which windows come to count
    half, infinite where all count alike."""

    slope: float
    nearest: float
    half_life: float = inf


def calibrated(seen: PastOutcomes, level: float, now: int, *, scales: bool) -> Spread:
    """The distribution of the value now; `scales` says that values may be in proportion to the
    price level.
    """
    model, predicted = _best_model(seen, scales=scales)
    values, weights = _for_level(seen, model, np.array([level]))
    ago = (now - seen.starts).astype(np.float64)
    half_lives = 0.5 ** (ago / _HALF_LIFE + ago / model.half_life)
    faded = weights[0] * half_lives
    possible = np.clip(values[0], *seen.ends)
    plain = Spread.of(possible, faded)

    # What was predicted too narrowly in the past, each value from the others, gets more weight
    # outside, a tenth at least; no value moves.
    below = max(float(np.mean(seen.values < predicted[:, 0])), LOW)
    above = max(float(np.mean(seen.values > predicted[:, 2])), 1 - HIGH)
    upto = np.cumsum(plain.weights)
    ranks = np.interp(upto, [0.0, LOW, HIGH, 1.0], [0.0, below, 1 - above, 1.0])
    weights = np.diff(ranks, prepend=0.0)

    # How many independent windows began like now: all that fit one after the other, and fewer
    # where hardly one began at a price level nearly as far from the middle.
    middle = float(np.median(seen.levels))
    side = 1.0 if level > middle else -1.0
    apart = side * np.log(seen.levels / middle)
    as_far = np.count_nonzero(apart >= side * log(level / middle) - _NEARLY)
    like = min(seen.independent, max(float(as_far), 1.0))

    # The next of n values that are alike is beyond all of them, on each side, in one case of n + 1;
    # with the pseudo-count of an estimate from few.
    beyond = 1 / (like + 2)
    return Spread(plain.values, weights, seen.ends, beyond)


def _best_model(seen: PastOutcomes, *, scales: bool) -> tuple[_OutcomeModel, Floats]:
    """The model with the least loss on windows that it has not seen, and its quantiles for each of
    them.
    """
    best: tuple[float, _OutcomeModel, Floats] | None = None
    slopes = _SLOPES if scales else (0.0,)
    shares = _NEAREST if float(np.ptp(seen.levels)) > 0 else (1.0,)
    for share, slope in product(shares, slopes):
        model = _OutcomeModel(slope, share)
        predicted = _left_out(seen, model)
        loss = float(pinball(predicted, seen.values).mean())
        if best is None or loss < _FINER_MODEL_LOSS * best[0]:
            best = loss, model, predicted

    assert best is not None
    loss, model, predicted = best
    for share in _FADING:
        seen_span = max(float(np.ptp(seen.starts)), 1.0)
        fading = replace(model, half_life=share * seen_span)
        quantiles = _left_out(seen, fading)
        faded = float(pinball(quantiles, seen.values).mean())
        if faded < _FADING_MODEL_LOSS * loss:
            loss = faded
            model = fading
            predicted = quantiles

    return model, predicted


def _for_level(seen: PastOutcomes, model: _OutcomeModel, levels: Floats) -> tuple[Floats, Floats]:
    """Each past value as it would be at each level, and its weight: two arrays of levels x
    windows."""
    own_levels = np.log(levels)[:, None]
    seen_levels = np.log(seen.levels)[None, :]
    apart = own_levels - seen_levels
    values = seen.values * np.exp(model.slope * apart)
    apart = np.abs(apart)
    if model.nearest == 1.0:
        return values, np.ones_like(apart)

    # Weights of a Gaussian kernel that reaches as far as the nearest windows do.
    wanted = model.nearest * apart.shape[1]
    fewest = min(_MIN_NEAR, apart.shape[1] - 1)
    least = max(round(wanted), fewest)
    nearest = np.partition(apart, least, axis=1)[:, least]
    reach = nearest[:, None]
    in_reaches = apart / np.maximum(reach, _SAME_LEVEL)
    squared = in_reaches**2
    weights: Floats = np.exp(-0.5 * squared)
    return values, np.maximum(weights, _MIN_WEIGHT)


def _left_out(seen: PastOutcomes, model: _OutcomeModel) -> Floats:
    """Quantiles of each past window, predicted from the windows that do not overlap it."""
    values, weights = _for_level(seen, model, seen.levels)
    begin = seen.starts[:, None]
    other_begin = seen.starts[None, :]
    apart = np.abs(begin - other_begin)
    middle = float(np.median(apart))
    others = apart >= min(seen.length, middle)
    half_lives = apart / model.half_life
    faded = np.maximum(0.5**half_lives, _MIN_WEIGHT)
    weights = weights * others * faded

    # The three quantiles of each row.
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    heavy = np.take_along_axis(weights, order, axis=1)
    heavy = heavy / heavy.sum(axis=1, keepdims=True)
    middles = np.cumsum(heavy, axis=1) - heavy / 2

    pairs = zip(middles, ordered, strict=True)
    return np.array([np.interp(_LEVELS, row, of) for row, of in pairs])


def pinball(predicted: Floats, values: Floats) -> Floats:
    """The pinball loss of P10, P50 and P90, summed, for each value."""
    over = values[:, None] - predicted
    losses = np.maximum(_LEVELS * over, (_LEVELS - 1) * over)
    loss: Floats = losses.sum(axis=1)
    return loss


LIKELY, MORE_LIKELY_THAN_NOT = 0.9, 0.5
"""Chances of keeping budget and deadline that count as kept, and as kept by the skin of one's
teeth."""
_SAME = 3
"""Costs, and times, that agree in this many digits count as equal."""


def merits(
    outcome: Forecast,
    hours_left: float = inf,
    budget_usd: float = inf,
    value_of_time_usd: float = 0.0,
    *,
    hurries: bool = False,
) -> tuple[float, ...]:
    """The merits of a plan, smaller for a better plan of the same job: whether it is likely to
    break its limits, then its median cost with the value of its time, then its length, then its P90
    cost; for a job that `hurries`, the length comes first."""
    kept = min(outcome.deadline_met(hours_left), outcome.budget_kept(budget_usd))
    broken = 0.0 if kept >= LIKELY else 1.0 if kept >= MORE_LIKELY_THAN_NOT else 2.0 - kept
    cost = outcome.usd.median + value_of_time_usd * outcome.hours.median
    usd, hours, high = (
        float(f"{value:.{_SAME}g}") for value in (cost, outcome.hours.median, outcome.usd.likely[1])
    )
    if hurries:
        return (broken, hours, usd, high)
    return (broken, usd, hours, high)


WAITING = "waiting"
"""Stands for the usual strategy where it may wait for cheap spot machines, for as long as a job
without a deadline may take."""
MAX_WAIT = 2
"""Without a deadline and a value of time, a job may take this multiple of its `hours`, if waiting
or slower machines make it cheaper."""
LONGEST_COMPARED = 1000.0
"""Hours of a job beyond which only its usual strategy, the rival and on demand are compared: its
plays run over more time than is known of most markets, and take seconds each."""

_Plan = TypeVar("_Plan")
PlanWithMerits = tuple[tuple[float, ...], _Plan]


def best_plan(
    first: PlanWithMerits[_Plan],
    chosen: str,
    usual: str,
    plan_of: Callable[[str, _Plan], PlanWithMerits[_Plan] | None],
) -> _Plan:
    """The plan with the best merits: the first one, which has the `chosen` strategy, or that of
    another strategy that may take its place: the usual one, its rival, on demand and waiting.
    `plan_of` is given the best plan so far, and may give up a plan that costs more.
    """
    best = first
    for name in dict.fromkeys((usual, RIVAL, ON_DEMAND, WAITING)):
        other = None if name == chosen else plan_of(name, best[1])
        if other is not None and other[0] < best[0]:
            best = other
    return best[1]
