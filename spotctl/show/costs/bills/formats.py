"""The columns of each provider's bill export, and how to read them.

- AWS: the Cost and Usage Report, legacy (`lineItem/ResourceId`) and 2.0 (`line_item_resource_id`), hourly or daily.
- Google Cloud: the detailed usage export (`gcp_billing_export_resource_v1_*`), nested as JSON lines or flat as CSV.
- Azure: cost and usage details of every agreement type (`CostInBillingCurrency`, or `PreTaxCost`), by day. Its billing
  period ends on the last day that belongs to it. Traffic is charged on the id of the machine that sent it.

Credits, discounts, taxes, refunds and fees are lines of a kind of their own. Amounts in another currency are converted
with the rate that the bill states (`currency_conversion_rate`, `exchangeRatePricingToBilling`, `costInUsd`).

Column names are compared without case and punctuation, because exports spell them differently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from pricing_data.errors import BadInput
from pricing_data.units import DAY, parse_time, to_micros
from spotctl.clouds.bill_lines import DOLLARS, BillKind, BillLine
from spotctl.clouds.tags import RUN_TAG

Cells = Mapping[str, str]
"""The texts of a line by normalized column name."""


class BadCell(ValueError):
    """A cell whose text does not fit its column."""


def normalized(name: str) -> str:
    """A column name without case and punctuation.

    >>> normalized("lineItem/ResourceId") == normalized("line_item_resource_id")
    True
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A provider's export: required columns, how a line is read, and the columns of its billing period."""

    provider: str
    required: tuple[tuple[str, ...], ...]
    """One name of each tuple must be present."""
    lines: Callable[[Cells, str], list[BillLine]]
    """Nothing for usage that is not of a resource, such as support."""
    periods: tuple[str, str] | None
    after_end: int = 0
    """Time from the stated end of a billing period to the moment after the period."""

    def fits(self, columns: Collection[str]) -> bool:
        """Whether a file with these columns has this format."""
        return not self.missing(columns)

    def missing(self, columns: Collection[str]) -> list[str]:
        """The required columns that are absent."""
        return [names[0] for names in self.required if not set(names) & set(columns)]


_RUN = normalized(RUN_TAG)

_NOT_MACHINE_TIME = re.compile(
    r"DataTransfer|Bytes|Egress|Data Transfer|EBS:|PD Capacity|Address|IPv4|External IP", re.IGNORECASE
)
"""Charges that name a machine but are not for its time."""


# -- AWS ---------------------------------------------------------------------------------------------------------------

_AWS_TAGS = (f"resourcetagsuser{_RUN}", f"resourcetags{_RUN}")
_AWS_KINDS = ("lineitemlineitemtype", "lineitemproductcode", "lineitemusagetype", "lineitemoperation")


_AWS_TYPES = {
    **dict.fromkeys(("", "Usage", "DiscountedUsage", "SavingsPlanCoveredUsage"), BillKind.USAGE),
    **dict.fromkeys(
        ("EdpDiscount", "SppDiscount", "BundledDiscount", "PrivateRateDiscount", "SavingsPlanNegation"),
        BillKind.DISCOUNT,
    ),
    "Credit": BillKind.CREDIT,
    "Refund": BillKind.REFUND,
    "Tax": BillKind.TAX,
}


def _aws(cells: Cells, where: str) -> list[BillLine]:
    resource = cells.get("lineitemresourceid", "").strip()
    kind = _AWS_TYPES.get(cells.get("lineitemlineitemtype", ""), BillKind.FEE)
    if not resource and kind is BillKind.USAGE:
        return []
    begin = _time(cells, "lineitemusagestartdate")
    name = resource.rpartition("/")[2] if resource.startswith("arn:") else resource
    line = BillLine(
        where,
        name.lower(),
        name.startswith("i-") and not _NOT_MACHINE_TIME.search(cells.get("lineitemusagetype", "")),
        begin,
        _after(begin, _time(cells, "lineitemusageenddate")),
        _amount(cells, "lineitemunblendedcost"),
        cells.get("lineitemcurrencycode", "").strip().upper() or DOLLARS,
        " ".join(filter(None, (cells.get(name, "") for name in _AWS_KINDS))),
        _aws_run(cells),
        kind,
    )
    return [line]


