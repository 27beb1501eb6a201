"""Compares the ledger with a provider's bill: machines one by one, other charges by run. Pure.

Bills divide time into hours or days and the ledger into intervals of one price, so lines are not compared one to one. A
machine whose sums agree, agrees. Otherwise its time is examined: what no bill line covers is missing in the bill, what
no ledger row covers is missing in the ledger, and the rest differs. Duplicate lines, and lines in another currency than
the ledger's, are listed and left out of the sums.

Of traffic, the ledger has moves of checkpoints between regions only: machines do not measure what else they send. What
the bill charges beyond these moves is added up, and is no difference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf

from bidbrain.billing.bill import NANO_SECONDS_PER_DOLLAR
from spotctl.clouds.bill_lines import DOLLARS, BillKind, BillLine, ProviderBill
from spotctl.log.ledger.rows import ChargeKind, LedgerRow
from spotctl.show.costs.figures import NOT_MACHINE_TIME

MICRO = NANO_SECONDS_PER_DOLLAR // 1_000_000
"""A micro-dollar: bills round each line, which does not count as a difference."""


class DifferenceKind(Enum):
    """How the ledger and the bill can differ."""

    MISSING_IN_BILL = "missing in the bill"
    MISSING_IN_LEDGER = "missing in the ledger"
    DUPLICATE = "doubled in the bill"
    OTHER_CURRENCY = "in another currency"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class BillDifference:
    """A difference for a resource in a period, with the amounts of the ledger and the bill if there are any."""

    kind: DifferenceKind
    resource: str
    begin: int
    end: int
    ledger: int | None = None
    bill: int | None = None
    currency: str = DOLLARS
    where: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Adjustment:
    """Credits, discounts, taxes, refunds or fees: those for resources of spotctl, and all others of the bill."""

    kind: BillKind
    own: int
    others: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """The result of a comparison. Amounts are in nano-dollar-seconds."""

    provider: str
    differences: tuple[BillDifference, ...]
    machines: int
    lines: int
    ledger: int
    bill: int
    others: int
    other_lines: int
    """`others` is the sum of the `other_lines` that are for resources not rented by spotctl; not compared."""
    unsettled: int
    """Ledger rows of machines that are still running; not compared."""
    outside: int
    """Ledger rows outside the billing period; not compared."""
    untagged: int
    """The ledger's amount for disks, addresses and traffic if the bill has no tags; not compared."""
    adjustments: tuple[Adjustment, ...] = ()
    unmeasured: int = 0
    """Traffic in the bill beyond that in the ledger; not compared."""
    converted: tuple[str, ...] = ()
    """The currencies that were converted with the bill's own rates."""

    @property
    def agrees(self) -> bool:
        """Whether there are no differences."""
        return not self.differences

    @property
    def disputed(self) -> Mapping[DifferenceKind, int]:
        """The amounts of differences in dollars, by kind."""
        amounts: Counter[DifferenceKind] = Counter()
        for difference in self.differences:
            if difference.currency == DOLLARS:
                amounts[difference.kind] += abs((difference.bill or 0) - (difference.ledger or 0))
        return amounts

    @property
    def agreed(self) -> float:
        """The share of all amounts, of either side, that both have; 1 only without differences."""
        disputed = self.disputed
        in_bill_only = disputed.get(DifferenceKind.MISSING_IN_LEDGER, 0) + disputed.get(DifferenceKind.DUPLICATE, 0)
        whole = max(abs(self.ledger) + in_bill_only, sum(disputed.values()))
        return 1 - sum(disputed.values()) / whole if whole else float(self.agrees)


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
    unmeasured = {name: more for name in lines_of if (more := _unmeasured(rows_of[name], lines_of[name])) > 0}
    differences = [
        difference
        for name in sorted({*rows_of, *lines_of})
        for difference in _compare(
            name, rows_of[name], lines_of.get(name, ()), inf if name in unmeasured else tolerance
        )
    ]
    own = [line for lines in lines_of.values() for line in lines]
    return Agreement(
        provider=bill.provider,
        differences=tuple(differences),
        machines=len({row.machine for row in compared} | {line.resource for line in own if line.is_machine}),
        lines=len(own),
        ledger=sum(row.amount for row in compared),
        bill=sum(line.nanos for line in own if line.currency == DOLLARS) - sum(unmeasured.values()),
        others=sum(line.nanos for line in others if line.currency == DOLLARS),
        other_lines=len(others),
        unsettled=len(mine) - len(settled),
        outside=len(settled) - len(within),
        untagged=sum(row.amount for row in within) - sum(row.amount for row in compared),
        adjustments=tuple(_adjustments(bill, run_of)),
        unmeasured=sum(unmeasured.values()),
        converted=tuple(sorted({line.billed_in for line in own} - {DOLLARS})),
    )


