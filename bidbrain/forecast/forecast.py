"""The forecast of a job that begins now: its plays over the past, conditioned on today's prices and calibrated."""

import numpy as np

from bidbrain.forecast.calibrated import PastOutcomes, calibrated
from bidbrain.forecast.values import HIGH, Forecast, ForecastJob, ForecastTerm, KnownPast, Spread
from bidbrain.forecast.windows import PastMarket, Played, plays
from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, counted


def forecast(job: ForecastJob, past: KnownPast) -> Forecast:
    """Forecasts what the job costs and how long it takes, if it begins now."""
    market = PastMarket(job, past)
    played = plays(market)
    starts = np.array([play.start for play in played], dtype=np.int64)
    hours = np.array([play.hours for play in played])
    usd = np.array([play.usd for play in played])
    levels, length = market.reference(starts), HOUR * float(np.quantile(hours, HIGH))
    level = float(market.reference(np.array([past.now], dtype=np.int64))[0])

    def spread(values: np.typing.NDArray[np.float64], *, scales: bool) -> Spread:
        return calibrated(PastOutcomes(starts, values, levels, length), level, past.now, scales=scales)

    cost = spread(usd, scales=True)
    return Forecast(
        usd=cost,
        hours=spread(hours, scales=False),
        usd_per_hour=spread(usd / hours, scales=True),
        terms=_terms(played, cost.median),
        unfinished=float(np.mean([not play.finished for play in played])),
        basis=_basis(market, played),
    )


def _terms(played: list[Played], expected: float) -> tuple[ForecastTerm, ...]:
    """The expected bill, divided like the mean bill of all plays; the largest part first."""
    machines: dict[Market, int] = {}
    dollars: dict[Market, float] = {}
    for bill in (bill for play in played for bill in play.bills):
        machines[bill.market] = max(machines.get(bill.market, 0), bill.machines)
        dollars[bill.market] = dollars.get(bill.market, 0.0) + bill.usd
    scale = expected / (sum(dollars.values()) or 1.0)
    terms = (ForecastTerm(market, machines[market], part * scale) for market, part in dollars.items())
    return tuple(sorted(terms, key=lambda term: (-term.usd, str(term.market))))


def _basis(market: PastMarket, played: list[Played]) -> str:
    days = market.span / DAY
    span = f"{days:.0f} days" if days >= 2 else f"{market.span / HOUR:.0f} hours"
    evictions = _evictions(market.past, {offer.market for offer in market.job.offers})
    return f"the job played over {len(played)} windows of the last {span}; {evictions}"


def _evictions(past: KnownPast, markets: set[Market]) -> str:
    """Where evictions come from in the plays."""
    known = {market: hazard for market in sorted(markets) if (hazard := past.hazards.get(market)) is not None}
    looked = {market for market, spells in past.spells.items() if spells.up is not None}
    seen = [market for market in known if market in looked or known[market].kind == "observed"]
    parts = [f"spot comes and goes as observed in {counted(len(seen), 'market')}"] if seen else []
    if len(seen) < len(known):
        others = counted(len(known) - len(seen), "market")
        parts.append(f"no availability of {others} is recorded, so spot may be unobtainable there for hours")
    if len(known) < len(markets):
        parts.append("evictions where the price rose above the bid")
    return ", ".join(parts)
