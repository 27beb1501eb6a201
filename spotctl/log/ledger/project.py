"""The ledger as a projection of the event log. Pure.

A run's rows are settled once it has ended. From then on they follow from its events alone, because the last of these
record the prices and billing rules of its machines (`Priced`): every projection, at any time and with any price store,
gives the same rows. So they are stored nowhere else, and cannot differ from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

import numpy as np

from bidbrain.billing import Bill, BillingRule, Charge, billing_rule
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, SECOND
from spotctl.log.budget import Tariff, bill_of, life_of, sent_amount
from spotctl.log.events import Corrected, Priced, Sent
from spotctl.log.folding import fold
from spotctl.log.ledger.rows import ChargeKind, LedgerRow, Use
from spotctl.log.ledger.uses import UseSpan, replacements, use_spans
from spotctl.log.log_row import LogRow
from spotctl.log.state import Held, RunState

_MONEY_EVENTS = (Priced, Corrected)
_MACHINE_TIME = (ChargeKind.COMPUTE, ChargeKind.REFUND)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The rows of some runs."""

    rows: tuple[LedgerRow, ...] = ()

    @property
    def amount(self) -> int:
        """The total, in nano-dollar-seconds."""
        return sum(row.amount for row in self.rows)


def project(events: Iterable[LogRow], tariff: Tariff, now: int | None = None) -> Ledger:
    """The ledger of the runs that the events belong to.

    `tariff` prices what is not settled. The rows of an active run end at its last event, or at `now`.
    """
    rows = list[LedgerRow]()
    for _, of_run in groupby(sorted(events, key=lambda row: (row.run, row.id)), key=lambda row: row.run):
        logged = list(of_run)
        rows += project_run(logged, fold(logged), tariff, now).rows
    return Ledger(tuple(rows))


def project_run(events: Sequence[LogRow], state: RunState, tariff: Tariff, now: int | None = None) -> Ledger:
    """The ledger of one run, with the state that follows from its events."""
    if state.began is None:
        return Ledger()
    until = state.at if now is None or state.ended is not None else max(now, state.at)
    # A single pass, because logs are long.
    about = [row for row in events if isinstance(row.event, _MONEY_EVENTS)]
    rows = rows_of(state, until, recorded(about, tariff), settled=_is_settled(state, about))
    return Ledger((*rows, *_corrections(state, about)))


def rows_of(state: RunState, now: int, tariff: Tariff, *, settled: bool = False) -> list[LedgerRow]:
    """The rows of a run, machine by machine; their sum is what the budget counts as spent."""
    renewed = replacements(state)
    rows: list[LedgerRow] = []
    for held in sorted(state.machines.values(), key=lambda held: (held.started, held.id)):
        page = _Page(state, held, now, replaces=held.id in renewed, settled=settled)
        rows += page.computing(bill_of(state, held, now, tariff))
        rows += page.disk_and_address()
    return rows + [_egress(state, sent, settled=settled) for sent in state.sent]


# -- what is settled ---------------------------------------------------------------------------------------------------


def priced(state: RunState, now: int, tariff: Tariff) -> list[Priced]:
    """The prices and rules that a run's rows need, for the log."""
    markets = dict.fromkeys(allocation.market for allocation in state.allocations.values())
    return [_priced(state, market, now, tariff) for market in markets]


def _priced(state: RunState, market: Market, now: int, tariff: Tariff) -> Priced:
    spot = {
        number
        for number, allocation in state.allocations.items()
        if allocation.market == market and allocation.bid is not None
    }
    lives = [life_of(held, now) for held in state.machines.values() if held.allocation in spot]
    rule = tariff.rule(market).name
    if not lives:
        return Priced(market, rule, (), ())
    whole = tariff.prices(market, now).window(min(life.start for life in lives), max(life.end for life in lives))
    # Repeated prices can go, but the last one says until when prices are known.
    changed = np.diff(whole.prices, prepend=0) != 0
    changed[-1] = True
    return Priced(market, rule, tuple(whole.times[changed].tolist()), tuple(whole.prices[changed].tolist()))


def _is_settled(state: RunState, events: Iterable[LogRow]) -> bool:
    """Whether the run has ended and its log has all prices; a provider may no longer know some of them."""
    known = {row.event.market for row in events if isinstance(row.event, Priced)}
    return state.ended is not None and known >= {allocation.market for allocation in state.allocations.values()}


