"""A comparison of ledger and bill as JSON and as lines of text."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from math import floor
from operator import attrgetter

from pricing_data.units import NANO_SECONDS_PER_DOLLAR, counted, format_time, moment
from spotctl.clouds.bills import DOLLARS, BillKind
from spotctl.log.events import Corrected
from spotctl.log.ledger.rows import LedgerRow, micro_dollars, usd
from spotctl.show.columns import Column

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
    """A difference for a resource in a period, with the amounts of the ledger and the bill if there
    are any.
    """

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
    """Credits, discounts, taxes, refunds or fees: those for resources of spotctl, and all others of
    the bill.
    """

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
    """`others` is the sum of the `other_lines` that are for resources not rented by spotctl; not
    compared."""
    unsettled: int
    unsettled_amount: int
    """Ledger rows of machines that are still running, and their amount in the billing period; not
    compared."""
    outside: int
    outside_amount: int
    """Ledger rows outside the billing period; not compared, and not in the share that was."""
    untagged: int
    """The ledger's amount for disks, addresses and traffic if the bill has no tags; not
    compared."""
    foreign: int = 0
    """The ledger's amount for time that is billed in a currency without a rate; not compared."""
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
    def not_compared(self) -> int:
        """The ledger's amount in the billing period that could not be compared."""
        return self.unsettled_amount + self.untagged + self.foreign

    @property
    def compared(self) -> float | None:
        """The share of the ledger's amount in the billing period that could be compared; None
        without an amount.
        """
        whole = self.ledger + self.not_compared
        if whole > 0:
            return self.ledger / whole
        return None

    @property
    def disputed(self) -> Mapping[DifferenceKind, int]:
        """The amounts of differences in dollars, by kind."""
        amounts: Counter[DifferenceKind] = Counter()
        for difference in self.differences:
            if difference.currency == DOLLARS:
                amounts[difference.kind] += abs((difference.bill or 0) - (difference.ledger or 0))
        return amounts

    @property
    def agreed(self) -> float | None:
        """The share of all compared amounts, of either side, that both have; None if there was
        nothing to compare.
        """
        disputed = self.disputed
        in_bill_only = disputed.get(DifferenceKind.MISSING_IN_LEDGER, 0) + disputed.get(
            DifferenceKind.DUPLICATE, 0
        )
        whole = max(abs(self.ledger) + in_bill_only, sum(disputed.values()))
        if whole:
            return 1 - sum(disputed.values()) / whole
        return None


def corrections(
    agreement: Agreement, rows: Iterable[LedgerRow], bill: str
) -> list[tuple[str, Corrected]]:
    """The corrections that give machines the amounts of the bill, each with its run.

    Only for machines in both: a row that is missing in the ledger or the bill needs an answer, not
    another amount.
    """
    last = {row.machine.lower(): row for row in sorted(rows, key=attrgetter("end"))}
    corrected = list[tuple[str, Corrected]]()
    for difference in agreement.differences:
        row, paid, billed = last.get(difference.resource), difference.ledger, difference.bill
        if difference.kind is not DifferenceKind.DIFFERS or row is None:
            continue
        if paid is None or billed is None:
            continue
        why = bill
        if difference.where:
            why = f"{bill}, {difference.where[0]}"
        end = min(difference.end, row.end)
        corrected.append((row.run, Corrected(row.machine, end, billed - paid, why)))

    return corrected


MAX_LISTED, MAX_PLACES = 200, 4
"""The most differences listed on the terminal, and the most lines of the bill for one; JSON has
all."""


def percent(share: float | None) -> float | None:
    """A share in percent with one decimal, rounded down so that only all of it gives 100."""
    if share is None:
        return None
    return floor(max(share, 0.0) * 1000 + 1e-9) / 10


