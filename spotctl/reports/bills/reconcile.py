"""The ledger beside a provider's bill, machine by machine, and by run what is charged beside machines. Pure.

Bills cut time into hours or days and the ledger into stretches of one price, so lines are not compared one to one. A
machine whose sums agree, agrees. Where they do not, its time is looked at: what no line of the bill covers is missing
there, what no row of the ledger covers is missing here, and what is left differs. Lines that are there twice, and lines
in a currency that is not the ledger's, are named and left out of the sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from spotctl.ledger.rows import NANO_SECONDS_PER_DOLLAR, Row
from spotctl.reports.bills.lines import DOLLARS, Bill, BillLine
from spotctl.reports.cost import BESIDE

MICRO = NANO_SECONDS_PER_DOLLAR // 1_000_000
"""A micro-dollar. Bills round each of their lines, which is no difference."""


class Kind(Enum):
    """How ledger and bill can differ."""

    MISSING_IN_BILL = "missing in the bill"
    MISSING_IN_LEDGER = "missing in the ledger"
    DOUBLED = "doubled in the bill"
    OTHER_CURRENCY = "in another currency"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs of a resource, in which time, and both amounts where there are both."""

    kind: Kind
    resource: str
    begin: int
    end: int
    ledger: int | None = None
    bill: int | None = None
    currency: str = DOLLARS
    where: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Agreement:
    """What came of laying one beside the other. Amounts are in nano-dollar-seconds."""

    provider: str
    differences: tuple[Difference, ...]
    machines: int
    lines: int
    ledger: int
    bill: int
    others: int
    other_lines: int
    """Lines that belong to nothing that was rented here, and their sum: they are not compared."""
    unsettled: int
    """Rows of machines that still run, and rows outside of the bill's period: they are not compared."""
    outside: int
    untold: int
    """What the ledger has for disks, addresses and traffic where the bill does not tell whose they are."""

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return not self.differences


def reconciled(rows: Iterable[Row], bill: Bill, tolerance: float) -> Agreement:
    """The ledger's rows beside a bill; `tolerance` is the share by which amounts may differ."""
    mine = [row for row in rows if row.market.cloud == bill.provider]
    settled = [row for row in mine if row.settled]
    within = [row for row in settled if _is_within(row, bill)]
    compared = [row for row in within if bill.tells_tags or row.kind not in BESIDE]
    run_of = {row.machine.lower(): row.run for row in mine}
    lines_of, others = _ours(bill, run_of)
    rows_of: dict[str, list[Row]] = defaultdict(list)
    for row in compared:
        rows_of[_beside(row.run) if row.kind in BESIDE else row.machine.lower()].append(row)
    names = sorted({*rows_of, *lines_of})
    found = [one for name in names for one in _compared(name, rows_of.get(name, ()), lines_of.get(name, ()), tolerance)]
    ours = [line for these in lines_of.values() for line in these]
    return Agreement(
        provider=bill.provider,
        differences=tuple(found),
        machines=len({row.machine for row in compared} | {line.resource for line in ours if line.is_machine}),
        lines=len(ours),
        ledger=sum(row.amount for row in compared),
        bill=sum(line.nanos for line in ours if line.currency == DOLLARS),
        others=sum(line.nanos for line in others if line.currency == DOLLARS),
        other_lines=len(others),
        unsettled=len(mine) - len(settled),
        outside=len(settled) - len(within),
        untold=sum(row.amount for row in within) - sum(row.amount for row in compared),
    )


def _is_within(row: Row, bill: Bill) -> bool:
    """Whether a row belongs to the billing periods of an export; one that names none has to have all."""
    if bill.begin is None or bill.end is None:
        return True
    return bill.begin <= row.begin < bill.end


def _ours(bill: Bill, run_of: Mapping[str, str]) -> tuple[Mapping[str, list[BillLine]], list[BillLine]]:
    """Lines of what was rented here, by machine, or by run where they are of something else; and the others.

    They are known by their tag. Where an export tells none, all that are of machines have to be explained.
    """
    ours: dict[str, list[BillLine]] = defaultdict(list)
    others: list[BillLine] = []
    for line in bill.lines:
        run = line.run or run_of.get(line.resource)
        if line.is_machine and (run or not bill.tells_tags):
            ours[line.resource].append(line)
        elif run and bill.tells_tags:
            ours[_beside(run)].append(line)
        else:
            others.append(line)
    return ours, others


def _beside(run: str) -> str:
    return f"beside the machines of {run}"


def _compared(name: str, rows: Sequence[Row], lines: Sequence[BillLine], tolerance: float) -> Iterator[Difference]:
    once, again = _once(lines)
    foreign = [line for line in once if line.currency != DOLLARS]
    yield from _doubled(name, again)
    yield from _in_other_currencies(name, foreign)
    counted = [line for line in once if line.currency == DOLLARS]
    # What is billed in another currency cannot be compared: its time is left out on both sides.
    known = _Timeline(rows).without(_stretches(foreign, counted))
    paid = sum(line.nanos for line in counted)
    if _is_close(known.amount, paid, len(counted), tolerance):
        return
    yield from _where(name, known, counted, tolerance)


