"""The ledger in the columns of FOCUS 1.2 or 1.0, the FinOps Open Cost and Usage Specification, as CSV.

https://focus.finops.org/focus-specification/v1-2/, column by column in docs/focus.md; columns that begin with `x_` are
ours. `ListCost` is the list price of the time that was charged, which the specification asks for; what the same work
would have cost on demand is in the other formats. `BilledCost` and `EffectiveCost` are zero on the local market. The
log does not know the paying account: `BillingAccountId` names the ledger. Amounts have 18 decimals, which keeps sums of
a million rows exact.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal

from bidbrain.billing.bill import NANO_SECONDS_PER_DOLLAR
from pricing_data.market import NO_ZONE
from pricing_data.units import NANOS_PER_DOLLAR, SECOND, format_time, to_datetime, to_micros
from spotctl.home.cloud import cloud_of
from spotctl.log.ledger.rows import ChargeKind, LedgerRow
from spotctl.show.costs.cost import Report
from spotctl.show.costs.run_timeline import RunTimeline

PLACES = Decimal(1).scaleb(-18)
_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_CURRENCY = "USD"
_IN_PRICING_CURRENCY = ("ContractedUnitPrice", "EffectiveCost", "ListUnitPrice")
"""Prices and charges are in one currency, so these columns repeat others."""


@dataclass(frozen=True, slots=True)
class _ChargeType:
    """The FOCUS columns that follow from the kind of a ledger row."""

    category: str
    subcategory: str
    unit: str
    resource: str
    noun: str


_MACHINE = _ChargeType("Compute", "Virtual Machines", "Hours", "Virtual Machine", "machine")
_CHARGE_TYPES: Mapping[ChargeKind, _ChargeType] = {
    ChargeKind.COMPUTE: _MACHINE,
    ChargeKind.REFUND: _MACHINE,
    ChargeKind.CORRECTION: _MACHINE,
    ChargeKind.UNKNOWN: _MACHINE,
    ChargeKind.DISK: _ChargeType("Storage", "Block Storage", "Hours", "Virtual Machine", "disk"),
    ChargeKind.ADDRESS: _ChargeType("Networking", "Network Connectivity", "Hours", "Virtual Machine", "address"),
    ChargeKind.EGRESS: _ChargeType("Networking", "Network Connectivity", "GiB", "Virtual Machine", "traffic"),
}


def as_csv(report: Report, columns: Sequence[str]) -> str:
    """A line per ledger row, with `COLUMNS` or `COLUMNS_1_0`."""
    run_of = {run.run: run for run in report.runs}
    text = io.StringIO()
    lines = [_line(row, run_of[row.run]) for row in report.rows]
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _line(row: LedgerRow, run: RunTimeline) -> dict[str, str]:
    charge, names = _CHARGE_TYPES[row.kind], cloud_of(row.market.cloud).words
    money = _money(row, charge)
    return {
        **dict.fromkeys(COLUMNS, ""),
        **_when(row),
        **money,
        **{f"PricingCurrency{name}": money.get(name, "") for name in _IN_PRICING_CURRENCY},
        "BillingAccountId": f"spotctl:{row.market.cloud}",
        "BillingAccountName": "",
        "BillingAccountType": "spotctl ledger",
        "BillingCurrency": _CURRENCY,
        "ChargeCategory": "Usage",
        "ChargeClass": "Correction" if row.kind is ChargeKind.CORRECTION else "",
        "ChargeDescription": _description(row, charge),
        "ChargeFrequency": "Usage-Based",
        "InvoiceIssuerName": names.provider,
        "PricingCategory": "" if row.kind is ChargeKind.CORRECTION else "Dynamic" if row.spot else "Standard",
        "ProviderName": names.provider,
        "PublisherName": names.provider,
        "RegionId": row.market.region,
        "RegionName": row.market.region,
        "AvailabilityZone": "" if row.market.zone == NO_ZONE else row.market.zone,
        "ResourceId": row.machine,
        "ResourceName": row.machine,
        "ResourceType": charge.resource,
        "ServiceCategory": charge.category,
        "ServiceName": names.service,
        "ServiceSubcategory": charge.subcategory,
        **_sku(row, charge),
        "PricingCurrency": _CURRENCY,
        "Tags": json.dumps(_tags(row, run), sort_keys=True),
        "x_SpotctlKind": row.kind.value,
        "x_SpotctlUse": row.use.value,
        "x_SpotctlSettled": str(row.settled).lower(),
    }


def _when(row: LedgerRow) -> dict[str, str]:
    """FOCUS requires a length: a charge after the end of a machine is for the time after it."""
    billed = row.amount // row.price if row.kind is ChargeKind.COMPUTE and row.price else 1
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


def _money(row: LedgerRow, charge: _ChargeType) -> dict[str, str]:
    """The amount paid, and the list price of the same quantity."""
    charged = _dollars(row.amount)
    # Nothing is billed for a replayed market.
    paid = "0.0" if row.market.is_synthetic else charged
    money = {"BilledCost": paid, "EffectiveCost": paid, "ContractedCost": charged, "ListCost": charged}
    if row.kind is ChargeKind.CORRECTION or not row.price:
        return money
    quantity = _EXACT.divide(Decimal(row.amount), Decimal(row.price) * 3600)
    unit_price = _plain(_EXACT.divide(Decimal(row.price), Decimal(NANOS_PER_DOLLAR)))
    listed_unit = _EXACT.divide(Decimal(row.listed), Decimal(NANOS_PER_DOLLAR))
    return {
        **money,
        "ContractedUnitPrice": unit_price,
        "ListCost": _plain(_EXACT.multiply(listed_unit, quantity)),
        "ListUnitPrice": _plain(listed_unit),
        "PricingQuantity": _plain(quantity),
        "PricingUnit": charge.unit,
        "ConsumedQuantity": _plain(quantity),
        "ConsumedUnit": charge.unit,
    }


def _sku(row: LedgerRow, charge: _ChargeType) -> dict[str, str]:
    if row.kind is ChargeKind.CORRECTION:
        return {}
    sku = f"{row.market.cloud}/{row.market.instance_type}/{row.market.os}/{charge.noun}"
    how = "spot" if row.spot else "on-demand"
    return {
        "SkuId": sku,
        "SkuPriceId": f"{sku}/{row.market.region}/{row.market.zone}/{how}",
        "SkuMeter": f"{charge.noun} {charge.unit.lower()}",
        "SkuPriceDetails": json.dumps(_details(row), sort_keys=True) if charge is _MACHINE else "",
    }


def _details(row: LedgerRow) -> dict[str, str]:
    """The details that all charges with the same `SkuPriceId` share."""
    return {"InstanceType": row.market.instance_type, "OperatingSystem": row.market.os}


def _description(row: LedgerRow, charge: _ChargeType) -> str:
    how = "reliable" if row.reliable else "spot" if row.spot else "on-demand"
    verb = {ChargeKind.REFUND: "refund for", ChargeKind.CORRECTION: "correction for"}.get(row.kind, "")
    to = f" to {row.target}" if row.target else ""
    return f"{verb} {how} {charge.noun} {row.market}{to} ({row.use.value})".strip()


def _tags(row: LedgerRow, run: RunTimeline) -> dict[str, str]:
    return {**run.tags, "spotctl-job": row.job, "spotctl-run": row.run}


def _dollars(amount: int) -> str:
    return _plain(_EXACT.divide(Decimal(amount), Decimal(NANO_SECONDS_PER_DOLLAR)))


def _plain(value: Decimal) -> str:
    """A number without an exponent, which FOCUS allows and many readers do not, and always with a point, so that no
    reader takes a column for integers because its first amounts are whole."""
    rounded = value.quantize(PLACES, context=_EXACT)
    whole, _, decimals = f"{rounded or abs(rounded):f}".partition(".")
    return f"{whole}.{decimals.rstrip('0') or '0'}"


COLUMNS = (
    "AvailabilityZone",
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingAccountType",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "CapacityReservationId",
    "CapacityReservationStatus",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "CommitmentDiscountCategory",
    "CommitmentDiscountId",
    "CommitmentDiscountName",
    "CommitmentDiscountQuantity",
    "CommitmentDiscountStatus",
    "CommitmentDiscountType",
    "CommitmentDiscountUnit",
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
    "PricingCurrency",
    "PricingCurrencyContractedUnitPrice",
    "PricingCurrencyEffectiveCost",
    "PricingCurrencyListUnitPrice",
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
    "SkuPriceDetails",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "SubAccountType",
    "Tags",
    "x_SpotctlKind",
    "x_SpotctlSettled",
    "x_SpotctlUse",
)
"""All columns of FOCUS 1.2 in order. Commitments, reservations, invoices and sub-accounts are unknown, hence null."""

_SINCE_1_1 = frozenset(
    {
        "BillingAccountType",
        "CapacityReservationId",
        "CapacityReservationStatus",
        "CommitmentDiscountQuantity",
        "CommitmentDiscountUnit",
        "InvoiceId",
        "PricingCurrency",
        "PricingCurrencyContractedUnitPrice",
        "PricingCurrencyEffectiveCost",
        "PricingCurrencyListUnitPrice",
        "ServiceSubcategory",
        "SkuMeter",
        "SkuPriceDetails",
        "SubAccountType",
    }
)

COLUMNS_1_0 = tuple(name for name in COLUMNS if name not in _SINCE_1_1)
"""The columns of FOCUS 1.0: those of 1.2 without the ones that later versions introduced."""