def _aws_run(cells: Cells) -> str | None:
    for name in _AWS_TAGS:
        if name in cells:
            return cells[name].strip()
    return _tag(cells["resourcetags"], "the column resource_tags") if "resourcetags" in cells else None


# -- Google Cloud ------------------------------------------------------------------------------------------------------


_GCP_TYPES = {"": BillKind.USAGE, "regular": BillKind.USAGE, "tax": BillKind.TAX, "adjustment": BillKind.REFUND}


def _gcp(cells: Cells, where: str) -> list[BillLine]:
    name = (cells.get("resourcename") or cells.get("resourceglobalname", "")).strip().rpartition("/")[2]
    kind = _GCP_TYPES.get(cells.get("costtype", ""), BillKind.FEE)
    if not name and kind is BillKind.USAGE:
        return []
    begin = _time(cells, "usagestarttime")
    service, sku = cells.get("servicedescription", ""), cells.get("skudescription", "")
    line = BillLine(
        where,
        name.lower(),
        normalized(service) in ("", "computeengine") and not _NOT_MACHINE_TIME.search(sku),
        begin,
        _after(begin, _time(cells, "usageendtime")),
        _amount(cells, "cost"),
        _text(cells, "currency").upper(),
        " ".join(filter(None, (cells.get("costtype", ""), service, cells.get("skuid", ""), sku))),
        _tag(cells["labels"], "the column labels") if "labels" in cells else None,
        kind,
    )
    credited = (replace(line, kind=kind, amount=amount) for kind, amount in _credits(cells.get("credits", "")))
    return [_converted(charge, cells, "currencyconversionrate") for charge in (line, *credited)]


def _credits(text: str) -> list[tuple[BillKind, Decimal]]:
    if not text.strip():
        return []
    try:
        return [
            (
                BillKind.DISCOUNT if "DISCOUNT" in credit.get("type", "") else BillKind.CREDIT,
                Decimal(str(credit["amount"])),
            )
            for credit in json.loads(text)
        ]
    except (ValueError, TypeError, KeyError, AttributeError, InvalidOperation):
        raise BadCell(f"credits {text[:40]!r} are not a list of amounts") from None


# -- Azure -------------------------------------------------------------------------------------------------------------

_AZURE_COSTS = ("costinbillingcurrency", "pretaxcost", "cost")
_AZURE_CURRENCIES = ("billingcurrency", "billingcurrencycode", "currency", "currencycode")
_AZURE_DAYS = ("date", "usagedatetime", "usagedate")
_AZURE_RESOURCES = ("resourceid", "instanceid")
_AZURE_KINDS = ("chargetype", "pricingmodel", "metercategory", "meterid", "metername")


_AZURE_TYPES = {
    "": BillKind.USAGE,
    "usage": BillKind.USAGE,
    "refund": BillKind.REFUND,
    "adjustment": BillKind.CREDIT,
    "tax": BillKind.TAX,
}


def _azure(cells: Cells, where: str) -> list[BillLine]:
    resource = cells.get(_named(cells, _AZURE_RESOURCES), "").strip()
    kind = _AZURE_TYPES.get(cells.get("chargetype", "").lower(), BillKind.FEE)
    if not resource and kind is BillKind.USAGE:
        return []
    begin = _time(cells, _named(cells, _AZURE_DAYS))
    line = BillLine(
        where,
        resource.rpartition("/")[2].lower(),
        "/virtualmachines/" in resource.lower() and _AZURE_TIME.match(cells.get("metercategory", "")) is not None,
        begin,
        begin + DAY,
        _amount(cells, _named(cells, _AZURE_COSTS)),
        _text(cells, _named(cells, _AZURE_CURRENCIES)).upper(),
        " ".join(filter(None, (cells.get(name, "") for name in _AZURE_KINDS))),
        _tag(cells["tags"], "the column Tags") if "tags" in cells else None,
        kind,
    )
    if cells.get("costinusd", "").strip():
        return [replace(line, amount=_amount(cells, "costinusd"), currency=DOLLARS, billed_in=line.currency)]
    priced_in = cells.get("pricingcurrency") or cells.get("pricingcurrencycode", "")
    return [_converted(line, cells, "exchangeratepricingtobilling") if priced_in == DOLLARS else line]


