"""Corrections of the ledger, as new rows, where the bill has another amount. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from spotctl.log.events import Corrected
from spotctl.log.ledger.rows import LedgerRow
from spotctl.show.costs.bills.reconcile import Agreement, DifferenceKind


def corrections(agreement: Agreement, rows: Iterable[LedgerRow], bill: str) -> list[tuple[str, Corrected]]:
    """The corrections that give machines the amounts of the bill, each with its run.

    Only for machines in both: what is missing in one of them needs an answer, not another amount.
    """
    last = {row.machine.lower(): row for row in sorted(rows, key=lambda row: row.end)}
    corrected = []
    for one in agreement.differences:
        if one.kind is not DifferenceKind.DIFFERS or one.resource not in last or one.ledger is None or one.bill is None:
            continue
        row = last[one.resource]
        why = f"{bill}, {one.where[0]}" if one.where else bill
        corrected.append((row.run, Corrected(row.machine, min(one.end, row.end), one.bill - one.ledger, why)))
    return corrected