def _adjustments(bill: ProviderBill, run_of: Mapping[str, str]) -> Iterator[Adjustment]:
    for kind in BillKind:
        lines = [line for line in bill.lines if line.kind is kind and line.currency == DOLLARS]
        if kind is not BillKind.USAGE and lines:
            own = sum(line.nanos for line in lines if line.run or line.resource in run_of)
            yield Adjustment(kind, own, sum(line.nanos for line in lines) - own)


def _is_within(row: LedgerRow, bill: ProviderBill) -> bool:
    """Whether a row is in the billing period; an export without one is expected to cover everything."""
    if bill.begin is None or bill.end is None:
        return True
    return bill.begin <= row.begin < bill.end


def _own_lines(
    lines: Iterable[BillLine], run_of: Mapping[str, str], *, has_tags: bool
) -> tuple[Mapping[str, list[BillLine]], list[BillLine]]:
    """The lines of resources rented by spotctl, by machine, or by run for other charges; and all other lines.

    The tag identifies these lines. In an export without tags, the ledger must explain every line of a machine.
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


def _unmeasured(rows: Sequence[LedgerRow], lines: Sequence[BillLine]) -> int:
    """The amount that a bill charges for traffic beyond the ledger's; doubled lines are differences of their own."""
    once, _ = _without_duplicates([line for line in lines if line.is_traffic and line.currency == DOLLARS])
    return sum(line.nanos for line in once) - sum(row.amount for row in rows) if once else 0


def _compare(
    name: str, rows: Sequence[LedgerRow], lines: Sequence[BillLine], tolerance: float
) -> Iterator[BillDifference]:
    once, repeated = _without_duplicates(lines)
    foreign = [line for line in once if line.currency != DOLLARS]
    yield from _duplicates(name, repeated)
    yield from _in_other_currencies(name, foreign)
    counted = [line for line in once if line.currency == DOLLARS]
    # Time billed in another currency is left out on both sides, because it cannot be compared.
    ledger = _LedgerTime(rows).without(_foreign_time(foreign, counted))
    paid = sum(line.nanos for line in counted)
    if _is_close(ledger.amount, paid, len(counted), tolerance):
        return
    yield from _locate(name, ledger, counted, tolerance)


def _without_duplicates(lines: Sequence[BillLine]) -> tuple[list[BillLine], list[BillLine]]:
    """The distinct lines, and those that repeat one of them."""
    keys: set[tuple[object, ...]] = set()
    once, repeated = list[BillLine](), list[BillLine]()
    for line in lines:
        key = (line.resource, line.begin, line.end, line.what, line.amount, line.currency)
        (repeated if key in keys else once).append(line)
        keys.add(key)
    return once, repeated


def _duplicates(name: str, repeated: Sequence[BillLine]) -> Iterator[BillDifference]:
    for line in repeated:
        yield _of_line(DifferenceKind.DUPLICATE, name, line)


def _in_other_currencies(name: str, foreign: Sequence[BillLine]) -> Iterator[BillDifference]:
    for line in foreign:
        yield _of_line(DifferenceKind.OTHER_CURRENCY, name, line)


def _of_line(kind: DifferenceKind, name: str, line: BillLine) -> BillDifference:
    return BillDifference(kind, name, line.begin, line.end, None, line.nanos, line.currency, (line.where,))


