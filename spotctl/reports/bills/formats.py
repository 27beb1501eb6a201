"""The columns of each provider's bill export, and how to read them.

- AWS: the Cost and Usage Report, legacy (`lineItem/ResourceId`) and 2.0 (`line_item_resource_id`), hourly or daily.
- Google Cloud: the detailed usage export (`gcp_billing_export_resource_v1_*`), nested as JSON lines or flat as CSV;
  credits reduce the amount.
- Azure: cost and usage details of every agreement type (`CostInBillingCurrency`, or `PreTaxCost`), by day.

Column names are compared without case and punctuation, because exports spell them differently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from pricing_data.errors import BadInput
from pricing_data.units import DAY, parse_time, to_micros
from spotctl.machines.tags import RUN_TAG
from spotctl.reports.bills.lines import DOLLARS, BillLine

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
    line: Callable[[Cells, str], BillLine | None]
    """Returns None for lines that are not for a resource: taxes, support, fees."""
    periods: tuple[str, str] | None

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


def _aws(cells: Cells, where: str) -> BillLine | None:
    resource = cells.get("lineitemresourceid", "").strip()
    if not resource or cells.get("lineitemlineitemtype", "") == "Tax":
        return None
    begin = _time(cells, "lineitemusagestartdate")
    name = resource.rpartition("/")[2] if resource.startswith("arn:") else resource
    return BillLine(
        where,
        name.lower(),
        name.startswith("i-") and not _NOT_MACHINE_TIME.search(cells.get("lineitemusagetype", "")),
        begin,
        _after(begin, _time(cells, "lineitemusageenddate")),
        _amount(cells, "lineitemunblendedcost"),
        cells.get("lineitemcurrencycode", "").strip().upper() or DOLLARS,
        " ".join(filter(None, (cells.get(kind, "") for kind in _AWS_KINDS))),
        _aws_run(cells),
    )


def _aws_run(cells: Cells) -> str | None:
    for name in _AWS_TAGS:
        if name in cells:
            return cells[name].strip()
    return _tag(cells["resourcetags"], "the column resource_tags") if "resourcetags" in cells else None


# -- Google Cloud ------------------------------------------------------------------------------------------------------


def _gcp(cells: Cells, where: str) -> BillLine | None:
    name = (cells.get("resourcename") or cells.get("resourceglobalname", "")).strip().rpartition("/")[2]
    if not name or cells.get("costtype", "") == "tax":
        return None
    begin = _time(cells, "usagestarttime")
    service, sku = cells.get("servicedescription", ""), cells.get("skudescription", "")
    return BillLine(
        where,
        name.lower(),
        normalized(service) in ("", "computeengine") and not _NOT_MACHINE_TIME.search(sku),
        begin,
        _after(begin, _time(cells, "usageendtime")),
        _amount(cells, "cost") + _credits(cells.get("credits", "")),
        _text(cells, "currency").upper(),
        " ".join(filter(None, (cells.get("costtype", ""), service, cells.get("skuid", ""), sku))),
        _tag(cells["labels"], "the column labels") if "labels" in cells else None,
    )


def _credits(text: str) -> Decimal:
    if not text.strip():
        return Decimal(0)
    try:
        return sum((Decimal(str(one["amount"])) for one in json.loads(text)), Decimal(0))
    except (ValueError, TypeError, KeyError, InvalidOperation):
        raise BadCell(f"credits {text[:40]!r} are not a list of amounts") from None


# -- Azure -------------------------------------------------------------------------------------------------------------

_AZURE_COSTS = ("costinbillingcurrency", "pretaxcost", "cost")
_AZURE_CURRENCIES = ("billingcurrency", "billingcurrencycode", "currency", "currencycode")
_AZURE_DAYS = ("date", "usagedatetime", "usagedate")
_AZURE_RESOURCES = ("resourceid", "instanceid")
_AZURE_KINDS = ("chargetype", "pricingmodel", "metercategory", "meterid", "metername")


def _azure(cells: Cells, where: str) -> BillLine | None:
    resource = cells.get(_named(cells, _AZURE_RESOURCES), "").strip()
    if not resource or cells.get("chargetype", "").lower() == "tax":
        return None
    begin = _time(cells, _named(cells, _AZURE_DAYS))
    return BillLine(
        where,
        resource.rpartition("/")[2].lower(),
        "/virtualmachines/" in resource.lower(),
        begin,
        begin + DAY,
        _amount(cells, _named(cells, _AZURE_COSTS)),
        _text(cells, _named(cells, _AZURE_CURRENCIES)).upper(),
        " ".join(filter(None, (cells.get(kind, "") for kind in _AZURE_KINDS))),
        _tag(cells["tags"], "the column Tags") if "tags" in cells else None,
    )


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
        if found := _SLASHED.match(text):
            month, day, year = map(int, found.groups())
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
    pairs = tags.items() if isinstance(tags, dict) else ((one.get("key"), one.get("value")) for one in tags)
    return next((str(value) for key, value in pairs if normalized(str(key)).removeprefix("user") == _RUN), "")
