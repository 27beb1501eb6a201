"""The toy cloud's bill: a CSV file with a line for each machine."""

from __future__ import annotations

from spotctl.clouds.bills import (
    BillLine,
    Cells,
    ExportFormat,
    amount_of,
    not_before,
    text_of,
    time_of,
)


def lines_of(cells: Cells, where: str) -> list[BillLine]:
    """The charge of a row."""
    begin = time_of(cells, "rented")
    return [
        BillLine(
            where,
            text_of(cells, "toy"),
            True,
            begin,
            not_before(begin, time_of(cells, "returned")),
            amount_of(cells, "charge"),
            "USD",
            "toy machine",
            cells.get("run", ""),
        )
    ]


FORMAT = ExportFormat(
    "toy",
    (("toy",), ("rented",), ("returned",), ("charge",)),
    lines_of,
    None,
    "a bill of the toy cloud toy and charge",
)
