"""Vast.ai: the charges that `vastai show invoices-v1 --charges --raw` prints, a page after another
in one file.

https://docs.vast.ai/api-reference/billing/show-charges (read on 2026-11-29): an instance has items
for its GPUs, its storage and its traffic, each with the first and the last day. The label of the
instance tells the run.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation

from pricing_data.units import DAY, SECOND
from spotctl.clouds.bills import (
    DOLLARS,
    BadCell,
    BillLine,
    Cells,
    ExportFormat,
    not_before,
    text_of,
)
from spotctl.clouds.order_ledger import OrderLabel
from spotctl.clouds.vast.cloud import CLOUD_NAME
from spotctl.home.installation import RUN_TAG


def lines_of(cells: Cells, where: str) -> list[BillLine]:
    """The charges of a page."""
    try:
        lines = []
        for charge in json.loads(text_of(cells, "results")):
            if charge["type"] != "instance":
                continue
            label = OrderLabel.parse(charge["metadata"].get("label"))
            run = "" if label is None else label.tags.get(RUN_TAG, "")
            machine = charge["source"].replace("instance-", f"{CLOUD_NAME}:")
            for item in charge["items"]:
                is_machine, what = item["type"] == "gpu", f"{item['type']} {item['description']}"
                begin, last = int(item["start"]) * SECOND, int(item["end"]) * SECOND
                end, amount = not_before(begin, last) + DAY, Decimal(str(item["amount"]))
                lines.append(
                    BillLine(where, machine, is_machine, begin, end, amount, DOLLARS, what, run)
                )
        return lines
    except (ValueError, TypeError, KeyError, AttributeError, InvalidOperation) as error:
        if isinstance(error, BadCell):
            raise
        raise BadCell(f"results {cells['results'][:40]!r} is not a list of charges") from None


FORMAT = ExportFormat(
    CLOUD_NAME,
    (("results",), ("nexttoken",), ("total",)),
    lines_of,
    None,
    "charges of Vast.ai results and next_token",
)
