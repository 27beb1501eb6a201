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

    name, begin = resource.rpartition("/")[2].lower(), time_of(cells, named(cells, _DAYS))
    is_of_machine = "/virtualmachines/" in resource.lower()
    is_time = _TIME.match(cells.get("metercategory", "")) is not None
    amount = amount_of(cells, named(cells, _COSTS))
    currency = text_of(cells, named(cells, _CURRENCIES)).upper()
    words = [cells.get(column, "") for column in _KINDS]
    run = run_in_tags(cells["tags"], "the column Tags") if "tags" in cells else None
    what = " ".join(filter(None, words))
    is_machine, end = is_of_machine and is_time, begin + DAY
    line = BillLine(where, name, is_machine, begin, end, amount, currency, what, run, kind)

    if cells.get("costinusd", "").strip():
        dollars = amount_of(cells, "costinusd")
        return [replace(line, amount=dollars, currency=DOLLARS, billed_in=currency)]
    priced_in = cells.get("pricingcurrency") or cells.get("pricingcurrencycode", "")
    if priced_in == DOLLARS:
        line = converted(line, cells, "exchangeratepricingtobilling")
    return [line]


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
    {"resourceid": ".*/virtualmachines/", "xskumetercategory": _TIME.pattern},
)
