"""Azure: cost and usage details of every agreement type (`CostInBillingCurrency`, or `PreTaxCost`),
by day.

Its billing period ends on the last day that belongs to it. Traffic is charged on the id of the
machine that sent it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pricing_data.units import DAY
from spotctl.clouds.bills import (
    DOLLARS,
    BillKind,
    BillLine,
    Cells,
    ExportFormat,
    FocusExport,
    amount_of,
    converted,
    named,
    run_in_tags,
    text_of,
    time_of,
)

_COSTS = ("costinbillingcurrency", "pretaxcost", "cost")
_CURRENCIES = ("billingcurrency", "billingcurrencycode", "currency", "currencycode")
_DAYS = ("date", "usagedatetime", "usagedate")
_RESOURCES = ("resourceid", "instanceid")
_KINDS = ("chargetype", "pricingmodel", "metercategory", "meterid", "metername")


_TYPES = {
    "": BillKind.USAGE,
    "usage": BillKind.USAGE,
    "refund": BillKind.REFUND,
    "adjustment": BillKind.CREDIT,
    "tax": BillKind.TAX,
}


def lines_of(cells: Cells, where: str) -> list[BillLine]:
    resource = cells.get(named(cells, _RESOURCES), "").strip()
    kind = _TYPES.get(cells.get("chargetype", "").lower(), BillKind.FEE)
    if not resource and kind is BillKind.USAGE:
        return []

    begin = time_of(cells, named(cells, _DAYS))
    line = BillLine(
        where,
        resource.rpartition("/")[2].lower(),
        "/virtualmachines/" in resource.lower()
        and _TIME.match(cells.get("metercategory", "")) is not None,
        begin,
        begin + DAY,
        amount_of(cells, named(cells, _COSTS)),
        text_of(cells, named(cells, _CURRENCIES)).upper(),
        " ".join(filter(None, (cells.get(name, "") for name in _KINDS))),
        run_in_tags(cells["tags"], "the column Tags") if "tags" in cells else None,
        kind,
    )

    if cells.get("costinusd", "").strip():
        return [
            replace(
                line,
                amount=amount_of(cells, "costinusd"),
                currency=DOLLARS,
                billed_in=line.currency,
            )
        ]

    priced_in = cells.get("pricingcurrency") or cells.get("pricingcurrencycode", "")
    return [
        converted(line, cells, "exchangeratepricingtobilling") if priced_in == DOLLARS else line
    ]


_TIME = re.compile(r"$|virtual machines", re.IGNORECASE)
"""The meter category of machine time; disks, addresses and bandwidth have others."""


FORMAT = ExportFormat(
    "azure",
    (_RESOURCES, _DAYS, _COSTS, _CURRENCIES),
    lines_of,
    ("billingperiodstartdate", "billingperiodenddate"),
    "an Azure export ResourceId and CostInBillingCurrency",
    after_end=DAY,
)

FOCUS = FocusExport(
    "azure",
    frozenset({"microsoft", "microsoftazure", "azure"}),
    lambda cells, _: (
        "/virtualmachines/" in cells["resourceid"].lower()
        and _TIME.match(cells.get("xskumetercategory", "")) is not None
    ),
)
