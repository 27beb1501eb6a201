"""The ledger as a projection of the event log. Pure.

A run's rows are settled once it has ended. From then on they follow from its events alone, because
the last of these record the prices and billing rules of its machines (`Priced`): every projection,
at any time and with any price store, gives the same rows. So they are stored nowhere else, and
cannot differ from the log.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter

import numpy as np

from bidbrain.billing import Bill, BillingRule, Charge, End, Life, billing_rule
from bidbrain.errors import TooLittleHistory
from pricing_data.errors import PricingDataError
from pricing_data.market import NO_ZONE, Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, SECOND
from spotctl.home.errors import SpotctlError
from spotctl.log.budget import (
    LISTING_DELAY,
    Tariff,
    bill_of,
    life_of,
    rule_of,
    seconds_of,
    sent_amount,
)
from spotctl.log.events import Priced
from spotctl.log.ledger.rows import ChargeKind, CostSoFar, LedgerRow, Use
from spotctl.log.ledger.same_work import UseSpan, replacements, use_spans
from spotctl.log.state import LEASE_ENDED, Held, RunState

_MACHINE_TIME = (ChargeKind.COMPUTE, ChargeKind.REFUND)

_UNKNOWN_PRICE = (PricingDataError, TooLittleHistory, SpotctlError)
"""Errors of a tariff that does not have a price."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The rows of some runs. `is_least`: there are costs that are not in the rows. `is_settled`:
    the rows follow from the log alone, because the run has ended, and all its prices are in the
    log."""

    rows: tuple[LedgerRow, ...] = ()
    is_least: bool = False
    is_settled: bool = False

    @property
    def amount(self) -> int:
        """The total, in nano-dollar-seconds."""
        return sum(row.amount for row in self.rows)


def project_run(
    state: RunState, tariff: Tariff, now: int | None = None, *, attended: bool = True
) -> Ledger:
    """The ledger of one run, from the state that follows from its events.

    Unless the run is `attended` by a process, or has ended, its machines are charged until their
    leases end.
    """
    if state.began is None:
        return Ledger()

    until = state.at if now is None or state.ended is not None else max(now, state.at)
    watched = attended if state.ended is None else not state.lost
    tariff = recorded(state, tariff)
    settled = is_settled(state)
    seen = state if watched else charged(state, until)
    billing = tariff if watched else at_most(state, tariff)
    rows = list[LedgerRow]()
    is_whole = True
    renewed = replacements(state)

    for held in sorted(seen.machines.values(), key=attrgetter("started", "id")):
        try:
            page = _Page(seen, held, until, replaces=held.id in renewed, settled=settled)
            of_machine = list(page.charges(bill_of(seen, held, until, billing)))
            if not watched and state.machines[held.id].alive:
                of_machine = doubted(of_machine, least(state, state.machines[held.id], tariff))
        except _UNKNOWN_PRICE:
            is_whole = False
            of_machine = []
        rows += of_machine

    rows += _egress(state, settled=settled)
    # An order without an answer may have brought machines that the log does not have.
    is_whole &= not state.lost and (watched or not state.open_orders)
    spent = None if state.ended is None else state.ended.facts.get("spent")
    if not is_whole and spent is not None:
        missing = spent - sum(row.amount for row in rows)
        rows = [row._replace(doubtful=0) for row in rows]
        rows += _rest(state, missing)

    is_least = bool(state.lost) or (not is_whole and spent is None)
    for event in state.corrections:
        page = _Page(state, state.machines[event.id], state.at, replaces=False, settled=True)
        rows.append(
            page.row(ChargeKind.CORRECTION, event.at, event.at, Use.WORKING, 0, event.amount, 0)
        )

    return Ledger(tuple(rows), is_least, settled)


def spending(state: RunState, tariff: Tariff, now: int, *, attended: bool) -> CostSoFar:
    """The cost of a run so far, as its ledger says it."""
    spent = None if state.ended is None else state.ended.facts.get("spent")
    if spent is not None:
        amount = spent + sum(correction.amount for correction in state.corrections)
        return CostSoFar(amount, amount, bool(state.lost))

    ledger = project_run(state, tariff, now, attended=attended)
    doubtful = sum(row.doubtful for row in ledger.rows)
    return CostSoFar(ledger.amount, ledger.amount - doubtful, ledger.is_least)


def rows_of(state: RunState, now: int, tariff: Tariff, *, settled: bool = False) -> list[LedgerRow]:
    """The rows of a run, machine by machine; their sum is what the budget counts as spent."""
    renewed = replacements(state)
    rows: list[LedgerRow] = []
    for held in sorted(state.machines.values(), key=attrgetter("started", "id")):
        page = _Page(state, held, now, replaces=held.id in renewed, settled=settled)
        rows += page.charges(bill_of(state, held, now, tariff))
    return [*rows, *_egress(state, settled=settled)]


# -- what is settled -------------------------------------------------------------------------------


def priced(state: RunState, now: int, tariff: Tariff) -> list[Priced]:
    """The prices and rules that a run's rows need, for the log."""
    events = list[Priced]()
    for market in dict.fromkeys(allocation.market for allocation in state.allocations.values()):
        spot = {
            number
            for number, allocation in state.allocations.items()
            if allocation.market == market and allocation.bid is not None
        }
        lives = [life_of(held, now) for held in state.machines.values() if held.allocation in spot]
        times = tuple[int, ...]()
        prices = tuple[int, ...]()
        rule = tariff.rule(market).name
        if lives:
            begin = min(life.start for life in lives)
            end = max(life.end for life in lives)
            whole = tariff.prices(market, now).window(begin, end)
            # Repeated prices can go, but the last one says until when prices are known.
            changed = np.diff(whole.prices, prepend=0) != 0
            changed[-1] = True
            times = tuple(whole.times[changed].tolist())
            prices = tuple(whole.prices[changed].tolist())
        events.append(Priced(market, rule, times, prices))

    return events


