"""FOCUS exports: 1.2 by the table in focus_1_2.csv and by conformance rules of the specification, 1.0 by the FinOps
Foundation's validator.

The table was written by hand; the specification counts.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

import pytest

from pricing_data.units import parse_time
from spotctl.show.costs import focus
from tests.spotctl.show.costs.focus_validator import exported, found_by, made_up

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
    assert later.split() == ", ".join(name for name in TABLE if TABLE[name]["since"] != "1.0").split()
    own = re.findall(r"^\| (x_\w+) \|", page, re.MULTILINE)
    assert own == [name for name in focus.COLUMNS if name.startswith("x_")]


@pytest.fixture(scope="module")
def lines() -> list[dict[str, str]]:
    return list(csv.DictReader(focus.csv_lines(made_up(), focus.COLUMNS)))


def test_values_have_the_types_of_the_specification(lines: list[dict[str, str]]) -> None:
    assert {line["x_SpotctlKind"] for line in lines} == {
        "compute",
        "refund",
        "disk",
        "address",
        "egress",
        "correction",
    }
    for line in lines:
        for name, one in TABLE.items():
            if value := line.get(name, ""):
                READERS[one["type"]](value)
            else:
                assert name not in line or one["nulls"] == "yes", name


_PRICED = ("ContractedUnitPrice", "ListUnitPrice", "PricingCategory", "PricingQuantity", "SkuId", "SkuPriceId")
_TOGETHER = {
    "BillingAccountType": "BillingAccountId",
    "CommitmentDiscountUnit": "CommitmentDiscountQuantity",
    "ConsumedUnit": "ConsumedQuantity",
    "PricingUnit": "PricingQuantity",
    "SkuMeter": "SkuId",
    "SubAccountType": "SubAccountId",
}
_ENUMS = {
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"", "Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "PricingCategory": {"", "Standard", "Committed", "Dynamic", "Other"},
}
_CATEGORY_OF = {"Virtual Machines": "Compute", "Block Storage": "Storage", "Network Connectivity": "Networking"}


def test_rows_keep_the_conformance_rules_of_1_2(lines: list[dict[str, str]]) -> None:
    for line in lines:
        assert all(line[name] in allowed for name, allowed in _ENUMS.items())
        assert _CATEGORY_OF[line["ServiceSubcategory"]] == line["ServiceCategory"]
        assert all(bool(line[name]) == bool(line[other]) for name, other in _TOGETHER.items())
        assert line["SkuPriceId"] or not line["SkuPriceDetails"]
        assert line["ProviderName"] == line["InvoiceIssuerName"] or Decimal(line["BilledCost"]) == 0
        assert line["PricingCurrency"] == line["BillingCurrency"]
        assert line["PricingCurrencyEffectiveCost"] == line["EffectiveCost"]
        if line["ChargeClass"] == "Correction":
            continue
        assert all(line[name] for name in (*_PRICED, "ConsumedQuantity")), line["x_SpotctlKind"]
        quantity = Decimal(line["PricingQuantity"])
        for price, cost in (("ListUnitPrice", "ListCost"), ("ContractedUnitPrice", "ContractedCost")):
            assert Decimal(line[price]) >= 0
            assert abs(Decimal(line[price]) * quantity - Decimal(line[cost])) < Decimal("1e-12")


def test_a_price_has_the_same_details_in_all_rows(lines: list[dict[str, str]]) -> None:
    details = {(line["SkuPriceId"], line["SkuPriceDetails"]) for line in lines}
    assert len(details) == len({price for price, _ in details})
    skus = {(line["SkuPriceId"], line["SkuId"]) for line in lines}
    assert len(skus) == len({price for price, _ in skus})


def test_the_validator_finds_nothing_in_a_1_0_export() -> None:
    place = os.environ.get("SPOTCTL_FOCUS_VALIDATOR")
    if not place:
        pytest.skip("SPOTCTL_FOCUS_VALIDATOR names no environment with focus-validator; 'make focus' installs one")
    assert found_by(Path(place) / "bin" / "focus-validator", exported()) == set()