DIFFERENCE: tuple[Column[BillDifference], ...] = (
    Column("kind", "what differs", "kind.value"),
    Column("resource", "id of the machine, disk or address"),
    Column(
        "from",
        "beginning of the period in question",
        "begin",
        form=format_time,
    ),
    Column("to", "its end", "end", form=format_time),
    Column("ledger_usd", "amount in the ledger; null if the ledger has none", "ledger", form=usd),
    Column(
        "bill_amount",
        "amount in the bill, in its currency; null if the bill has none",
        "bill",
        form=usd,
    ),
    Column("currency", "currency of the bill"),
    Column("lines", "places of the lines in the bill", "where", form=list),
)

AGREEMENT: tuple[Column[Agreement], ...] = (
    Column("provider", "cloud that sent the bill"),
    Column("agrees", "whether there are no differences"),
    Column(
        "agreed_pct",
        "percentage of the compared amount on which ledger and bill agree; null if nothing was "
        "compared",
        "agreed",
        form=percent,
    ),
    Column(
        "compared_pct",
        "percentage of the ledger in the billing period that could be compared; null if it has no "
        "amount",
        "compared",
        form=percent,
    ),
    Column(
        "not_compared_usd",
        "sum of the ledger in the billing period that could not be compared",
        "not_compared",
        form=usd,
    ),
    Column("ledger_usd", "sum of the compared ledger rows", "ledger", form=usd),
    Column("bill_usd", "sum of the compared lines of the bill", "bill", form=usd),
    Column("machines", "number of machines compared"),
    Column("lines", "number of lines of the bill compared"),
    Column("differences", "differences between ledger and bill", each=DIFFERENCE),
    Column("other_lines", "number of lines for resources that spotctl did not rent; not compared"),
    Column("other_usd", "sum of these lines", "others", form=usd),
    Column(
        "unsettled_rows",
        "number of ledger rows of machines that are still running; not compared",
        "unsettled",
    ),
    Column(
        "unsettled_usd", "sum of these rows in the billing period", "unsettled_amount", form=usd
    ),
    Column(
        "rows_outside_period",
        "number of ledger rows outside the billing period; not compared",
        "outside",
    ),
    Column(
        "outside_period_usd",
        "sum of these rows, which are in no percentage",
        "outside_amount",
        form=usd,
    ),
    Column(
        "other_currency_usd",
        "sum of the ledger for time billed in a currency without a rate; not compared",
        "foreign",
        form=usd,
    ),
    Column(
        "untold_usd",
        "sum of the ledger for disks, addresses and traffic, if the bill has no tags; not compared",
        "untagged",
        form=usd,
    ),
    Column(
        "unmeasured_traffic_usd",
        "traffic in the bill beyond that in the ledger; not compared",
        "unmeasured",
        form=usd,
    ),
    Column(
        "adjustments",
        "credits, discounts, taxes, refunds and fees; not compared",
        each=(
            Column("kind", "the kind", "kind.value"),
            Column("usd", "amount for resources that spotctl rented", "own", form=usd),
            Column("other_resources_usd", "amount for other resources", "others", form=usd),
        ),
    ),
    Column(
        "converted_from",
        "currencies that were converted at the rates in the bill",
        "converted",
        form=list,
    ),
)
"""The JSON of `spotctl report reconcile --json`."""


def headline(agreement: Agreement) -> str:
    """How much of the ledger could be compared, how much of that agreed, and what the rest is."""
    share, whole = percent(agreement.compared), agreement.ledger + agreement.not_compared
    of_whole = _dollars(whole)
    if share is None:
        text = "the ledger has no costs in this bill's period"
    elif agreement.not_compared:
        part = _dollars(agreement.ledger)
        text = f"compared {share:g}% of the ledger ({part} of {of_whole})"
    else:
        text = f"compared all {of_whole} of the ledger"

    agreed = percent(agreement.agreed)
    if agreed is None:
        text += ": nothing to compare"
    else:
        text += f": {agreed:g}% agreed"

    rest = list[str]()
    for kind, amount in agreement.disputed.items():
        if amount:
            disputed = _dollars(amount)
            rest.append(f"{disputed} {kind.value}")

    kinds = [difference.kind for difference in agreement.differences]
    foreign = kinds.count(DifferenceKind.OTHER_CURRENCY)
    if foreign:
        lines = counted(foreign, "line")
        rest.append(f"{lines} in another currency without a rate")
    if rest:
        text += f", the rest is {', '.join(rest)}"
    if agreement.unmeasured:
        traffic = _dollars(agreement.unmeasured)
        text += f"; {traffic} of traffic in the bill was not compared"
    return text


