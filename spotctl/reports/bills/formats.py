"""How each provider's export names its columns, and what stands in them.

- AWS: the Cost and Usage Report, as it was (`lineItem/ResourceId`) and 2.0 (`line_item_resource_id`), hourly or daily.
- Google Cloud: the detailed usage export (`gcp_billing_export_resource_v1_*`), nested as JSON lines or flat as CSV;
  credits are part of what is paid.
- Azure: cost and usage details of all agreements (`CostInBillingCurrency`, or `PreTaxCost` of pay-as-you-go), by day.

Names are compared without case and punctuation, so that all spellings of a column are one.
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
"""A line's texts by their plain names."""


class BadCell(ValueError):
    """A cell that does not hold what its column should."""


def plain(name: str) -> str:
    """A column's name without case and punctuation.

    >>> plain("lineItem/ResourceId") == plain("line_item_resource_id")
    True
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())


@dataclass(frozen=True, slots=True)
class Format:
    """A provider's export: the columns without which it is none, how a line is read, and when its period ends."""

    provider: str
    needed: tuple[tuple[str, ...], ...]
    """Of each tuple one has to be there."""
    line: Callable[[Cells, str], BillLine | None]
    """None for a line that charges nothing for a resource: taxes, support, fees."""
    periods: tuple[str, str] | None

    def fits(self, columns: Collection[str]) -> bool:
        """Whether a file with these columns is such an export."""
        return not self.lacks(columns)

    def lacks(self, columns: Collection[str]) -> list[str]:
        """What is missing."""
        return [names[0] for names in self.needed if not set(names) & set(columns)]


_RUN = plain(RUN_TAG)

_NO_TIME = re.compile(
    r"DataTransfer|Bytes|Egress|Data Transfer|EBS:|PD Capacity|Address|IPv4|External IP", re.IGNORECASE
)
"""Charges that bear a machine's name and are not for its time."""


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
        name.startswith("i-") and not _NO_TIME.search(cells.get("lineitemusagetype", "")),
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
        plain(service) in ("", "computeengine") and not _NO_TIME.search(sku),
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
        raise BadCell(f"credits {text[:40]!r} are no list of amounts") from None


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
    """Under which of its names a column is there."""
    return next((name for name in names if name in cells), names[0])


FORMATS: Mapping[str, Format] = {
    "aws": Format(
        "aws",
        (("lineitemresourceid",), ("lineitemusagestartdate",), ("lineitemusageenddate",), ("lineitemunblendedcost",)),
        _aws,
        ("billbillingperiodstartdate", "billbillingperiodenddate"),
    ),
    "gcp": Format(
        "gcp",
        (("resourcename", "resourceglobalname"), ("usagestarttime",), ("usageendtime",), ("cost",), ("currency",)),
        _gcp,
        None,
    ),
    "azure": Format(
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
        raise BadCell(f"{name} {text[:40]!r} is no amount of money")
    return amount


_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")


def _time(cells: Cells, name: str) -> int:
    return moment(_text(cells, name), name)


def moment(text: str, name: str) -> int:
    """Microseconds of a moment as the providers write them: ISO 8601, with ` UTC` behind it, or 01/31/2026."""
    try:
        if found := _SLASHED.match(text):
            month, day, year = map(int, found.groups())
            return to_micros(datetime(year, month, day, tzinfo=UTC))
        return parse_time(text.removesuffix(" UTC"))
    except (BadInput, ValueError):
        raise BadCell(f"{name} {text[:40]!r} is no time") from None


def _after(begin: int, end: int) -> int:
    if end < begin:
        raise BadCell("the period ends before it begins")
    return end


def _tag(text: str, where: str) -> str:
    """The run that tags name: an object, its inside without braces, or a list of keys and values."""
    text = text.strip()
    if not text:
        return ""
    try:
        tags = json.loads(text if text[0] in "{[" else f"{{{text}}}")
    except ValueError:
        raise BadCell(f"{where} holds {text[:40]!r}, which are no tags") from None
    pairs = tags.items() if isinstance(tags, dict) else ((one.get("key"), one.get("value")) for one in tags)
    return next((str(value) for key, value in pairs if plain(str(key)).removeprefix("user") == _RUN), "")