def recorded(events: Iterable[LogRow], otherwise: Tariff) -> Tariff:
    """The tariff that a run's own events record; `otherwise` prices the rest."""
    known = {row.event.market: row.event for row in events if isinstance(row.event, Priced)}
    series = {
        market: PriceSeries(market, np.array(event.times, dtype=np.int64), np.array(event.prices, dtype=np.int64))
        for market, event in known.items()
        if event.times
    }

    def rule(market: Market) -> BillingRule:
        return billing_rule(known[market].rule) if market in known else otherwise.rule(market)

    def prices(market: Market, now: int) -> PriceSeries:
        return series[market] if market in series else otherwise.prices(market, now)

    return Tariff(rule, prices)


# -- one machine -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Page:
    """The rows of one machine."""

    state: RunState
    held: Held
    now: int
    replaces: bool
    settled: bool
    _spans: tuple[UseSpan, ...] = field(init=False)

    def __post_init__(self) -> None:
        life = life_of(self.held, self.now)
        cut = _by_day(use_spans(self.state, self.held, life.end))
        object.__setattr__(self, "_spans", tuple(cut))

    def computing(self, bill: Bill) -> Iterator[LedgerRow]:
        """The bill cut into parts: a second belongs to the part, and to the day, in which it began.

        Time that a rule bills beyond the end of a life (the rest of an hour, a minimum) was paid and not used.
        """
        whole, billed = life_of(self.held, self.now), 0
        for charge in bill.charges:
            last = billed + charge.seconds
            for begin, end, use in self._spans:
                since, until = max(begin, charge.begin), min(end, charge.end)
                if since < until:
                    upto = min(max(self._second(until), billed), last)
                    yield from self._charged(charge, since, until, use, upto - billed)
                    billed = upto
            if charge.end == whole.end and not charge.refunded and billed < last:
                yield from self._charged(charge, whole.end, whole.end, Use.IDLE, last - billed)
            billed = last

    def disk_and_address(self) -> Iterator[LedgerRow]:
        """The rows of the machine's disk and address, by the second; evictions do not refund them."""
        allocation = self.state.allocations[self.held.allocation]
        for kind, price in ((ChargeKind.DISK, allocation.disk), (ChargeKind.ADDRESS, allocation.address)):
            for begin, end, use in self._spans if price else ():
                amount = price * (self._second(end) - self._second(begin))
                yield self.row(kind, begin, end, use, price, amount, amount)

    def _charged(self, charge: Charge, begin: int, end: int, use: Use, seconds: int) -> Iterator[LedgerRow]:
        amount = charge.price * seconds
        listed = self.state.allocations[self.held.allocation].on_demand * seconds
        yield self.row(ChargeKind.COMPUTE, begin, end, use, charge.price, amount, listed)
        if charge.refunded:
            yield self.row(ChargeKind.REFUND, begin, end, use, charge.price, -amount, 0)

    def row(self, kind: ChargeKind, begin: int, end: int, use: Use, price: int, amount: int, listed: int) -> LedgerRow:
        """A row of the machine. Time that only an eviction made necessary has no on-demand price."""
        allocation = self.state.allocations[self.held.allocation]
        needed = use is not Use.REDONE and not (self.replaces and use in (Use.STARTING, Use.LOADING))
        return LedgerRow(
            self.state.run,
            _job(self.state),
            self.held.id,
            allocation.market,
            allocation.reliable,
            allocation.bid is not None,
            begin,
            end,
            kind,
            use,
            price,
            amount,
            listed if needed else 0,
            self.settled,
            allocation.on_demand if kind in _MACHINE_TIME else price,
        )

    def _second(self, at: int) -> int:
        """The number of seconds of the life that have begun."""
        return -(-(at - self.held.started) // SECOND)


def _by_day(whole: Iterable[UseSpan]) -> Iterator[UseSpan]:
    for begin, end, use in whole:
        midnights = range((begin // DAY + 1) * DAY, end, DAY)
        for since, until in pairwise((begin, *midnights, end)):
            yield since, until, use


# -- other rows -------------------------------------------------------------------------------------------------------


def _egress(state: RunState, sent: Sent, *, settled: bool) -> LedgerRow:
    amount = sent_amount(sent)
    page = _Page(state, state.machines[sent.id], state.at, replaces=False, settled=settled)
    row = page.row(ChargeKind.EGRESS, sent.at, sent.at, Use.WORKING, sent.price, amount, amount)
    return row._replace(target=sent.target)


def _corrections(state: RunState, events: Iterable[LogRow]) -> Iterator[LedgerRow]:
    for row in events:
        if isinstance(event := row.event, Corrected):
            page = _Page(state, state.machines[event.id], state.at, replaces=False, settled=True)
            yield page.row(ChargeKind.CORRECTION, event.at, event.at, Use.WORKING, 0, event.amount, 0)


def _job(state: RunState) -> str:
    assert state.began is not None
    return state.began.job