def _once(lines: Sequence[BillLine]) -> tuple[list[BillLine], list[BillLine]]:
    """Each line once, and those that repeat another."""
    seen: set[tuple[object, ...]] = set()
    once, again = list[BillLine](), list[BillLine]()
    for line in lines:
        key = (line.resource, line.begin, line.end, line.what, line.amount, line.currency)
        (again if key in seen else once).append(line)
        seen.add(key)
    return once, again


def _doubled(name: str, again: Sequence[BillLine]) -> Iterator[Difference]:
    for line in again:
        yield Difference(Kind.DOUBLED, name, line.begin, line.end, None, line.nanos, line.currency, (line.where,))


def _in_other_currencies(name: str, foreign: Sequence[BillLine]) -> Iterator[Difference]:
    for line in foreign:
        yield Difference(
            Kind.OTHER_CURRENCY, name, line.begin, line.end, None, line.nanos, line.currency, (line.where,)
        )


def _is_close(ledger: int, bill: int, lines: int, tolerance: float) -> bool:
    return abs(ledger - bill) <= max(tolerance * max(abs(ledger), abs(bill)), MICRO * max(lines, 1))


# -- where in time -----------------------------------------------------------------------------------------------------

Stretch = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Timeline:
    """A machine's rows; the amount of a row accrues evenly over its time, or at once where it has none."""

    rows: Sequence[Row]
    left_out: tuple[Stretch, ...] = ()

    @property
    def amount(self) -> int:
        """What is left."""
        return sum(row.amount for row in self.rows) - sum(self.between(*stretch) for stretch in self.left_out)

    def without(self, stretches: tuple[Stretch, ...]) -> _Timeline:
        """The same without some of its time."""
        return _Timeline(self.rows, stretches)

    def between(self, begin: int, end: int) -> int:
        """What accrued in a stretch."""
        return sum(_accrued(row, begin, end) for row in self.rows)

    def covered(self) -> tuple[Stretch, ...]:
        """When the ledger has it, without what is left out."""
        return _minus(_union((row.begin, max(row.end, row.begin + 1)) for row in self.rows), self.left_out)


def _accrued(row: Row, begin: int, end: int) -> int:
    if row.begin == row.end:
        # What is charged beyond the end of a life belongs to the period in which that ended.
        return row.amount if begin < row.end <= end else 0
    since, until = max(begin, row.begin), min(end, row.end)
    return row.amount * (until - since) // (row.end - row.begin) if since < until else 0


def _where(name: str, known: _Timeline, lines: Sequence[BillLine], tolerance: float) -> Iterator[Difference]:
    billed = _union((line.begin, line.end) for line in lines)
    here = known.covered()
    unbilled = [(stretch, amount) for stretch in _minus(here, billed) if abs(amount := known.between(*stretch)) > MICRO]
    strange = [line for line in lines if not _overlaps(here, line) and abs(line.nanos) > MICRO]
    for (begin, end), amount in unbilled:
        yield Difference(Kind.MISSING_IN_BILL, name, begin, end, ledger=amount)
    for line in strange:
        yield Difference(Kind.MISSING_IN_LEDGER, name, line.begin, line.end, bill=line.nanos, where=(line.where,))
    both = [line for line in lines if line not in strange]
    ledger = known.amount - sum(amount for _, amount in unbilled)
    bill = sum(line.nanos for line in both)
    if both and not _is_close(ledger, bill, len(both), tolerance):
        off = [line for line in both if _is_off(known, both, line, tolerance)] or both
        begin, end = min(line.begin for line in off), max(line.end for line in off)
        places = tuple(line.where for line in off)
        yield Difference(Kind.DIFFERS, name, begin, end, ledger, bill, where=places)


def _is_off(known: _Timeline, lines: Sequence[BillLine], line: BillLine, tolerance: float) -> bool:
    """Whether the lines of one period do not come to what the ledger has for it."""
    together = [one for one in lines if (one.begin, one.end) == (line.begin, line.end)]
    there = known.between(line.begin, line.end)
    return not _is_close(there, sum(one.nanos for one in together), len(together), tolerance)


def _overlaps(stretches: Sequence[Stretch], line: BillLine) -> bool:
    return any(begin < line.end and line.begin < end for begin, end in stretches)


def _stretches(foreign: Sequence[BillLine], counted: Sequence[BillLine]) -> tuple[Stretch, ...]:
    """Time that is billed in another currency alone."""
    there = _union((line.begin, line.end) for line in foreign)
    return _minus(there, _union((line.begin, line.end) for line in counted))


def _union(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    joined: list[Stretch] = []
    for begin, end in sorted(stretches):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return tuple(joined)


def _minus(stretches: Iterable[Stretch], taken: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """Of stretches what others, in order and apart, do not cover."""
    left: list[Stretch] = []
    for begin, end in stretches:
        at = begin
        for since, until in taken:
            if until <= at or since >= end:
                continue
            if at < since:
                left.append((at, since))
            at = max(at, until)
        if at < end:
            left.append((at, end))
    return tuple(left)
