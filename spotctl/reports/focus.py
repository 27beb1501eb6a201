"""The ledger in the columns of FOCUS 1.2, the FinOps Open Cost and Usage Specification, as CSV.

https://focus.finops.org/focus-specification/v1-2/. All mandatory columns are there, and those conditional ones that a
rented machine has a value for; columns that begin with `x_` are ours. `ListCost` is what the same work costs on demand,
as in every other format, so that what FOCUS tools call savings is what the report calls saved. No log knows the account
that pays: `BillingAccountId` names the ledger. Amounts have 18 decimals, of which a sum of a million rows loses none
that is shown.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal

from pricing_data.market import NO_ZONE
from pricing_data.units import NANOS_PER_DOLLAR, SECOND, format_time, to_datetime, to_micros
from spotctl.ledger.rows import NANO_SECONDS_PER_DOLLAR, Kind, Row
from spotctl.reports.cost import Report
from spotctl.reports.run_timeline import RunTimeline

PLACES = Decimal(1).scaleb(-18)
_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_CURRENCY = "USD"


@dataclass(frozen=True, slots=True)
class Provider:
    """How FOCUS names who sells machines."""

    name: str
    service: str


PROVIDERS: Mapping[str, Provider] = {
    "aws": Provider("AWS", "Amazon Elastic Compute Cloud"),
    "gcp": Provider("Google Cloud", "Compute Engine"),
    "azure": Provider("Microsoft", "Virtual Machines"),
    "local": Provider("spotctl local market", "Replayed machines"),
}


@dataclass(frozen=True, slots=True)
class _Nature:
    """What FOCUS says of a kind of row."""

    category: str
    subcategory: str
    unit: str
    resource: str
    words: str


_MACHINE = _Nature("Compute", "Virtual Machines", "Hours", "Virtual Machine", "machine")
_NATURES: Mapping[Kind, _Nature] = {
    Kind.COMPUTE: _MACHINE,
    Kind.REFUND: _MACHINE,
    Kind.CORRECTION: _MACHINE,
    Kind.DISK: _Nature("Storage", "Block Storage", "Hours", "Virtual Machine", "disk"),
    Kind.ADDRESS: _Nature("Networking", "Network Connectivity", "Hours", "Virtual Machine", "address"),
    Kind.EGRESS: _Nature("Networking", "Network Connectivity", "GiB", "Virtual Machine", "traffic"),
}


def as_csv(report: Report) -> str:
    """A line a row of the ledger, under the names of FOCUS."""
    stories = {story.run: story for story in report.stories}
    text = io.StringIO()
    lines = [_line(row, stories[row.run]) for row in report.rows]
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _line(row: Row, story: RunTimeline) -> dict[str, str]:
    nature, provider = _NATURES[row.kind], PROVIDERS[row.market.cloud]
    return {
        **dict.fromkeys(COLUMNS, ""),
        **_when(row),
        **_money(row, nature),
        "BillingAccountId": f"spotctl:{row.market.cloud}",
        "BillingAccountName": "",
        "BillingAccountType": "spotctl ledger",
        "BillingCurrency": _CURRENCY,
        "ChargeCategory": "Usage",
        "ChargeClass": "Correction" if row.kind is Kind.CORRECTION else "",
        "ChargeDescription": _description(row, nature),
        "ChargeFrequency": "Usage-Based",
        "InvoiceIssuerName": provider.name,
        "PricingCategory": "" if row.kind is Kind.CORRECTION else "Dynamic" if row.spot else "Standard",
        "ProviderName": provider.name,
        "PublisherName": provider.name,
        "RegionId": row.market.region,
        "RegionName": row.market.region,
        "AvailabilityZone": "" if row.market.zone == NO_ZONE else row.market.zone,
        "ResourceId": row.machine,
        "ResourceName": row.machine,
        "ResourceType": nature.resource,
        "ServiceCategory": nature.category,
        "ServiceName": provider.service,
        "ServiceSubcategory": nature.subcategory,
        **_sku(row, nature),
        "Tags": json.dumps(_tags(row, story), sort_keys=True),
        "x_SpotctlKind": row.kind.value,
        "x_SpotctlUse": row.use.value,
        "x_SpotctlSettled": str(row.settled).lower(),
    }


def _when(row: Row) -> dict[str, str]:
    """Charge periods have a length in FOCUS: what is charged beyond the end of a life is charged for time after it."""
    billed = row.amount // row.price if row.kind is Kind.COMPUTE and row.price else 1
    end = row.end if row.end > row.begin else row.begin + max(billed, 1) * SECOND
    moment = to_datetime(row.begin)
    begin = datetime(moment.year, moment.month, 1, tzinfo=UTC)
    after = datetime(moment.year + moment.month // 12, moment.month % 12 + 1, 1, tzinfo=UTC)
    return {
        "BillingPeriodStart": format_time(to_micros(begin)),
        "BillingPeriodEnd": format_time(to_micros(after)),
        "ChargePeriodStart": format_time(row.begin),
        "ChargePeriodEnd": format_time(end),
    }


def _money(row: Row, nature: _Nature) -> dict[str, str]:
    """What was paid, and what the same work costs on demand: a refund buys none."""
    paid, listed = _dollars(row.amount), _dollars(row.on_demand)
    money = {"BilledCost": paid, "EffectiveCost": paid, "ContractedCost": paid, "ListCost": listed}
    if row.kind is Kind.CORRECTION or not row.price:
        return money
    quantity = _EXACT.divide(Decimal(row.amount), Decimal(row.price) * 3600)
    unit_price = _plain(_EXACT.divide(Decimal(row.price), Decimal(NANOS_PER_DOLLAR)))
    listed_unit = _EXACT.divide(Decimal(row.on_demand * row.price), Decimal((row.amount or 1) * NANOS_PER_DOLLAR))
    return {
        **money,
        "ContractedUnitPrice": unit_price,
        "ListUnitPrice": _plain(listed_unit),
        "PricingQuantity": _plain(quantity),
        "PricingUnit": nature.unit,
        "ConsumedQuantity": _plain(quantity),
        "ConsumedUnit": nature.unit,
    }


def _sku(row: Row, nature: _Nature) -> dict[str, str]:
    if row.kind is Kind.CORRECTION:
        return {}
    sku = f"{row.market.cloud}/{row.market.instance_type}/{row.market.os}/{nature.words}"
    how = "spot" if row.spot else "on-demand"
    return {
        "SkuId": sku,
        "SkuPriceId": f"{sku}/{row.market.region}/{row.market.zone}/{how}",
        "SkuMeter": f"{nature.words} {nature.unit.lower()}",
    }


def _description(row: Row, nature: _Nature) -> str:
    how = "reliable" if row.reliable else "spot" if row.spot else "on-demand"
    verb = {Kind.REFUND: "refund for", Kind.CORRECTION: "correction for"}.get(row.kind, "")
    return f"{verb} {how} {nature.words} {row.market} ({row.use.value})".strip()


def _tags(row: Row, story: RunTimeline) -> dict[str, str]:
    return {**story.tags, "spotctl-job": row.job, "spotctl-run": row.run}


def _dollars(amount: int) -> str:
    return _plain(_EXACT.divide(Decimal(amount), Decimal(NANO_SECONDS_PER_DOLLAR)))


def _plain(value: Decimal) -> str:
    """Without an exponent, which the numeric format of FOCUS allows and many readers do not."""
    rounded = value.quantize(PLACES, context=_EXACT)
    text = f"{rounded:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


COLUMNS = (
    "AvailabilityZone",
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingAccountType",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "CommitmentDiscountCategory",
    "CommitmentDiscountId",
    "CommitmentDiscountName",
    "CommitmentDiscountStatus",
    "CommitmentDiscountType",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceId",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "RegionId",
    "RegionName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "SkuId",
    "SkuMeter",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "Tags",
    "x_SpotctlKind",
    "x_SpotctlSettled",
    "x_SpotctlUse",
)
"""Those of 1.2 in their order. Commitment discounts, invoices and sub-accounts are not known here, and are null."""
