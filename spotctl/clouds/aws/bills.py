"""AWS: the Cost and Usage Report, legacy (`lineItem/ResourceId`) and 2.0 (`line_item_resource_id`),
hourly or daily.
"""

from __future__ import annotations

from spotctl.clouds.bills import (
    DOLLARS,
    NOT_MACHINE_TIME,
    RUN,
    BillKind,
    BillLine,
    Cells,
    ExportFormat,
    FocusExport,
    amount_of,
    not_before,
    run_in_tags,
    time_of,
)

_TAGS = (f"resourcetagsuser{RUN}", f"resourcetags{RUN}")
_KINDS = ("lineitemlineitemtype", "lineitemproductcode", "lineitemusagetype", "lineitemoperation")


_TYPES = {
    **dict.fromkeys(("", "Usage", "DiscountedUsage", "SavingsPlanCoveredUsage"), BillKind.USAGE),
    **dict.fromkeys(
        (
            "EdpDiscount",
            "SppDiscount",
            "BundledDiscount",
            "PrivateRateDiscount",
            "SavingsPlanNegation",
        ),
        BillKind.DISCOUNT,
    ),
    "Credit": BillKind.CREDIT,
    "Refund": BillKind.REFUND,
    "Tax": BillKind.TAX,
}


def lines_of(cells: Cells, where: str) -> list[BillLine]:
    resource = cells.get("lineitemresourceid", "").strip()
    kind = _TYPES.get(cells.get("lineitemlineitemtype", ""), BillKind.FEE)
    if not resource and kind is BillKind.USAGE:
        return []

    begin = time_of(cells, "lineitemusagestartdate")
    end = not_before(begin, time_of(cells, "lineitemusageenddate"))
    cost = amount_of(cells, "lineitemunblendedcost")
    run = next((cells[name].strip() for name in _TAGS if name in cells), None)
    if run is None and "resourcetags" in cells:
        run = run_in_tags(cells["resourcetags"], "the column resource_tags")
    name = resource.rpartition("/")[2] if resource.startswith("arn:") else resource
    is_other = NOT_MACHINE_TIME.search(cells.get("lineitemusagetype", "")) is not None
    currency = cells.get("lineitemcurrencycode", "").strip().upper() or DOLLARS
    words = [cells.get(column, "") for column in _KINDS]
    what = " ".join(filter(None, words))
    is_machine = name.startswith("i-") and not is_other
    name = name.lower()
    return [BillLine(where, name, is_machine, begin, end, cost, currency, what, run, kind)]


FORMAT = ExportFormat(
    "aws",
    (
        ("lineitemresourceid",),
        ("lineitemusagestartdate",),
        ("lineitemusageenddate",),
        ("lineitemunblendedcost",),
    ),
    lines_of,
    ("billbillingperiodstartdate", "billbillingperiodenddate"),
    "an AWS Cost and Usage Report has lineItem/ResourceId and lineItem/UnblendedCost",
    {"lineitemresourceid": ("resource IDs", "enable resource IDs in the report's settings")},
    line_id="identitylineitemid",
)

FOCUS = FocusExport(
    "aws", frozenset({"aws", "amazonwebservices"}), {"resourceid": r"(\s*|.*/)i-[^/]*$"}
)
