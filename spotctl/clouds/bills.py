"""A bill of a provider: its lines, and the columns and cells of the exports that list them.

Credits, discounts, taxes, refunds and fees are lines of a kind of their own. Amounts in another
currency are converted with the rate that the bill states. Column names are compared without case
and punctuation, because exports spell them differently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum

from pricing_data.errors import BadInput
from pricing_data.units import NANO_SECONDS_PER_DOLLAR, parse_time, to_micros
from spotctl.home.errors import BadRequest
from spotctl.home.installation import RUN_TAG

DOLLARS = "USD"

_TRAFFIC = re.compile(r"data ?transfer|(out|in|regional)-bytes|bandwidth|egress", re.IGNORECASE)
"""In the usage types of AWS, the SKUs of Google Cloud, and the meter categories of Azure."""


class BadBill(BadRequest):
    """A bill that cannot be read; the message names the file, the line and the problem."""


class BillKind(Enum):
    """The kind of a line. The ledger has usage before credits and taxes, so only usage is
    compared."""

    USAGE = "usage"
    CREDIT = "credits"
    DISCOUNT = "discounts"
    TAX = "taxes"
    REFUND = "refunds"
    FEE = "fees"
    CORRECTION = "corrections of earlier bills"


@dataclass(frozen=True, slots=True)
class BillLine:
    """A charge for a resource in a period.

    `is_machine`: for machine time, not for a disk, an address or traffic. `where`: its place in the
    file. `what`: everything that distinguishes charges for the same resource and period. `run`: the
    tag with the run that rented the resource, empty if it has none, None if the export has no tags.
    `billed_in`: the bill's own currency; if the bill states its rate, `amount` is in dollars all
    the same. `line_id`: the provider's ID of the line, empty if the export has none; then `row`
    stands for all of its cells.
    """

    where: str
    resource: str
    is_machine: bool
    begin: int
    end: int
    amount: Decimal
    currency: str
    what: str
    run: str | None
    kind: BillKind = BillKind.USAGE
    billed_in: str = DOLLARS
    line_id: str = ""
    row: int = 0

    @property
    def is_traffic(self) -> bool:
        """Whether the line charges for data that was sent."""
        return not self.is_machine and _TRAFFIC.search(self.what) is not None

    @property
    def nanos(self) -> int:
        """The amount in the unit of the ledger: nano-units of the currency x seconds."""
        return round(self.amount * NANO_SECONDS_PER_DOLLAR)


@dataclass(frozen=True, slots=True)
class ProviderBill:
    """The lines of an export and its billing period; None if the export does not state it."""

    provider: str
    lines: tuple[BillLine, ...]
    begin: int | None
    end: int | None

    @property
    def has_tags(self) -> bool:
        """Whether lines name the run that rented their resource."""
        return any(line.run is not None for line in self.lines)


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
    """A provider's export: required columns, how a line is read, and the columns of its billing
    period.
    """

    provider: str
    required: tuple[tuple[str, ...], ...]
    """One name of each tuple must be present."""
    lines: Callable[[Cells, str], list[BillLine]]
    """Nothing for usage that is not of a resource, such as support."""
    periods: tuple[str, str] | None
    recognized_by: str
    """The columns that tell a reader of messages that a file is this export."""
    cures: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """For a column that users can switch on: its content, and how."""
    after_end: int = 0
    """Time from the stated end of a billing period to the moment after the period."""
    line_id: str = ""
    """The column with the ID of a line; without it, only lines with equal cells can repeat each
    other."""

    def missing(self, columns: Collection[str]) -> list[str]:
        """The required columns that are absent."""
        return [names[0] for names in self.required if not set(names) & set(columns)]

    def cure_of(self, missing: Collection[str]) -> tuple[str, str] | None:
        """The content of the missing columns, and how to get it, if users can switch all of them
        on.
        """
        return (
            next(iter(self.cures.values())) if missing and set(missing) <= set(self.cures) else None
        )


RUN = normalized(RUN_TAG)

NOT_MACHINE_TIME = re.compile(
    r"DataTransfer|Bytes|Egress|Data Transfer|EBS:|PD Capacity|Address|IPv4|External IP",
    re.IGNORECASE,
)
"""Charges that name a machine but are not for its time."""


def converted(line: BillLine, cells: Cells, rate: str) -> BillLine:
    """The line in dollars, if the bill states how many units of the bill's currency a dollar
    was."""
    if line.currency == DOLLARS or not cells.get(rate, "").strip():
        return line
    per_dollar = amount_of(cells, rate)
    if per_dollar <= 0:
        raise BadCell(f"{rate} {cells[rate]!r} is not a rate")
    return replace(line, amount=line.amount / per_dollar, currency=DOLLARS, billed_in=line.currency)


def named(cells: Cells, names: tuple[str, ...]) -> str:
    """The name under which a column is present."""
    return next((name for name in names if name in cells), names[0])


def text_of(cells: Cells, name: str) -> str:
    text = cells.get(name, "").strip()
    if not text:
        raise BadCell(f"{name} is empty")
    return text


def amount_of(cells: Cells, name: str) -> Decimal:
    text = text_of(cells, name)
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise BadCell(f"{name} {text[:40]!r} is not a number") from None
    if not amount.is_finite() or abs(amount) > 10**9:
        raise BadCell(f"{name} {text[:40]!r} is not an amount of money")
    return amount


_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")


def time_of(cells: Cells, name: str) -> int:
    return moment(text_of(cells, name), name)


def moment(text: str, name: str) -> int:
    """A time as providers write it: ISO 8601, the same followed by ` UTC`, or 01/31/2026. In
    microseconds.
    """
    try:
        if slashed := _SLASHED.match(text):
            month, day, year = map(int, slashed.groups())
            return to_micros(datetime(year, month, day, tzinfo=UTC))
        return parse_time(text.removesuffix(" UTC"))
    except (BadInput, ValueError):
        raise BadCell(f"{name} {text[:40]!r} is not a time") from None


def not_before(begin: int, end: int) -> int:
    if end < begin:
        raise BadCell("the period ends before it begins")
    return end


def credits_in(text: str, name: str) -> list[tuple[BillKind, Decimal]]:
    """The credits and discounts in a cell, which is a JSON list of objects with a type and an
    amount.
    """
    amounts = []
    try:
        for each in json.loads(text.strip() or "[]"):
            credited = {normalized(key): value for key, value in each.items()}
            is_discount = "DISCOUNT" in str(credited.get("type", ""))
            kind = BillKind.DISCOUNT if is_discount else BillKind.CREDIT
            amounts.append((kind, Decimal(str(credited["amount"]))))
    except (ValueError, TypeError, KeyError, AttributeError, InvalidOperation):
        raise BadCell(f"{name} {text[:40]!r} are not a list of amounts") from None

    return amounts


def run_in_tags(text: str, where: str) -> str:
    """The run in the tags, which are a JSON object, the same without braces, or a list of keys and
    values.
    """
    text = text.strip()
    if not text:
        return ""

    try:
        tags = json.loads(text if text[0] in "{[" else f"{{{text}}}")
    except ValueError:
        raise BadCell(f"{where} holds {text[:40]!r}, which is not a set of tags") from None

    pairs = ((tag.get("key"), tag.get("value")) for tag in tags)
    for key, value in tags.items() if isinstance(tags, dict) else pairs:
        if normalized(str(key)).removeprefix("user") == RUN:
            return str(value)
    return ""


PROVIDER = ("serviceprovidername", "providername", "invoiceissuername", "publishername")
"""Columns with the name of the cloud; which of them are filled depends on the version and the
exporter."""

_KINDS = {
    "usage": BillKind.USAGE,
    "purchase": BillKind.FEE,
    "tax": BillKind.TAX,
    "credit": BillKind.CREDIT,
    "adjustment": BillKind.CREDIT,
}
_WHAT = (
    *(
        "chargecategory",
        "chargeclass",
        "pricingcategory",
        "servicename",
        "skuid",
        "skupriceid",
        "skumeter",
    ),
    *(
        "xusagetype",
        "xoperation",
        "xskumetercategory",
        "xskumetername",
        "chargedescription",
        "consumedquantity",
    ),
)
_DATA = re.compile(
    r"([kmgtp]i?b|(kilo|mega|giga|tera|kibi|mebi|gibi|tebi)?bytes?)\b", re.IGNORECASE
)
"""Units of data; in the service category Networking they measure traffic."""


@dataclass(frozen=True, slots=True)
class FocusExport:
    """A cloud's use of the columns: its names as a provider, where the name of a machine stands,
    and its machines.
    """

    cloud: str
    names: frozenset[str]
    """Without case and punctuation."""
    machine: Mapping[str, str]
    """For each of these columns, a pattern that begins the text of a line for a machine's time, if
    the line's resource type does not say so."""
    resource: tuple[str, ...] = ("resourceid",)
    """The first one that is not empty; of a path, its last part."""

    @property
    def format(self) -> ExportFormat:
        return ExportFormat(
            self.cloud,
            (
                ("resourceid",),
                ("chargeperiodstart",),
                ("chargeperiodend",),
                ("chargecategory",),
                ("billedcost", "effectivecost"),
                ("billingcurrency",),
            ),
            self.lines,
            ("billingperiodstart", "billingperiodend"),
            RECOGNIZED_BY,
        )

    def lines(self, cells: Cells, where: str) -> list[BillLine]:
        texts = [cells.get(name, "").strip() for name in self.resource]
        text = next(filter(None, texts), "")
        kind = _kind(cells)
        if not text and kind is BillKind.USAGE:
            return []

        name = text.rpartition("/")[2].lower()
        words = [cells.get(column, "") for column in _WHAT]
        service = cells.get("servicecategory", "").lower()
        if service == "networking" and _DATA.search(cells.get("consumedunit", "")):
            words.append("egress")
        what = " ".join(filter(None, words))

        # Disks, addresses and traffic may be charged on the resource of their machine.
        is_other = service in ("storage", "networking")
        may_be_machine = not is_other and not NOT_MACHINE_TIME.search(what)

        # The type is in the words of Azure and of spotctl's own exports.
        says_machine = normalized(cells.get("resourcetype", "")) == "virtualmachine"
        is_described = all(
            re.match(pattern, cells.get(column, ""), re.IGNORECASE)
            for column, pattern in self.machine.items()
        )
        is_machine = may_be_machine and (says_machine or is_described)
        begin = time_of(cells, "chargeperiodstart")
        end = not_before(begin, time_of(cells, "chargeperiodend"))
        cost, run = _cost(cells), _run(cells)
        currency = text_of(cells, "billingcurrency").upper()
        line = BillLine(where, name, is_machine, begin, end, cost, currency, what, run, kind)

        # Credits are in the cost of the line, and become lines of their own.
        credited = credits_in(cells.get("xcredits", ""), "xcredits")
        if credited:
            line = replace(line, amount=cost - sum(amount for _, amount in credited))
        charges = [line]
        for credit, amount in credited:
            charges.append(replace(line, amount=amount, kind=credit))
        return [_in_dollars(charge, cells) for charge in charges]


