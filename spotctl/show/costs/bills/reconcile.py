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
        return sum(row.amount for row in self.rows) - sum(
            self.between(*interval) for interval in self.excluded
        )

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
        return minus(
            union(Span(row.begin, max(row.end, row.begin + 1)) for row in self.rows), self.excluded
        )


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
    run_of = {row.machine.lower(): row.run for row in mine}
    usage = [line for line in bill.lines if line.kind is BillKind.USAGE]
    lines_of, others = _own_lines(usage, run_of, has_tags=bill.has_tags)
    rows_of: dict[str, list[LedgerRow]] = defaultdict(list)
    for row in compared:
        rows_of[_name_of(row)].append(row)

    # What a bill charges for traffic beyond the ledger's; doubled lines are differences of their
    # own.
    unmeasured = dict[str, int]()
    for name, lines in lines_of.items():
        once, _ = _without_duplicates(
            [line for line in lines if line.is_traffic and line.currency == DOLLARS]
        )
        beyond = sum(line.nanos for line in once) - sum(row.amount for row in rows_of[name])
        if once and beyond > 0:
            unmeasured[name] = beyond

    parts = [
        _Part(name, rows_of[name], lines_of.get(name, ()), inf if name in unmeasured else tolerance)
        for name in sorted({*rows_of, *lines_of})
    ]
    differences = [difference for part in parts for difference in part.differences()]

    own = [line for lines in lines_of.values() for line in lines]
    machines = {row.machine for row in compared}
    machines |= {line.resource for line in own if line.is_machine}
    unsettled = [row for row in mine if not row.settled]
    unsettled_within = [row for row in unsettled if _is_within(row, bill)]
    ledger = sum(part.ledger.amount for part in parts)
    billed = sum(line.nanos for line in own if line.currency == DOLLARS)
    of_others = sum(line.nanos for line in others if line.currency == DOLLARS)
    traffic_beyond = sum(unmeasured.values())
    converted = {line.billed_in for line in own} - {DOLLARS}

    return Agreement(
        provider=bill.provider,
        differences=tuple(differences),
        machines=len(machines),
        lines=len(own),
        ledger=ledger,
        bill=billed - traffic_beyond,
        others=of_others,
        other_lines=len(others),
        unsettled=len(unsettled),
        unsettled_amount=_sum(unsettled_within),
        outside=len(settled) - len(within),
        outside_amount=_sum(settled) - _sum(within),
        untagged=_sum(within) - _sum(compared),
        foreign=_sum(compared) - ledger,
        adjustments=tuple(_adjustments(bill, run_of)),
        unmeasured=traffic_beyond,
        converted=tuple(sorted(converted)),
    )


def _sum(rows: Iterable[LedgerRow]) -> int:
    return sum(row.amount for row in rows)


def _adjustments(bill: ProviderBill, run_of: Mapping[str, str]) -> Iterator[Adjustment]:
    for kind in BillKind:
        lines = [line for line in bill.lines if line.kind is kind and line.currency == DOLLARS]
        if kind is not BillKind.USAGE and lines:
            own = sum(line.nanos for line in lines if line.run or line.resource in run_of)
            yield Adjustment(kind, own, sum(line.nanos for line in lines) - own)


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
            own[_traffic(run) if line.is_traffic else _other_charges(run)].append(line)
        else:
            others.append(line)

    return own, others


def _name_of(row: LedgerRow) -> str:
    if row.kind is ChargeKind.EGRESS:
        return _traffic(row.run)
    return _other_charges(row.run) if row.kind in NOT_MACHINE_TIME else row.machine.lower()


def _other_charges(run: str) -> str:
    return f"other charges of {run}"


def _traffic(run: str) -> str:
    return f"traffic of {run}"


class _Part:
    """A machine, or the other charges of a run: its ledger rows and its lines of the bill."""

    def __init__(
        self, name: str, rows: Sequence[LedgerRow], lines: Sequence[BillLine], tolerance: float
    ) -> None:
        self._name, self._tolerance = name, tolerance
        once, self._repeated = _with_equals(LedgerTime(rows), *_without_duplicates(lines))
        self._foreign = [line for line in once if line.currency != DOLLARS]
        self._counted = [line for line in once if line.currency == DOLLARS]

        # Time billed in another currency only is left out on both sides, because it cannot be
        # compared.
        foreign = union(Span(line.begin, line.end) for line in self._foreign)
        self.ledger = LedgerTime(
            rows, minus(foreign, union(Span(line.begin, line.end) for line in self._counted))
        )

    def differences(self) -> Iterator[BillDifference]:
        yield from (_of_line(DifferenceKind.DUPLICATE, self._name, line) for line in self._repeated)
        yield from (
            _of_line(DifferenceKind.OTHER_CURRENCY, self._name, line) for line in self._foreign
        )
        paid = sum(line.nanos for line in self._counted)
        if not _is_close(self.ledger.amount, paid, len(self._counted), self._tolerance):
            yield from _locate(self._name, self.ledger, self._counted, self._tolerance)


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
    both = sum(distinct.values()) + sum(more.values())
    if equal and _is_close(ledger.amount, both, len(once) + len(equal), 0):
        paid = set(more)
    else:
        paid = {
            (begin, end)
            for (begin, end), amount in more.items()
            if abs(off := ledger.between(begin, end) - distinct[begin, end]) > abs(off - amount)
        }

    kept = [line for line in equal if (line.begin, line.end) in paid]
    return [*once, *kept], [line for line in repeated if line not in kept] if kept else repeated


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
    return tolerance == inf or abs(ledger - bill) <= max(
        tolerance * max(abs(ledger), abs(bill)), MICRO * max(lines, 1)
    )


def _locate(
    name: str, ledger: LedgerTime, lines: Sequence[BillLine], tolerance: float
) -> Iterator[BillDifference]:
    """Where in time the ledger and the bill differ."""
    billed = union(Span(line.begin, line.end) for line in lines)
    covered = ledger.covered()
    unbilled = [
        (interval, amount)
        for interval in minus(covered, billed)
        if abs(amount := ledger.between(*interval)) > MICRO
    ]

    unknown = [
        line
        for line in lines
        if not any(begin < line.end and line.begin < end for begin, end in covered)
        and abs(line.nanos) > MICRO
    ]

    for (begin, end), amount in unbilled:
        yield BillDifference(DifferenceKind.MISSING_IN_BILL, name, begin, end, ledger=amount)
    for line in unknown:
        yield _of_line(DifferenceKind.MISSING_IN_LEDGER, name, line)
    both = [line for line in lines if line not in unknown]
    known = ledger.amount - sum(amount for _, amount in unbilled)
    bill = sum(line.nanos for line in both)

    if both and not _is_close(known, bill, len(both), tolerance):
        # The periods whose lines do not add up to the ledger's amount for them.
        off = list[BillLine]()
        for line in both:
            together = [
                other.nanos for other in both if (other.begin, other.end) == (line.begin, line.end)
            ]
            paid = ledger.between(line.begin, line.end)
            if not _is_close(paid, sum(together), len(together), tolerance):
                off.append(line)
        off = off or both
        begin, end = min(line.begin for line in off), max(line.end for line in off)
        where = tuple(line.where for line in off)
        yield BillDifference(DifferenceKind.DIFFERS, name, begin, end, known, bill, where=where)