def as_lines(agreement: Agreement, path: str) -> Iterator[str]:
    """How much agreed, a line per difference, then the totals and what was not compared."""
    yield headline(agreement)
    if agreement.differences:
        yield ""
    for difference in agreement.differences[:MAX_LISTED]:
        # Its kind, resource, period and amounts, and where it is in the bill.
        ledger, bill = difference.ledger, difference.bill
        if difference.kind is DifferenceKind.DIFFERS and ledger is not None and bill is not None:
            of_ledger, of_bill, off = _dollars(ledger), _dollars(bill), _dollars(bill - ledger)
            amounts = f"ledger {of_ledger}, bill {of_bill}, difference {off}"
        else:
            amount = ledger if bill is None else bill
            assert amount is not None, "a difference has an amount"
            amounts = f"{usd(amount):.6f} {difference.currency}"
            if difference.currency == DOLLARS:
                amounts = _dollars(amount)

        begin, end = moment(difference.begin), moment(difference.end)
        kind = difference.kind.value
        text = f"{kind:<21} {difference.resource}  {begin} to {end}  {amounts}"
        if difference.where:
            places = ", ".join(difference.where[:MAX_PLACES])
            beyond = len(difference.where) - MAX_PLACES
            if beyond > 0:
                places += f" and {beyond} more"
            text = f"{text}  ({places})"
        yield text

    if (more := len(agreement.differences) - MAX_LISTED) > 0:
        yield f"and {more:,} more (--json lists all)"
    if agreement.differences:
        yield ""
    verdict = (
        "no differences" if agreement.agrees else counted(len(agreement.differences), "difference")
    )
    yield f"ledger {_dollars(agreement.ledger)}, {path} {_dollars(agreement.bill)}: {verdict}"
    machines, lines = counted(agreement.machines, "machine"), counted(agreement.lines, "bill line")
    yield f"compared {machines} and {lines} of {agreement.provider}"
    yield from _not_compared(agreement)


def _not_compared(agreement: Agreement) -> Iterator[str]:
    for adjusted in agreement.adjustments:
        others = f", and {_dollars(adjusted.others)} for other resources" if adjusted.others else ""
        yield f"{adjusted.kind.value}, not compared: {_dollars(adjusted.own)}{others}"

    if agreement.unmeasured:
        yield (
            f"not compared: {_dollars(agreement.unmeasured)} of traffic in the bill; the ledger "
            "has only the moves of checkpoints between regions"
        )

    if agreement.converted:
        yield f"converted from {', '.join(agreement.converted)} at the rates in the bill"
    if agreement.other_lines:
        amount = _dollars(agreement.others)
        others = counted(agreement.other_lines, "bill line")
        yield f"not compared: {others} ({amount}) for resources not rented by spotctl"

    if agreement.untagged:
        yield (
            f"not compared: {_dollars(agreement.untagged)} of the ledger for disks, addresses and "
            "traffic, because the export has no spotctl-run tags"
        )

    if agreement.unsettled:
        amount = _dollars(agreement.unsettled_amount)
        yield f"not compared: {agreement.unsettled:,} ledger rows ({amount}) of machines that are still running"

    if agreement.foreign:
        amount = _dollars(agreement.foreign)
        yield f"not compared: {amount} of the ledger for time billed in a currency without a rate"

    if agreement.outside:
        amount = _dollars(agreement.outside_amount)
        yield f"not compared: {agreement.outside:,} ledger rows ({amount}) outside the billing period"


def _dollars(amount: int) -> str:
    value = micro_dollars(amount) / 1_000_000
    if value < 0:
        return f"-${-value:,.6f}"
    return f"${value:,.6f}"
