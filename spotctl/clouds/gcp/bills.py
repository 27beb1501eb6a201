"""Google Cloud: the detailed usage export (`gcp_billing_export_resource_v1_*`), nested as JSON
lines or flat as CSV.
"""

from __future__ import annotations

from dataclasses import replace

from spotctl.clouds.bills import (
    NOT_MACHINE_TIME,
    BillKind,
    BillLine,
    Cells,
    ExportFormat,
    FocusExport,
    amount_of,
    converted,
    credits_in,
    normalized,
    not_before,
    run_in_tags,
    text_of,
    time_of,
)

_TYPES = {
    "": BillKind.USAGE,
    "regular": BillKind.USAGE,
    "tax": BillKind.TAX,
    "adjustment": BillKind.REFUND,
}


def lines_of(cells: Cells, where: str) -> list[BillLine]:
    resource = cells.get("resourcename") or cells.get("resourceglobalname", "")
    name = resource.strip().rpartition("/")[2]
    kind = _TYPES.get(cells.get("costtype", ""), BillKind.FEE)
    if not name and kind is BillKind.USAGE:
        return []

    begin = time_of(cells, "usagestarttime")
    end = not_before(begin, time_of(cells, "usageendtime"))
    service, sku = cells.get("servicedescription", ""), cells.get("skudescription", "")
    is_compute = normalized(service) in ("", "computeengine")
    is_machine = is_compute and not NOT_MACHINE_TIME.search(sku)
    words = (cells.get("costtype", ""), service, cells.get("skuid", ""), sku)
    what = " ".join(filter(None, words))
    amount, currency = amount_of(cells, "cost"), text_of(cells, "currency").upper()
    run = run_in_tags(cells["labels"], "the column labels") if "labels" in cells else None
    name = name.lower()
    line = BillLine(where, name, is_machine, begin, end, amount, currency, what, run, kind)

    charges = [line]
    for kind, amount in credits_in(cells.get("credits", ""), "credits"):
        charges.append(replace(line, kind=kind, amount=amount))
    return [converted(charge, cells, "currencyconversionrate") for charge in charges]


FORMAT = ExportFormat(
    "gcp",
    (
        ("resourcename", "resourceglobalname"),
        ("usagestarttime",),
        ("usageendtime",),
        ("cost",),
        ("currency",),
    ),
    lines_of,
    None,
    "a Google Cloud detailed export usage_start_time and resource.name",
)

FOCUS = FocusExport(
    "gcp",
    frozenset({"googlecloud", "googlecloudplatform", "google"}),
    {"servicename": r"[\W_]*compute[\W_]*engine[\W_]*$"},
    # An id may end with a number instead of the name.
    ("resourcename", "resourceid"),
)