def unrecorded(state: RunState, now: int, tariff: Tariff) -> list[Priced]:
    """The prices of spot machines that the log does not have yet: those since the run began to use
    each market.
    """
    news = list[Priced]()
    allocations = state.allocations
    started_on = dict[Market, list[int]]()
    for held in state.alive:
        allocation = allocations[held.allocation]
        started = started_on.setdefault(allocation.market, [])
        if allocation.bid is not None:
            started.append(held.started)

    for market, started in started_on.items():
        if not started:
            continue
        known = state.prices.get(market)
        since = min(started) if known is None or not known.times else known.times[-1]
        whole = tariff.prices(market, now)
        until = max(min(now, whole.last), since)
        new = whole.window(max(since, whole.first), until)
        newest = 0 if known is None or not known.times else known.prices[-1]
        changed = np.diff(new.prices, prepend=newest) != 0
        if changed.any():
            times = new.times[changed].tolist()
            prices = new.prices[changed].tolist()
            news.append(Priced(market, tariff.rule(market).name, tuple(times), tuple(prices)))

    return news


def is_settled(state: RunState) -> bool:
    """Whether the run has ended and its log has all prices; a provider may no longer know some of
    them.
    """
    rented_from = {allocation.market for allocation in state.allocations.values()}
    if state.ended is None or not state.prices.keys() >= rented_from:
        return False

    lasting = {market: priced.times[-1] for market, priced in state.prices.items() if priced.times}
    for held in state.machines.values():
        allocation = state.allocations[held.allocation]
        end = held.ended or state.at
        if allocation.bid is not None and end > lasting.get(allocation.market, 0):
            return False

    return True


def recorded(state: RunState, otherwise: Tariff) -> Tariff:
    """The tariff that a run's own events record; the last price holds. `otherwise` prices the
    rest."""
    known = state.prices
    series = {
        market: PriceSeries(
            market, np.array(event.times, dtype=np.int64), np.array(event.prices, dtype=np.int64)
        )
        for market, event in known.items()
        if event.times
    }

    def rule(market: Market) -> BillingRule:
        return billing_rule(known[market].rule) if market in known else otherwise.rule(market)

    def prices(market: Market, now: int) -> PriceSeries:
        if market not in series:
            return otherwise.prices(market, now)
        whole = series[market].held_until(now)
        if state.ended is not None:
            return whole
        return whole.window(whole.first, max(now, whole.first))

    return Tariff(rule, prices)