_AZURE_TIME = re.compile(r"$|virtual machines", re.IGNORECASE)
"""The meter category of machine time; disks, addresses and bandwidth have others."""


def _converted(line: BillLine, cells: Cells, rate: str) -> BillLine:
    """The line in dollars, if the bill states how many units of the bill's currency a dollar was."""
    if line.currency == DOLLARS or not cells.get(rate, "").strip():
        return line
    per_dollar = _amount(cells, rate)
    if per_dollar <= 0:
        raise BadCell(f"{rate} {cells[rate]!r} is not a rate")
    return replace(line, amount=line.amount / per_dollar, currency=DOLLARS, billed_in=line.currency)


def _named(cells: Cells, names: tuple[str, ...]) -> str:
    """The name under which a column is present."""
    return next((name for name in names if name in cells), names[0])


FORMATS: Mapping[str, ExportFormat] = {
    "aws": ExportFormat(
        "aws",
        (("lineitemresourceid",), ("lineitemusagestartdate",), ("lineitemusageenddate",), ("lineitemunblendedcost",)),
        _aws,
        ("billbillingperiodstartdate", "billbillingperiodenddate"),
    ),
    "gcp": ExportFormat(
        "gcp",
        (("resourcename", "resourceglobalname"), ("usagestarttime",), ("usageendtime",), ("cost",), ("currency",)),
        _gcp,
        None,
    ),
    "azure": ExportFormat(
        "azure",
        (_AZURE_RESOURCES, _AZURE_DAYS, _AZURE_COSTS, _AZURE_CURRENCIES),
        _azure,
        ("billingperiodstartdate", "billingperiodenddate"),
        after_end=DAY,
    ),
}


# -- cells -------------------------------------------------------------------------------------------------------------


def _text(cells: Cells, name: str) -> str:
    text = cells.get(name, "").strip()
    if not text:
        raise BadCell(f"{name} is empty")
    return text


def _amount(cells: Cells, name: str) -> Decimal:
    text = _text(cells, name)
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise BadCell(f"{name} {text[:40]!r} is not a number") from None
    if not amount.is_finite() or abs(amount) > 10**9:
        raise BadCell(f"{name} {text[:40]!r} is not an amount of money")
    return amount


_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")


def _time(cells: Cells, name: str) -> int:
    return moment(_text(cells, name), name)


def moment(text: str, name: str) -> int:
    """A time as providers write it: ISO 8601, the same followed by ` UTC`, or 01/31/2026. In microseconds."""
    try:
        if slashed := _SLASHED.match(text):
            month, day, year = map(int, slashed.groups())
            return to_micros(datetime(year, month, day, tzinfo=UTC))
        return parse_time(text.removesuffix(" UTC"))
    except (BadInput, ValueError):
        raise BadCell(f"{name} {text[:40]!r} is not a time") from None


def _after(begin: int, end: int) -> int:
    if end < begin:
        raise BadCell("the period ends before it begins")
    return end


def _tag(text: str, where: str) -> str:
    """The run in the tags, which are a JSON object, the same without braces, or a list of keys and values."""
    text = text.strip()
    if not text:
        return ""
    try:
        tags = json.loads(text if text[0] in "{[" else f"{{{text}}}")
    except ValueError:
        raise BadCell(f"{where} holds {text[:40]!r}, which is not a set of tags") from None
    pairs = tags.items() if isinstance(tags, dict) else ((tag.get("key"), tag.get("value")) for tag in tags)
    return next((str(value) for key, value in pairs if normalized(str(key)).removeprefix("user") == _RUN), "")
