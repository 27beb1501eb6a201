"""Corrections of the ledger, as new rows, where the bill has another amount. Pure."""

from collections.abc import Iterable

from spotctl.log.events import Corrected
from spotctl.log.ledger.rows import LedgerRow
from spotctl.show.costs.bills.agreement import Agreement, DifferenceKind


def corrections(agreement: Agreement, rows: Iterable[LedgerRow], bill: str) -> list[tuple[str, Corrected]]:
    """The corrections that give machines the amounts of the bill, each with its run.

    Only for machines in both: a row that is missing in the ledger or the bill needs an answer, not another amount.
    """
    last = {row.machine.lower(): row for row in sorted(rows, key=lambda row: row.end)}
    corrected = []
    for difference in agreement.differences:
        row, paid, billed = last.get(difference.resource), difference.ledger, difference.bill
        if difference.kind is not DifferenceKind.DIFFERS or row is None or paid is None or billed is None:
            continue
        why = f"{bill}, {difference.where[0]}" if difference.where else bill
        corrected.append((row.run, Corrected(row.machine, min(difference.end, row.end), billed - paid, why)))
    return corrected
