"""FOCUS exports: 1.2 by the table in focus_1_2.csv and by conformance rules of the specification,
1.0 by the FinOps Foundation's validator.

The table was written by hand; the specification counts.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import chain
from pathlib import Path

import pytest

from pricing_data.units import parse_time
from spotctl.log.ledger.rows import ChargeKind
from spotctl.show.costs import focus
from spotctl.show.costs.cost import Report
from tests.spotctl.show.costs.focus_validator import exported, found_by, lossy, made_up
from tests.spotctl.show.costs.made import report_of, started_hour

_DOCS = Path(__file__).parents[4] / "docs/focus.md"
_LINK = re.compile(r"\[(\w+)\]\(\S+/v1-2/#(\w+)\)")
with Path(__file__).with_name("focus_1_2.csv").open(encoding="utf-8", newline="") as table:
    TABLE = {line["column"]: line for line in csv.DictReader(table)}
READERS: Mapping[str, Callable[[str], object]] = {
    "decimal": Decimal,
    "time": parse_time,
    "json": json.loads,
    "string": str,
}


def test_columns_are_those_of_the_specification() -> None:
    assert [name for name in focus.COLUMNS if not name.startswith("x_")] == list(TABLE)
    assert len(TABLE) == 57
    first = [name for name in focus.COLUMNS_1_0 if not name.startswith("x_")]
    assert first == [name for name in TABLE if TABLE[name]["since"] == "1.0"]


def test_the_page_has_every_column_with_its_definition() -> None:
    page = _DOCS.read_text(encoding="utf-8")
    assert dict(_LINK.findall(page)) == {name: name.lower() for name in TABLE}
    later = page.partition("leaves out the columns that came later: ")[2].partition(".")[0]
    assert (
        later.split() == ", ".join(name for name in TABLE if TABLE[name]["since"] != "1.0").split()
    )
    own = re.findall(r"^\| (x_\w+) \|", page, re.MULTILINE)
    assert own == [name for name in focus.COLUMNS if name.startswith("x_")]


def read(report: Report) -> list[dict[str, str]]:
    return list(csv.DictReader(focus.csv_lines(report, focus.COLUMNS)))


@pytest.fixture(scope="module")
def lines() -> list[dict[str, str]]:
    return read(made_up(lossy()))


def test_values_have_the_types_of_the_specification(lines: list[dict[str, str]]) -> None:
    assert {line["x_SpotctlKind"] for line in lines} == {kind.value for kind in ChargeKind}
    for line in lines:
        for name, one in TABLE.items():
            if value := line.get(name, ""):
                READERS[one["type"]](value)
            else:
                assert name not in line or one["nulls"] == "yes", name


Line = Mapping[str, str]
_PRICES = (
    *("ContractedUnitPrice", "ListUnitPrice"),
    *("PricingCurrencyContractedUnitPrice", "PricingCurrencyListUnitPrice"),
)
_PRICED = (*_PRICES, "PricingCategory", "PricingQuantity", "SkuId", "SkuPriceId")
_COSTS = (
    "BilledCost",
    "EffectiveCost",
    "PricingCurrencyEffectiveCost",
    "ContractedCost",
    "ListCost",
)
_TOGETHER = {
    "BillingAccountType": "BillingAccountId",
    "CapacityReservationStatus": "CapacityReservationId",
    "CommitmentDiscountUnit": "CommitmentDiscountQuantity",
    "ConsumedUnit": "ConsumedQuantity",
    "PricingUnit": "PricingQuantity",
    "RegionName": "RegionId",
    "ResourceType": "ResourceId",
    "SkuMeter": "SkuId",
    "SubAccountName": "SubAccountId",
    "SubAccountType": "SubAccountId",
}
_ENUMS = {
    "CapacityReservationStatus": {"", "Used", "Unused"},
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"", "Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "ConsumedUnit": {"", "Hours", "GiB"},
    "PricingCategory": {"", "Standard", "Committed", "Dynamic", "Other"},
    "PricingUnit": {"", "Hours", "GiB"},
}
_CATEGORY_OF = {
    "Virtual Machines": "Compute",
    "Block Storage": "Storage",
    "Network Connectivity": "Networking",
}


def _is_usage(line: Line) -> bool:
    return line["ChargeCategory"] in ("Usage", "Purchase") and line["ChargeClass"] != "Correction"


def _is_product(line: Line, price: str, cost: str) -> bool:
    if not (line[price] and line["PricingQuantity"]) or line["ChargeClass"] == "Correction":
        return True
    return abs(
        Decimal(line[price]) * Decimal(line["PricingQuantity"]) - Decimal(line[cost])
    ) < Decimal("1e-12")


def _keys_are_defined(line: Line) -> bool:
    defined = {
        "CoreCount",
        "DiskSpace",
        "DiskType",
        "GpuCount",
        "InstanceType",
        "MemorySize",
        "OperatingSystem",
    }
    details = json.loads(line["SkuPriceDetails"] or "{}")
    return all(key in defined or key.startswith("x_") for key in details)


def _is_allowed(name: str, line: Line) -> bool:
    return line[name] in _ENUMS[name]


def _are_null_together(name: str, other: str, line: Line) -> bool:
    return bool(line[name]) == bool(line[other])


def _is_there(name: str, line: Line) -> bool:
    return bool(line[name]) or not _is_usage(line)


def _is_not_negative(name: str, line: Line) -> bool:
    return not line[name] or Decimal(line[name]) >= 0


RULES: Mapping[str, Callable[[Line], bool]] = {
    **{f"{name} has an allowed value": partial(_is_allowed, name) for name in _ENUMS},
    **{
        f"{name} is null exactly when {other} is": partial(_are_null_together, name, other)
        for name, other in _TOGETHER.items()
    },
    **{f"{name} of usage is not null": partial(_is_there, name) for name in _PRICED},
    **{f"{name} is not negative": partial(_is_not_negative, name) for name in _PRICES},
    "ConsumedQuantity is null exactly when the charge is no usage, except for corrections": lambda line: (
        line["ChargeClass"] == "Correction"
        or bool(line["ConsumedQuantity"]) == (line["ChargeCategory"] == "Usage")
    ),
    "ContractedCost is price times quantity": lambda line: _is_product(
        line, "ContractedUnitPrice", "ContractedCost"
    ),
    "ListCost is price times quantity": lambda line: _is_product(line, "ListUnitPrice", "ListCost"),
    "ContractedCost without a price is BilledCost": lambda line: (
        bool(line["ContractedUnitPrice"]) or line["ContractedCost"] == line["BilledCost"]
    ),
    "ListCost without a price is BilledCost": lambda line: (
        bool(line["ListUnitPrice"]) or line["ListCost"] == line["BilledCost"]
    ),
    "EffectiveCost of other charges is BilledCost": lambda line: (
        line["ChargeCategory"] == "Usage" or line["EffectiveCost"] == line["BilledCost"]
    ),
    "only usage is usage-based": lambda line: (
        line["ChargeCategory"] == "Usage" or line["ChargeFrequency"] != "Usage-Based"
    ),
    "ResourceName is no copy of ResourceId": lambda line: (
        not line["ResourceName"] or line["ResourceName"] != line["ResourceId"]
    ),
    "ServiceSubcategory belongs to ServiceCategory": lambda line: (
        _CATEGORY_OF.get(line["ServiceSubcategory"]) == line["ServiceCategory"]
    ),
    "SkuPriceDetails have keys of the specification": _keys_are_defined,
    "SkuPriceDetails are null without SkuPriceId": lambda line: bool(
        line["SkuPriceId"] or not line["SkuPriceDetails"]
    ),
    "PricingCurrencyEffectiveCost is EffectiveCost in the same currency": lambda line: (
        line["PricingCurrency"] != line["BillingCurrency"]
        or line["PricingCurrencyEffectiveCost"] == line["EffectiveCost"]
    ),
    "the charge period has a length, and begins in the billing period": lambda line: (
        line["BillingPeriodStart"] <= line["ChargePeriodStart"] < line["ChargePeriodEnd"]
        and line["ChargePeriodStart"] < line["BillingPeriodEnd"]
    ),
}
"""Rules of FOCUS 1.2 for the columns of one row: null, allowed values, and what must be equal."""


def broken(lines: Sequence[Line]) -> set[str]:
    """The rules that an export breaks, with the kind of charge."""
    found = {
        f"{line['x_SpotctlKind']}: {rule}"
        for line in lines
        for rule, holds in RULES.items()
        if not holds(line)
    }
    categories = {(line["ServiceName"], line["ServiceCategory"]) for line in lines}
    if len(categories) > len({service for service, _ in categories}):
        found.add("a service is in several categories")
    return found


def test_rows_keep_the_conformance_rules_of_1_2(lines: list[dict[str, str]]) -> None:
    assert broken(lines) == set()


def test_free_traffic_has_its_quantity_and_costs_nothing(lines: list[dict[str, str]]) -> None:
    (free,) = [
        line
        for line in lines
        if line["x_SpotctlKind"] == "egress" and Decimal(line["ListUnitPrice"]) == 0
    ]
    assert (free["PricingQuantity"], free["PricingUnit"]) == ("5.0", "GiB")
    assert {free[cost] for cost in _COSTS} == {"0.0"}


def test_replayed_runs_keep_the_rules_and_cost_nothing() -> None:
    replayed = read(report_of([started_hour()]))
    assert broken(replayed) == set()
    assert {line[cost] for line in replayed for cost in (*_COSTS, *_PRICES)} == {"0.0"}
    assert sum(Decimal(line["PricingQuantity"]) for line in replayed) == pytest.approx(Decimal(2))


@pytest.mark.parametrize("rule", RULES)
def test_a_planted_fault_breaks_its_rule(lines: list[dict[str, str]], rule: str) -> None:
    """Each rule is broken by some value in some column, so that none passes because it asks
    nothing.
    """
    values = (
        "",
        "-1",
        "7.5",
        "other",
        "Tax",
        "Usage-Based",
        '{"Shape": 1}',
        "2031-01-01T00:00:00Z",
    )
    copied = ({**line, "ResourceName": line["ResourceId"]} for line in lines)
    planted = (
        {**line, name: value}
        for line in lines
        for name in TABLE
        for value in {"decimal": values[:3], "json": ("", values[-2])}.get(
            TABLE[name]["type"], values
        )
        if value or TABLE[name]["nulls"] == "yes"
    )
    assert any(not RULES[rule](line) for line in chain(copied, planted))


def test_a_price_has_the_same_details_in_all_rows(lines: list[dict[str, str]]) -> None:
    details = {(line["SkuPriceId"], line["SkuPriceDetails"]) for line in lines}
    assert len(details) == len({price for price, _ in details})
    skus = {(line["SkuPriceId"], line["SkuId"]) for line in lines}
    assert len(skus) == len({price for price, _ in skus})


def test_the_validator_finds_nothing_in_a_1_0_export() -> None:
    place = os.environ.get("SPOTCTL_FOCUS_VALIDATOR")
    if not place:
        pytest.skip(
            "SPOTCTL_FOCUS_VALIDATOR names no environment with focus-validator; 'make focus' "
            "installs one"
        )
    assert found_by(Path(place) / "bin" / "focus-validator", exported()) == set()
