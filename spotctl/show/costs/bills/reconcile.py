"""Compares the ledger with a provider's bill: machines one by one, other charges by run. Pure.

Bills divide time into hours or days and the ledger into intervals of one price, so lines are not
compared one to one. A machine whose sums agree, agrees. Otherwise its time is examined: what no
bill line covers is missing in the bill, what no ledger row covers is missing in the ledger, and the
rest differs. Duplicate lines, and lines in another currency than the ledger's, are listed and left
out of the sums.

Of traffic, the ledger has moves of checkpoints between regions only: machines do not measure what
else they send. What the bill charges beyond these moves is added up, and is no difference.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from pricing_data.series import union
from pricing_data.units import Span
from spotctl.clouds.bills import DOLLARS, BillKind, BillLine, ProviderBill
from spotctl.log.ledger.account import NOT_MACHINE_TIME
from spotctl.log.ledger.rows import ChargeKind, LedgerRow
from spotctl.show.costs.bills.views import (
    MICRO,
    Adjustment,
    Agreement,
    BillDifference,
    DifferenceKind,
)

TimeSpanUs = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LedgerTime:
    """The rows of a machine. The amount of a row accrues evenly over its time, or at once if it has
    no length.
    """

    rows: Sequence[LedgerRow]
    excluded: tuple[TimeSpanUs, ...] = ()

    @property
    def amount(self) -> int:
        """The sum of the rows without the excluded time."""
        whole = _sum(self.rows)
        excluded = sum(self.between(*interval) for interval in self.excluded)
        return whole - excluded

    def between(self, begin: int, end: int) -> int:
        """The amount that accrued in an interval."""
        amount = 0
        for row in self.rows:
            since, until = max(begin, row.begin), min(end, row.end)
            if row.begin == row.end:
                # A charge for time after the end of a machine belongs to the period in which the
                # machine ended.
                amount += row.amount if begin < row.end <= end else 0
            elif since < until:
                amount += row.amount * (until - since) // (row.end - row.begin)

        return amount

    def covered(self) -> tuple[TimeSpanUs, ...]:
        """The time that the rows cover, without the excluded time."""
        spans = list[Span]()
        for row in self.rows:
            end = max(row.end, row.begin + 1)
            spans.append(Span(row.begin, end))
        return minus(union(spans), self.excluded)


def minus(intervals: Iterable[TimeSpanUs], removed: Sequence[TimeSpanUs]) -> tuple[TimeSpanUs, ...]:
    """The parts of `intervals` outside `removed`, which is sorted and disjoint."""
    rest: list[TimeSpanUs] = []
    for begin, end in intervals:
        at = begin
        for since, until in removed:
            if until <= at or since >= end:
                continue
            if at < since:
                rest.append((at, since))
            at = max(at, until)
        if at < end:
            rest.append((at, end))

    return tuple(rest)


def reconcile(rows: Iterable[LedgerRow], bill: ProviderBill, tolerance: float) -> Agreement:
    """Compares ledger rows with a bill; `tolerance` is the share by which amounts may differ."""
    mine = [row for row in rows if row.market.cloud == bill.provider]
    settled = [row for row in mine if row.settled]
    within = [row for row in settled if _is_within(row, bill)]
    compared = [row for row in within if bill.has_tags or row.kind not in NOT_MACHINE_TIME]
    rows_of: dict[str, list[LedgerRow]] = defaultdict(list)
    for row in compared:
        rows_of[_name_of(row)].append(row)

    run_of = {row.machine.lower(): row.run for row in mine}
    usage = [line for line in bill.lines if line.kind is BillKind.USAGE]
    lines_of, others = _own_lines(usage, run_of, has_tags=bill.has_tags)
    unmeasured = _unmeasured(lines_of, rows_of)
    differences, ledger = list[BillDifference](), 0
    for name in sorted({*rows_of, *lines_of}):
        allowed = inf if name in unmeasured else tolerance
        of_part, amount = _compared(name, rows_of[name], lines_of.get(name, ()), allowed)
        differences += of_part
        ledger += amount

    own = [line for lines in lines_of.values() for line in lines]
    machines = {row.machine for row in compared}
    machines |= {line.resource for line in own if line.is_machine}
    unsettled = [row for row in mine if not row.settled]
    unsettled_within = [row for row in unsettled if _is_within(row, bill)]
    traffic_beyond = sum(unmeasured.values())
    billed, amount_within = _in_dollars(own), _sum(within)
    amount_compared = _sum(compared)
    converted = {line.billed_in for line in own} - {DOLLARS}

    return Agreement(
        provider=bill.provider,
        differences=tuple(differences),
        machines=len(machines),
        lines=len(own),
        ledger=ledger,
        bill=billed - traffic_beyond,
        others=_in_dollars(others),
        other_lines=len(others),
        unsettled=len(unsettled),
        unsettled_amount=_sum(unsettled_within),
        outside=len(settled) - len(within),
        outside_amount=_sum(settled) - amount_within,
        untagged=amount_within - amount_compared,
        foreign=amount_compared - ledger,
        adjustments=tuple(_adjustments(bill, run_of)),
        unmeasured=traffic_beyond,
        converted=tuple(sorted(converted)),
    )


def _compared(
    name: str, rows: Sequence[LedgerRow], lines: Sequence[BillLine], tolerance: float
) -> tuple[list[BillDifference], int]:
    """The differences of a machine, or of the other charges of a run, and the ledger's amount that
    was compared.
    """
    first, more = _without_duplicates(lines)
    once, repeated = _with_equals(LedgerTime(rows), first, more)
    foreign = [line for line in once if line.currency != DOLLARS]
    counted = [line for line in once if line.currency == DOLLARS]

    # Time billed in another currency only is left out on both sides, because it cannot be
    # compared.
    excluded = minus(_billed_time(foreign), _billed_time(counted))
    ledger = LedgerTime(rows, excluded)
    differences = [_of_line(DifferenceKind.DUPLICATE, name, line) for line in repeated]
    differences += [_of_line(DifferenceKind.OTHER_CURRENCY, name, line) for line in foreign]
    if not _is_close(ledger.amount, _in_dollars(counted), len(counted), tolerance):
        differences += _locate(name, ledger, counted, tolerance)

    return differences, ledger.amount


def _billed_time(lines: Iterable[BillLine]) -> tuple[TimeSpanUs, ...]:
    return tuple(union(Span(line.begin, line.end) for line in lines))


def _in_dollars(lines: Iterable[BillLine]) -> int:
    """The sum of the lines that are in dollars, in nano-dollars."""
    return sum(line.nanos for line in lines if line.currency == DOLLARS)


def _unmeasured(
    lines_of: Mapping[str, Sequence[BillLine]], rows_of: Mapping[str, Sequence[LedgerRow]]
) -> dict[str, int]:
    """The amounts that a bill charges for traffic beyond the ledger's, by name; doubled lines are
    differences of their own.
    """
    beyond = dict[str, int]()
    for name, lines in lines_of.items():
        traffic = [line for line in lines if line.is_traffic and line.currency == DOLLARS]
        once, _ = _without_duplicates(traffic)
        more = _in_dollars(once) - _sum(rows_of.get(name, ()))
        if once and more > 0:
            beyond[name] = more

    return beyond


def _sum(rows: Iterable[LedgerRow]) -> int:
    return sum(row.amount for row in rows)


def _adjustments(bill: ProviderBill, run_of: Mapping[str, str]) -> Iterator[Adjustment]:
    for kind in BillKind:
        lines = [line for line in bill.lines if line.kind is kind and line.currency == DOLLARS]
        if kind is not BillKind.USAGE and lines:
            own = [line for line in lines if line.run or line.resource in run_of]
            of_own = _in_dollars(own)
            yield Adjustment(kind, of_own, _in_dollars(lines) - of_own)


def _is_within(row: LedgerRow, bill: ProviderBill) -> bool:
    """Whether a row is in the billing period; an export without one is expected to cover
    everything.
    """
    if bill.begin is None or bill.end is None:
        return True
    return bill.begin <= row.begin < bill.end


def _own_lines(
    lines: Iterable[BillLine], run_of: Mapping[str, str], *, has_tags: bool
) -> tuple[Mapping[str, list[BillLine]], list[BillLine]]:
    """The lines of resources rented by spotctl, by machine, or by run for other charges; and all
    other lines.

    The tag identifies these lines. In an export without tags, the ledger must explain every line of
    a machine.
    """
    own: dict[str, list[BillLine]] = defaultdict(list)
    others: list[BillLine] = []
    for line in lines:
        run = line.run or run_of.get(line.resource)
        if line.is_machine and (run or not has_tags):
            own[line.resource].append(line)
        elif run and has_tags:
            charged = "traffic" if line.is_traffic else "other charges"
            own[f"{charged} of {run}"].append(line)
        else:
            others.append(line)

    return own, others


def _name_of(row: LedgerRow) -> str:
    if row.kind is ChargeKind.EGRESS:
        return f"traffic of {row.run}"
    if row.kind in NOT_MACHINE_TIME:
        return f"other charges of {row.run}"
    return row.machine.lower()


def _without_duplicates(lines: Sequence[BillLine]) -> tuple[list[BillLine], list[BillLine]]:
    """The distinct lines, and those that repeat one of them: its ID, or without IDs all of its
    cells.
    """
    keys: set[tuple[object, ...]] = set()
    once, repeated = list[BillLine](), list[BillLine]()
    for line in lines:
        key = (
            line.line_id,
            line.row,
            line.resource,
            line.begin,
            line.end,
            line.what,
            line.amount,
            line.currency,
        )
        (repeated if key in keys else once).append(line)
        keys.add(key)

    return once, repeated


def _with_equals(
    ledger: LedgerTime, once: list[BillLine], repeated: list[BillLine]
) -> tuple[list[BillLine], list[BillLine]]:
    """Adds equal lines without IDs if the ledger paid for each: a bill may have two equal charges
    for one period.
    """
    equal = [line for line in repeated if not line.line_id and line.currency == DOLLARS]
    distinct, more = _by_period(once), _by_period(equal)
    both, number = sum(distinct.values()) + sum(more.values()), len(once) + len(equal)
    paid = set[tuple[int, int]]()
    if equal and _is_close(ledger.amount, both, number, 0):
        paid = set(more)
    else:
        for period, amount in more.items():
            off = ledger.between(*period) - distinct[period]
            if abs(off) > abs(off - amount):
                paid.add(period)

    kept = [line for line in equal if (line.begin, line.end) in paid]
    if not kept:
        return once, repeated
    return [*once, *kept], [line for line in repeated if line not in kept]


def _by_period(lines: Iterable[BillLine]) -> Counter[TimeSpanUs]:
    """The amount in dollars that is charged for each period."""
    amounts: Counter[TimeSpanUs] = Counter()
    for line in lines:
        if line.currency == DOLLARS:
            amounts[line.begin, line.end] += line.nanos
    return amounts


def _of_line(kind: DifferenceKind, name: str, line: BillLine) -> BillDifference:
    return BillDifference(
        kind, name, line.begin, line.end, None, line.nanos, line.currency, (line.where,)
    )


def _is_close(ledger: int, bill: int, lines: int, tolerance: float) -> bool:
    larger = max(abs(ledger), abs(bill))
    rounding = MICRO * max(lines, 1)
    if tolerance == inf:
        return True
    return abs(ledger - bill) <= max(tolerance * larger, rounding)


def _locate(
    name: str, ledger: LedgerTime, lines: Sequence[BillLine], tolerance: float
) -> Iterator[BillDifference]:
    """Where in time the ledger and the bill differ."""
    covered, both = ledger.covered(), list[BillLine]()
    known = ledger.amount
    for begin, end in minus(covered, _billed_time(lines)):
        amount = ledger.between(begin, end)
        if abs(amount) > MICRO:
            known -= amount
            yield BillDifference(DifferenceKind.MISSING_IN_BILL, name, begin, end, ledger=amount)

    for line in lines:
        is_covered = any(begin < line.end and line.begin < end for begin, end in covered)
        if is_covered or abs(line.nanos) <= MICRO:
            both.append(line)
        else:
            yield _of_line(DifferenceKind.MISSING_IN_LEDGER, name, line)

    bill = sum(line.nanos for line in both)
    if both and not _is_close(known, bill, len(both), tolerance):
        # The periods whose lines do not add up to the ledger's amount for them.
        off = list[BillLine]()
        for line in both:
            period = line.begin, line.end
            together = [other.nanos for other in both if (other.begin, other.end) == period]
            paid, billed = ledger.between(*period), sum(together)
            if not _is_close(paid, billed, len(together), tolerance):
                off.append(line)

        off = off or both
        begin, end = min(line.begin for line in off), max(line.end for line in off)
        where = tuple(line.where for line in off)
        yield BillDifference(DifferenceKind.DIFFERS, name, begin, end, known, bill, where=where)
