"""How later corrections of stored prices would change what ended runs cost. Their bills stay as
they are.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bidbrain.billing import usd
from pricing_data.errors import PricingDataError, UnknownMarket
from pricing_data.market import Market
from pricing_data.series import Ints, PriceSeries
from pricing_data.store import PriceStore
from pricing_data.store.segments import SegmentFile
from pricing_data.store.table import PriceCorrection, PriceTable, in_force
from pricing_data.units import format_time, usd_text
from spotctl.clouds import wiring
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.log import store
from spotctl.log.events import Priced
from spotctl.log.folding import fold
from spotctl.log.ledger.account import RunTimeline
from spotctl.log.ledger.project import RECORDED_ONLY, project_run
from spotctl.log.state import LogRow


@dataclass(frozen=True, slots=True)
class CorrectedBill:
    """A run that was billed by prices which were corrected later, the last time at `made`, and the
    difference.
    """

    run: str
    made: int
    change_usd: float

    def __str__(self) -> str:
        sign = "+" if self.change_usd >= 0 else "-"
        change = f"{sign}{usd_text(abs(self.change_usd), 4)}"
        return (
            f"{self.run}: a correction of {format_time(self.made)} would change it by {change}; "
            "the bill stays"
        )


def corrected_bills(settings: Settings, runs: Iterable[RunTimeline]) -> list[CorrectedBill]:
    """The ended runs that cost another amount by the prices as they were corrected since.

    A store that cannot be read says nothing about bills, which are in the log.
    """
    prices = wiring.price_store(settings)
    ended = [run for run in runs if not run.is_running and not run.is_replayed]
    with suppress(PricingDataError), store.EventLog(Paths(settings.home).log) as log:
        bills, corrections = list[CorrectedBill](), prices.corrections()
        if not corrections:
            return bills
        for run in ended:
            bill = _bill(log.of_run(run.run), corrections, prices)
            if bill is not None and bill.change_usd:
                bills.append(bill)
        return bills
    return []


def _bill(
    events: Sequence[LogRow], corrections: Sequence[PriceCorrection], prices: PriceStore
) -> CorrectedBill | None:
    priced = dict[int, Priced]()
    for row in events:
        if isinstance(row.event, Priced) and row.event.times:
            priced[row.id] = row.event

    billed = {event.market for event in priced.values()}
    later = [each for each in corrections if each.market in billed and each.made > events[-1].at]
    if not later:
        return None

    before = [each for each in corrections if each not in later]
    markets = {each.market for each in later}
    repriced = list[LogRow]()
    for row in events:
        event = priced.get(row.id)
        if event is None or event.market not in markets:
            repriced.append(row)
        else:
            corrected = _corrected(event, prices, (before, corrections))
            repriced.append(row._replace(event=corrected))

    state = fold(events)
    was = project_run(state, RECORDED_ONLY).amount
    would_be = project_run(fold(repriced), RECORDED_ONLY).amount
    made = max(each.made for each in later)
    return CorrectedBill(state.run, made, usd(would_be - was))


def _corrected(
    event: Priced,
    prices: PriceStore,
    corrections: tuple[Sequence[PriceCorrection], Sequence[PriceCorrection]],
) -> Priced:
    """The recorded prices with what later corrections changed, wherever they were those of the
    store at the time.
    """
    then, now = (_series(prices, event.market, made) for made in corrections)
    times, recorded = (np.array(column, dtype=np.int64) for column in (event.times, event.prices))
    together = np.concatenate([times, then.times, now.times])
    every = np.unique(together)
    every = every[(every >= times[0]) & (every <= times[-1])]
    was, stored_then = _at(times, recorded, every), _at(then.times, then.prices, every)
    first = max(then.first, now.first)
    stored = (every >= first) & (stored_then == was)
    stored_now = _at(now.times, now.prices, every)
    right = np.where(stored, stored_now, was)

    return replace(event, times=tuple(every.tolist()), prices=tuple(right.tolist()))


def _series(prices: PriceStore, market: Market, made: Sequence[PriceCorrection]) -> PriceSeries:
    """A market's stored prices as they were with these corrections."""

    def read(paths: Iterable[Any], _: object) -> PriceTable:
        tables = []
        for path in paths:
            with SegmentFile(path) as segment:
                tables.append(segment.read([str(market)]))
        return PriceTable.merged(tables)

    table = prices.over_segments(read).corrected(in_force(made))
    if not table.markets:
        raise UnknownMarket(f"no price history of {market} is stored")
    return next(iter(table))


def _at(times: Ints, prices: Ints, moments: Ints) -> Ints:
    """The price in force at each moment; the first one before that."""
    steps: Ints = prices[np.maximum(np.searchsorted(times, moments, side="right") - 1, 0)]
    return steps
