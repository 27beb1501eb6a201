"""The provider's amounts taken over where they differ: corrections, which are new rows of the ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from spotctl.ledger.rows import Row
from spotctl.reports.bills.reconcile import Agreement, Kind
from spotctl.runlog.events import Corrected


def corrections(agreement: Agreement, rows: Iterable[Row], bill: str) -> list[tuple[str, Corrected]]:
    """By run, what makes the ledger say of machines what the bill says.

    Only of machines that both have: what one of them lacks is a question, and no amount.
    """
    last = {row.machine.lower(): row for row in sorted(rows, key=lambda row: row.end)}
    found = []
    for one in agreement.differences:
        if one.kind is not Kind.DIFFERS or one.resource not in last or one.ledger is None or one.bill is None:
            continue
        row = last[one.resource]
        why = f"{bill}, {one.where[0]}" if one.where else bill
        found.append((row.run, Corrected(row.machine, min(one.end, row.end), one.bill - one.ledger, why)))
    return found
