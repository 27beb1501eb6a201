"""Bills with the columns of FOCUS 1.0 or later, which all clouds export: AWS Data Exports, Google Cloud's FOCUS export
or view in BigQuery, and exports of Azure Cost Management.

A line is compared before credits, which Google Cloud has subtracted already. A correction of an earlier billing period
is no usage of the present one. Where a commitment has paid for usage, `EffectiveCost` is its cost. FOCUS has no IDs of
lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from spotctl.clouds.bills import (
    DOLLARS,
    NOT_MACHINE_TIME,
    BadCell,
    BillKind,
    BillLine,
    Cells,
    ExportFormat,
    amount_of,
    converted,
    credits_in,
    normalized,
    not_before,
    run_in_tags,
    text_of,
    time_of,
)

PROVIDER = ("serviceprovidername", "providername", "invoiceissuername", "publishername")
"""Columns with the name of the cloud; which of them are filled depends on the version and the exporter."""

_KINDS = {
    "usage": BillKind.USAGE,
    "purchase": BillKind.FEE,
    "tax": BillKind.TAX,
    "credit": BillKind.CREDIT,
    "adjustment": BillKind.CREDIT,
}
_WHAT = (
    *("chargecategory", "chargeclass", "pricingcategory", "servicename", "skuid", "skupriceid", "skumeter"),
    *("xusagetype", "xoperation", "xskumetercategory", "xskumetername", "chargedescription", "consumedquantity"),
)
_DATA = re.compile(r"([kmgtp]i?b|(kilo|mega|giga|tera|kibi|mebi|gibi|tebi)?bytes?)\b", re.IGNORECASE)
"""Units of data; in the service category Networking they measure traffic."""


@dataclass(frozen=True, slots=True)
class FocusExport:
    """A cloud's use of the columns: its names as a provider, where the name of a machine stands, and its machines."""

    cloud: str
    names: frozenset[str]
    """Without case and punctuation."""
    is_machine: Callable[[Cells, str], bool]
    """Whether a line, with the name of its resource, is for a machine's time, if its resource type does not say so."""
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
        text = next((cells[name] for name in self.resource if cells.get(name, "").strip()), "").strip()
        kind = _kind(cells)
        if not text and kind is BillKind.USAGE:
            return []
        name, what = text.rpartition("/")[2], _what(cells)
        begin = time_of(cells, "chargeperiodstart")
        line = BillLine(
            where,
            name.lower(),
            _may_be_machine(cells, what) and (_says_machine(cells) or self.is_machine(cells, name)),
            begin,
            not_before(begin, time_of(cells, "chargeperiodend")),
            _cost(cells),
            text_of(cells, "billingcurrency").upper(),
            what,
            _run(cells),
            kind,
        )
        return [_in_dollars(charge, cells) for charge in _before_credits(line, cells.get("xcredits", ""))]


RECOGNIZED_BY = "a FOCUS export ChargePeriodStart, ChargeCategory and BilledCost"


def is_focus(columns: Cells) -> bool:
    return {"chargeperiodstart", "chargecategory"} <= columns.keys() and not columns.keys().isdisjoint(
        ("billedcost", "effectivecost")
    )


def provider_of(cells: Cells) -> str:
    """The provider's name; empty if the line has none."""
    return next((text for name in PROVIDER if (text := cells.get(name, "").strip())), "")


def _kind(cells: Cells) -> BillKind:
    category = text_of(cells, "chargecategory").lower()
    kind = _KINDS.get(category)
    if kind is None:
        raise BadCell(f"chargecategory {category[:40]!r} is not one of {', '.join(_KINDS)}")
    if kind is BillKind.USAGE and cells.get("chargeclass", "").lower() == "correction" and _is_late(cells):
        return BillKind.CORRECTION
    return kind


def _is_late(cells: Cells) -> bool:
    """Whether the charge is for time before its billing period."""
    if not cells.get("billingperiodstart", "").strip():
        return False
    return time_of(cells, "chargeperiodstart") < time_of(cells, "billingperiodstart")


def _what(cells: Cells) -> str:
    is_traffic = cells.get("servicecategory", "").lower() == "networking" and _DATA.search(
        cells.get("consumedunit", "")
    )
    words = (*(cells.get(name, "") for name in _WHAT), "egress" if is_traffic else "")
    return " ".join(filter(None, words))


def _may_be_machine(cells: Cells, what: str) -> bool:
    """Disks, addresses and traffic may be charged on the resource of their machine."""
    is_other = cells.get("servicecategory", "").lower() in ("storage", "networking")
    return not is_other and not NOT_MACHINE_TIME.search(what)


def _says_machine(cells: Cells) -> bool:
    """Whether the resource type is a machine, in the words of Azure and of spotctl's own exports."""
    return normalized(cells.get("resourcetype", "")) == "virtualmachine"


def _cost(cells: Cells) -> Decimal:
    if "billedcost" not in cells:
        return amount_of(cells, "effectivecost")
    billed = amount_of(cells, "billedcost")
    is_prepaid = not billed and cells.get("commitmentdiscountid", "").strip() and cells.get("effectivecost", "").strip()
    return amount_of(cells, "effectivecost") if is_prepaid else billed


def _run(cells: Cells) -> str | None:
    texts = [cells[name] for name in ("tags", "xlabels") if name in cells]
    return next(filter(None, (run_in_tags(text, "the column Tags") for text in texts)), "") if texts else None


def _before_credits(line: BillLine, text: str) -> Iterator[BillLine]:
    """The line without the credits that are in its cost, and these as lines of their own."""
    credited = credits_in(text, "xcredits")
    yield replace(line, amount=line.amount - sum(amount for _, amount in credited)) if credited else line
    for kind, amount in credited:
        yield replace(line, amount=amount, kind=kind)


def _in_dollars(line: BillLine, cells: Cells) -> BillLine:
    """In dollars by the amounts or rates that the line states."""
    if line.currency == DOLLARS:
        return line
    priced_in = cells.get("pricingcurrency") or cells.get("xpricingcurrency", "")
    for own, other in (
        ("billedcost", "xbilledcostinusd"),
        ("effectivecost", "pricingcurrencyeffectivecost" if priced_in == DOLLARS else ""),
    ):
        if cells.get(own, "").strip() and cells.get(other, "").strip() and (whole := amount_of(cells, own)):
            amount = line.amount * amount_of(cells, other) / whole
            return replace(line, amount=amount, currency=DOLLARS, billed_in=line.currency)
    return converted(line, cells, "xbillingexchangerate" if priced_in == DOLLARS else "xcurrencyconversionrate")