def _is_close(ledger: int, bill: int, lines: int, tolerance: float) -> bool:
    return tolerance == inf or abs(ledger - bill) <= max(tolerance * max(abs(ledger), abs(bill)), MICRO * max(lines, 1))


# -- time -------------------------------------------------------------------------------------------------------------

TimeSpanUs = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _LedgerTime:
    """The rows of a machine. The amount of a row accrues evenly over its time, or at once if it has no length."""

    rows: Sequence[LedgerRow]
    excluded: tuple[TimeSpanUs, ...] = ()

    @property
    def amount(self) -> int:
        """The sum of the rows without the excluded time."""
        return sum(row.amount for row in self.rows) - sum(self.between(*interval) for interval in self.excluded)

    def without(self, intervals: tuple[TimeSpanUs, ...]) -> _LedgerTime:
        """These rows, with some time excluded."""
        return _LedgerTime(self.rows, intervals)

    def between(self, begin: int, end: int) -> int:
        """The amount that accrued in an interval."""
        return sum(_accrued(row, begin, end) for row in self.rows)

    def covered(self) -> tuple[TimeSpanUs, ...]:
        """The time that the rows cover, without the excluded time."""
        return _minus(_union((row.begin, max(row.end, row.begin + 1)) for row in self.rows), self.excluded)


def _accrued(row: LedgerRow, begin: int, end: int) -> int:
    if row.begin == row.end:
        # A charge for time after the end of a machine belongs to the period in which the machine ended.
        return row.amount if begin < row.end <= end else 0
    since, until = max(begin, row.begin), min(end, row.end)
    return row.amount * (until - since) // (row.end - row.begin) if since < until else 0


def _locate(name: str, ledger: _LedgerTime, lines: Sequence[BillLine], tolerance: float) -> Iterator[BillDifference]:
    """Where in time the ledger and the bill differ."""
    billed = _union((line.begin, line.end) for line in lines)
    covered = ledger.covered()
    unbilled = [
        (interval, amount) for interval in _minus(covered, billed) if abs(amount := ledger.between(*interval)) > MICRO
    ]
    unknown = [line for line in lines if not _overlaps(covered, line) and abs(line.nanos) > MICRO]
    for (begin, end), amount in unbilled:
        yield BillDifference(DifferenceKind.MISSING_IN_BILL, name, begin, end, ledger=amount)
    for line in unknown:
        yield _of_line(DifferenceKind.MISSING_IN_LEDGER, name, line)
    both = [line for line in lines if line not in unknown]
    known = ledger.amount - sum(amount for _, amount in unbilled)
    bill = sum(line.nanos for line in both)
    if both and not _is_close(known, bill, len(both), tolerance):
        off = [line for line in both if _is_off(ledger, both, line, tolerance)] or both
        begin, end = min(line.begin for line in off), max(line.end for line in off)
        where = tuple(line.where for line in off)
        yield BillDifference(DifferenceKind.DIFFERS, name, begin, end, known, bill, where=where)


def _is_off(ledger: _LedgerTime, lines: Sequence[BillLine], line: BillLine, tolerance: float) -> bool:
    """Whether the lines of this period do not add up to the ledger's amount for it."""
    together = [other for other in lines if (other.begin, other.end) == (line.begin, line.end)]
    amount = ledger.between(line.begin, line.end)
    return not _is_close(amount, sum(other.nanos for other in together), len(together), tolerance)


def _overlaps(intervals: Sequence[TimeSpanUs], line: BillLine) -> bool:
    return any(begin < line.end and line.begin < end for begin, end in intervals)


def _foreign_time(foreign: Sequence[BillLine], counted: Sequence[BillLine]) -> tuple[TimeSpanUs, ...]:
    """The time that is billed in another currency only."""
    covered = _union((line.begin, line.end) for line in foreign)
    return _minus(covered, _union((line.begin, line.end) for line in counted))


def _union(intervals: Iterable[TimeSpanUs]) -> tuple[TimeSpanUs, ...]:
    joined: list[TimeSpanUs] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return tuple(joined)


def _minus(intervals: Iterable[TimeSpanUs], removed: Sequence[TimeSpanUs]) -> tuple[TimeSpanUs, ...]:
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