def _unrecorded(market: Market, _: int) -> PriceSeries:
    raise AssertionError(f"the log of an ended run has the prices of {market}")


RECORDED_ONLY = Tariff(rule_of, _unrecorded)
"""The tariff for runs whose log has all prices."""


# -- one machine -----------------------------------------------------------------------------------


class _Page:
    """The rows of one machine."""

    def __init__(
        self, state: RunState, held: Held, now: int, *, replaces: bool, settled: bool
    ) -> None:
        self.state = state
        self.held = held
        self.now = now
        self.replaces = replaces
        self.settled = settled

        self._spans = list[UseSpan]()
        for begin, end, use in use_spans(state, held, life_of(held, now).end):
            midnights = range((begin // DAY + 1) * DAY, end, DAY)
            self._spans += [
                (since, until, use) for since, until in pairwise((begin, *midnights, end))
            ]

    def charges(self, bill: Bill) -> Iterator[LedgerRow]:
        """The bill cut into parts: a second belongs to the part, and to the day, in which it began.
        Then the machine's disk and address, by the second; evictions do not refund them.

        Time that a rule bills beyond the end of a life was paid and not used.
        """
        whole = life_of(self.held, self.now)
        billed = 0
        for charge in bill.charges:
            last = billed + charge.seconds
            for begin, end, use in self._spans:
                since = max(begin, charge.begin)
                until = min(end, charge.end)
                if since < until:
                    upto = min(max(self._second(until), billed), last)
                    yield from self._charged(charge, since, until, use, upto - billed)
                    billed = upto
            if charge.end == whole.end and not charge.refunded and billed < last:
                yield from self._charged(charge, whole.end, whole.end, Use.UNUSED, last - billed)
            billed = last

        allocation = self.state.allocations[self.held.allocation]
        for kind, price in (
            (ChargeKind.DISK, allocation.disk),
            (ChargeKind.ADDRESS, allocation.address),
        ):
            for begin, end, use in self._spans if price else ():
                amount = price * (self._second(end) - self._second(begin))
                yield self.row(kind, begin, end, use, price, amount, amount)

    def _charged(
        self, charge: Charge, begin: int, end: int, use: Use, seconds: int
    ) -> Iterator[LedgerRow]:
        amount = charge.price * seconds
        listed = self.state.allocations[self.held.allocation].listed * seconds
        yield self.row(ChargeKind.COMPUTE, begin, end, use, charge.price, amount, listed)
        if charge.refunded:
            yield self.row(ChargeKind.REFUND, begin, end, use, charge.price, -amount, 0)

    def row(
        self, kind: ChargeKind, begin: int, end: int, use: Use, price: int, amount: int, listed: int
    ) -> LedgerRow:
        """A row of the machine. Time that only an eviction made necessary has no on-demand
        price."""
        allocation = self.state.allocations[self.held.allocation]
        if use is Use.REDONE or (self.replaces and use in (Use.STARTING, Use.LOADING)):
            listed = 0
        list_price = allocation.listed if kind in _MACHINE_TIME else price
        return LedgerRow(
            self.state.run,
            self.state.job,
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
            listed,
            self.settled,
            list_price,
        )

    def _second(self, at: int) -> int:
        """The number of seconds of the life that have begun."""
        return -(-(at - self.held.started) // SECOND)


# -- other rows ------------------------------------------------------------------------------------


def _egress(state: RunState, *, settled: bool) -> Iterator[LedgerRow]:
    """The traffic of the run's machines, without those whose rows are lost."""
    for sent in state.sent:
        if sent.id in state.machines:
            amount = sent_amount(sent)
            held = state.machines[sent.id]
            page = _Page(state, held, state.at, replaces=False, settled=settled)
            row = page.row(
                ChargeKind.EGRESS, sent.at, sent.at, Use.WORKING, sent.price, amount, amount
            )
            yield row._replace(target=sent.target, sent=sent.bytes)


def _rest(state: RunState, amount: int) -> Iterator[LedgerRow]:
    """The part of what a run is known to have cost that no other row has."""
    assert state.began is not None
    markets = [order.market for order in state.orders.values()]
    if not markets:
        clouds = state.began.provider.split("+")
        markets = [Market(clouds[0], "unknown", NO_ZONE, "unknown")]

    if amount:
        of_run = (state.run, state.job, "", markets[0], False, False)
        of_time = (state.at, state.at, ChargeKind.UNKNOWN, Use.WORKING)
        yield LedgerRow(*of_run, *of_time, 0, amount, 0, settled=True)


# -- machines whose end is not known ---------------------------------------------------------------
#  They cost at most until their leases end, and at least as long as they are known to have run. A
# machine of an interrupted run ends with its lease, unless it was evicted before; until then, no
# price is higher than its bid. If the end of a machine is in lost rows, only the time counts in
# which it is known to have run.


def charged(state: RunState, now: int) -> RunState:
    """The state by `now`, if machines without an end in the log ended with their leases, or, where
    rows are lost, when they are last known to have run."""
    machines = dict(state.machines)
    for held in state.alive:
        end = known_until(state, held) if state.lost else max(held.lease_until, held.started)
        if end <= now:
            machines[held.id] = replace(held, ended=end, end_reason=LEASE_ENDED)
    return replace(state, machines=machines)


def known_until(state: RunState, held: Held) -> int:
    """The last moment at which a machine without a known end is known to have run."""
    seen = [held.started, held.ran or 0, *held.turns, held.gpus_at, held.traffic_at]
    if not state.lost:
        # The last event was written while the machine was listed, by a list that may have been
        # late.
        seen.append(min(state.at - LISTING_DELAY, held.lease_until))
    return max(seen)


def least(state: RunState, held: Held, tariff: Tariff) -> int:
    """The least that a machine without a known end has cost: it may have been evicted, and that
    hour may be free.
    """
    allocation = state.allocations[held.allocation]
    until = known_until(state, held)
    ends = (End.LEFT,) if allocation.bid is None else (End.LEFT, End.EVICTED)
    upto = max(until, held.started)
    prices = tariff.paid(allocation, held, upto)
    rule = tariff.rule(allocation.market)
    bills = [rule.bill(Life(held.started, upto, end), prices).amount for end in ends]
    others = (allocation.disk + allocation.address) * seconds_of(held, until)
    return min(bills) + others


def at_most(state: RunState, tariff: Tariff) -> Tariff:
    """The tariff of an interrupted run: after its last event, each market costs the highest bid for
    its machines.
    """

    def prices(market: Market, now: int) -> PriceSeries:
        if now <= state.at:
            return tariff.prices(market, now)

        known = tariff.prices(market, state.at)
        prices_of_bids = list[int]()
        for held in state.machines.values():
            allocation = state.allocations[held.allocation]
            if allocation.market == market:
                price = 0 if held.bid is None else allocation.highest_price(held.bid)
                prices_of_bids.append(price)

        highest = max(prices_of_bids)
        times = np.append(known.times, now)
        amounts = np.append(known.prices, highest)
        amounts[-2] = max(highest, amounts[-2])

        return PriceSeries(market, times, amounts)

    return Tariff(tariff.rule, prices)


def doubted(rows: Sequence[LedgerRow], least: int) -> list[LedgerRow]:
    """The rows of a machine, with what they say beyond the least as their doubtful part, the latest
    rows first.
    """
    doubt = max(sum(row.amount for row in rows) - least, 0)
    marked = list[LedgerRow]()
    for row in reversed(rows):
        part = min(max(row.amount, 0), doubt)
        marked.append(row._replace(doubtful=part) if part else row)
        doubt -= part
    return marked[::-1]
