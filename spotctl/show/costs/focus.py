"""The ledger in the columns of FOCUS 1.2 or 1.0, the FinOps Open Cost and Usage Specification, as
CSV.

https://focus.finops.org/focus-specification/v1-2/, column by column in docs/focus.md; columns that
begin with `x_` are ours. `ListCost` is the list price of the time that was charged, which the
specification asks for; what the same work would have cost on demand is in the other formats. All
costs and unit prices are zero on the local market, which bills nothing. The log does not know the
paying account: `BillingAccountId` names the ledger. Amounts have 18 decimals, which keeps sums of a
million rows exact.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache

from pricing_data.market import NO_ZONE
from pricing_data.units import (
    DAY,
    HOUR,
    NANO_SECONDS_PER_DOLLAR,
    NANOS_PER_DOLLAR,
    SECOND,
    format_time,
    to_datetime,
    to_micros,
)
from spotctl.home.cloud import cloud_of
from spotctl.log.ledger.rows import ChargeKind, LedgerRow
from spotctl.show.costs.cost import Report

_PLACES = 18
_UNIT = 10**_PLACES
_CURRENCY = "USD"


@dataclass(frozen=True, slots=True)
class _ChargeType:
    """The FOCUS columns that follow from the kind of a ledger row."""

    category: str
    subcategory: str
    unit: str
    resource: str
    noun: str


_WITHOUT_QUANTITY = (ChargeKind.CORRECTION, ChargeKind.UNKNOWN)
_MACHINE = _ChargeType("Compute", "Virtual Machines", "Hours", "Virtual Machine", "machine")
_CHARGE_TYPES: Mapping[ChargeKind, _ChargeType] = {
    ChargeKind.COMPUTE: _MACHINE,
    ChargeKind.REFUND: _MACHINE,
    ChargeKind.CORRECTION: _MACHINE,
    ChargeKind.UNKNOWN: _MACHINE,
    ChargeKind.DISK: _ChargeType("Storage", "Block Storage", "Hours", "Virtual Machine", "disk"),
    ChargeKind.ADDRESS: _ChargeType(
        "Networking", "Network Connectivity", "Hours", "Virtual Machine", "address"
    ),
    ChargeKind.EGRESS: _ChargeType(
        "Networking", "Network Connectivity", "GiB", "Virtual Machine", "traffic"
    ),
}


def csv_lines(report: Report, columns: Sequence[str]) -> Iterator[str]:
    """The lines of the file: names of the columns, `COLUMNS` or `COLUMNS_1_0`, and a line per
    ledger row.
    """
    tags = dict[str, str]()
    for run in report.runs:
        of_run = {**run.tags, "spotctl-job": run.job, "spotctl-run": run.run}
        written = json.dumps(of_run, sort_keys=True)
        tags[run.run] = _line([written])[:-1]

    templates: dict[tuple[object, ...], str] = {}
    quoted = {"": ""}
    yield _line(columns)
    for row in report.rows:
        if row.machine not in quoted:
            quoted[row.machine] = _line([row.machine])[:-1]
        machine = quoted[row.machine]
        key = (
            row.market,
            row.reliable,
            row.spot,
            row.kind,
            row.use,
            row.settled,
            row.target,
            not machine,
        )
        of_row = {"ResourceId": machine, "Tags": tags[row.run]}

        # FOCUS requires a length: a charge after the end of a machine is for the time after it.
        end = row.end
        if end <= row.begin:
            billed = 1
            if row.kind is ChargeKind.COMPUTE and row.price:
                billed = max(row.amount // row.price, 1)
            end = row.begin + billed * SECOND

        begin, after = _billing_period(row.begin // DAY)
        when = {
            "BillingPeriodStart": begin,
            "BillingPeriodEnd": after,
            "ChargePeriodStart": _time(row.begin),
            "ChargePeriodEnd": _time(end),
        }
        cells = {**when, **_money(row), **of_row}

        if key not in templates:
            # A line with places for the cells that differ from row to row.
            places = {name: f"%({name})s" for name in cells}
            constant = {name: cell.replace("%", "%%") for name, cell in _constant(row).items()}
            template = constant | places
            templates[key] = _line([template[name] for name in columns])
        yield templates[key] % cells


def _line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _constant(row: LedgerRow) -> dict[str, str]:
    """The columns that are equal for all rows with the same market, use and kind."""
    market = row.market
    charge, names = _CHARGE_TYPES[row.kind], cloud_of(market.cloud).words
    provider, service = names.provider, f"{names.service} ({charge.noun})"
    if charge is _MACHINE:
        # A service is in one category only.
        service = names.service

    is_rest, is_correction = row.kind is ChargeKind.UNKNOWN, row.kind is ChargeKind.CORRECTION
    category = "Adjustment" if is_rest else "Usage"
    frequency = "One-Time" if is_rest else "Usage-Based"

    verbs = {
        ChargeKind.REFUND: "refund for ",
        ChargeKind.CORRECTION: "correction for ",
        ChargeKind.UNKNOWN: "rest of ",
    }

    verb = verbs.get(row.kind, "")
    how = "reliable" if row.reliable else row.market.pricing(spot=row.spot)
    to = f" to {row.target}" if row.target else ""
    description = f"{verb}{how} {charge.noun} {row.market}{to} ({row.use.value})"
    cells = {
        **_EQUAL_IN_ALL,
        "BillingAccountId": f"spotctl:{market.cloud}",
        "CapacityReservationId": market.reservation,
        "CapacityReservationStatus": "Used" if market.reservation else "",
        "ChargeCategory": category,
        "ChargeClass": "Correction" if is_correction else "",
        "ChargeDescription": description,
        "ChargeFrequency": frequency,
        "InvoiceIssuerName": provider,
        "PricingCategory": "",
        "ProviderName": provider,
        "PublisherName": provider,
        "RegionId": market.region,
        "RegionName": market.region,
        "AvailabilityZone": "" if market.zone == NO_ZONE else market.zone,
        "ResourceType": charge.resource if row.machine else "",
        "ServiceCategory": charge.category,
        "ServiceName": service,
        "ServiceSubcategory": charge.subcategory,
        "x_SpotctlKind": row.kind.value,
        "x_SpotctlUse": row.use.value,
        "x_SpotctlSettled": str(row.settled).lower(),
    }

    if row.kind not in _WITHOUT_QUANTITY:
        cells |= _sku(row, charge)
        cells["PricingCategory"] = "Dynamic" if row.spot else "Standard"
    return cells


@cache
def _billing_period(day: int) -> tuple[str, str]:
    moment = to_datetime(day * DAY)
    year, months = moment.year + moment.month // 12, moment.month % 12
    begin = datetime(moment.year, moment.month, 1, tzinfo=UTC)
    after = datetime(year, months + 1, 1, tzinfo=UTC)
    return format_time(to_micros(begin)), format_time(to_micros(after))


# A row begins when another one ends.
_time = lru_cache(maxsize=1 << 12)(format_time)


def _money(row: LedgerRow) -> dict[str, str]:
    """The amount paid, and the list price of the same quantity; for a replayed market, nothing is
    billed.
    """
    amount, price, listed = row.amount, row.price, row.listed
    if row.market.is_synthetic:
        amount = price = listed = 0
    charged = _ratio(amount, NANO_SECONDS_PER_DOLLAR)
    names = (
        "BilledCost",
        "EffectiveCost",
        "PricingCurrencyEffectiveCost",
        "ContractedCost",
        "ListCost",
    )

    money = dict.fromkeys(names, charged)
    if row.kind in _WITHOUT_QUANTITY:
        return money

    # A charge of nothing does not say how much was used, as that for reserved machines that are
    # paid for already.
    used, per_unit = row.end - row.begin, HOUR
    if row.price:
        used, per_unit = row.amount, row.price * 3600
    elif row.kind is ChargeKind.EGRESS:
        used, per_unit = row.sent, 1 << 30
    elif row.kind is ChargeKind.REFUND:
        used = -used

    quantity, unit = _ratio(used, per_unit), _CHARGE_TYPES[row.kind].unit
    unit_price, list_price = (_ratio(nanos, NANOS_PER_DOLLAR) for nanos in (price, listed))
    # Prices and charges are in one currency, so that two columns have each.
    return {
        **money,
        "ListCost": _ratio(listed * used, per_unit * NANOS_PER_DOLLAR),
        "ContractedUnitPrice": unit_price,
        "PricingCurrencyContractedUnitPrice": unit_price,
        "ListUnitPrice": list_price,
        "PricingCurrencyListUnitPrice": list_price,
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "ConsumedQuantity": quantity,
        "ConsumedUnit": unit,
    }


def _sku(row: LedgerRow, charge: _ChargeType) -> dict[str, str]:
    market, details = row.market, ""
    sku = f"{market.cloud}/{market.instance_type}/{market.os}/{charge.noun}"
    how = market.reservation or market.pricing(spot=row.spot)
    price_id = f"{sku}/{market.region}/{market.zone}/{how}"
    if charge is _MACHINE:
        # All charges with the same `SkuPriceId` share these.
        known = {"InstanceType": market.instance_type, "OperatingSystem": market.os}
        details = json.dumps(known, sort_keys=True)

    unit = charge.unit.lower()
    return {
        "SkuId": sku,
        "SkuPriceId": price_id,
        "SkuMeter": f"{charge.noun} {unit}",
        "SkuPriceDetails": details,
    }


@lru_cache(maxsize=1 << 12)
def _ratio(amount: int, divisor: int) -> str:
    """A quotient, rounded half to even, without an exponent, which FOCUS allows and many readers do
    not, and always with a point, so that no reader takes a column for integers because its first
    amounts are whole.
    """
    scaled, rest = divmod(abs(amount) * _UNIT, divisor)
    is_half = 2 * rest == divisor
    if 2 * rest > divisor or (is_half and scaled % 2):
        scaled += 1
    whole, decimals = divmod(scaled, _UNIT)
    sign = "-" if amount < 0 and scaled else ""
    digits = f"{decimals:0{_PLACES}}"
    fraction = digits.rstrip("0") or "0"
    return f"{sign}{whole}.{fraction}"


COLUMNS = tuple(
    """
    AvailabilityZone
    BilledCost BillingAccountId BillingAccountName BillingAccountType BillingCurrency BillingPeriodEnd
    BillingPeriodStart
    CapacityReservationId CapacityReservationStatus ChargeCategory ChargeClass ChargeDescription ChargeFrequency
    ChargePeriodEnd ChargePeriodStart CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName
    CommitmentDiscountQuantity CommitmentDiscountStatus CommitmentDiscountType CommitmentDiscountUnit ConsumedQuantity
    ConsumedUnit ContractedCost ContractedUnitPrice
    EffectiveCost
    InvoiceId InvoiceIssuerName
    ListCost ListUnitPrice
    PricingCategory PricingCurrency PricingCurrencyContractedUnitPrice PricingCurrencyEffectiveCost
    PricingCurrencyListUnitPrice PricingQuantity PricingUnit ProviderName PublisherName
    RegionId RegionName ResourceId ResourceName ResourceType
    ServiceCategory ServiceName ServiceSubcategory SkuId SkuMeter SkuPriceDetails SkuPriceId SubAccountId SubAccountName
    SubAccountType
    Tags
    x_SpotctlKind x_SpotctlSettled x_SpotctlUse
    """.split()
)
"""All columns of FOCUS 1.2 in order. Commitments, invoices and sub-accounts are unknown, hence
null."""

_SINCE_1_1 = frozenset(
    """
    BillingAccountType CapacityReservationId CapacityReservationStatus CommitmentDiscountQuantity
    CommitmentDiscountUnit InvoiceId PricingCurrency PricingCurrencyContractedUnitPrice PricingCurrencyEffectiveCost
    PricingCurrencyListUnitPrice ServiceSubcategory SkuMeter SkuPriceDetails SubAccountType
    """.split()
)

COLUMNS_1_0 = tuple(name for name in COLUMNS if name not in _SINCE_1_1)
"""The columns of FOCUS 1.0: those of 1.2 without the ones that later versions introduced."""

_EQUAL_IN_ALL = {
    **dict.fromkeys(COLUMNS, ""),
    "BillingAccountType": "spotctl ledger",
    "BillingCurrency": _CURRENCY,
    "PricingCurrency": _CURRENCY,
}
"""The columns that are equal for all rows."""