RECOGNIZED_BY = "a FOCUS export ChargePeriodStart, ChargeCategory and BilledCost"


def provider_of(cells: Cells) -> str:
    """The provider's name; empty if the line has none."""
    return next((text for name in PROVIDER if (text := cells.get(name, "").strip())), "")


def _kind(cells: Cells) -> BillKind:
    category = text_of(cells, "chargecategory").lower()
    kind = _KINDS.get(category)
    if kind is None:
        raise BadCell(f"chargecategory {category[:40]!r} is not one of {', '.join(_KINDS)}")

    is_correction = kind is BillKind.USAGE and cells.get("chargeclass", "").lower() == "correction"
    if is_correction and cells.get("billingperiodstart", "").strip():
        # A correction within the billing period is usage like any other.
        is_late = time_of(cells, "chargeperiodstart") < time_of(cells, "billingperiodstart")
        return BillKind.CORRECTION if is_late else kind

    return kind


def _cost(cells: Cells) -> Decimal:
    if "billedcost" not in cells:
        return amount_of(cells, "effectivecost")

    billed = amount_of(cells, "billedcost")
    has_commitment = bool(cells.get("commitmentdiscountid", "").strip())
    has_effective = bool(cells.get("effectivecost", "").strip())
    is_prepaid = not billed and has_commitment and has_effective
    return amount_of(cells, "effectivecost") if is_prepaid else billed


def _run(cells: Cells) -> str | None:
    texts = [cells[name] for name in ("tags", "xlabels") if name in cells]
    for text in texts:
        run = run_in_tags(text, "the column Tags")
        if run:
            return run
    return "" if texts else None


def _in_dollars(line: BillLine, cells: Cells) -> BillLine:
    """In dollars by the amounts or rates that the line states."""
    if line.currency == DOLLARS:
        return line

    priced_in = cells.get("pricingcurrency") or cells.get("xpricingcurrency", "")
    for own, other in (
        ("billedcost", "xbilledcostinusd"),
        ("effectivecost", "pricingcurrencyeffectivecost" if priced_in == DOLLARS else ""),
    ):
        has_both = cells.get(own, "").strip() and cells.get(other, "").strip()
        whole = amount_of(cells, own) if has_both else None
        if whole:
            amount = line.amount * amount_of(cells, other) / whole
            return replace(line, amount=amount, currency=DOLLARS, billed_in=line.currency)

    rate = "xbillingexchangerate" if priced_in == DOLLARS else "xcurrencyconversionrate"
    return converted(line, cells, rate)
