"""Lines of the bills of all clouds, and files that are none."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from pricing_data.units import DAY, HOUR, parse_time
from spotctl.clouds.bills import BadBill, BillKind, BillLine
from spotctl.show.costs.bills.read import read_bill
from tests.spotctl.show.costs.bills.exports import WHOLE, Line, as_csv
from tests.spotctl.show.costs.bills.test_focus_bills import CLOUDS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bill.csv"


def edited(change: Callable[[Line], Line]) -> str:
    """A bill whose third line is changed."""
    return as_csv([*WHOLE["aws"][:1], change(dict(WHOLE["aws"][1])), *WHOLE["aws"][2:]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no lines"),
        (
            "a,b,c\n1,2,3\n",
            "not a known export (columns a, b, c ...); an AWS Cost and Usage Report has",
        ),
        (
            edited(lambda line: {**line, "lineItem/UnblendedCost": "abc"}),
            "line 3: lineitemunblendedcost 'abc' is not",
        ),
        (
            edited(lambda line: {**line, "lineItem/UnblendedCost": "nan"}),
            "line 3: lineitemunblendedcost 'nan' is not an am",
        ),
        (
            edited(lambda line: {**line, "lineItem/UsageStartDate": "noon"}),
            "line 3: lineitemusagestartdate 'noon'",
        ),
        (
            edited(lambda line: {**line, "lineItem/UsageEndDate": "2020-01-01"}),
            "line 3: the period ends before",
        ),
        (as_csv(WHOLE["aws"]).replace("USD", "USD,", 1), "line 2: has 16 cells for 15 columns"),
        (
            as_csv(WHOLE["aws"]).replace("lineItem/ResourceId", "x"),
            "enable resource IDs in the report",
        ),
        ('"a\n', "is not CSV"),
        ("\x00\x01", "not a known export"),
    ],
)
def test_an_unreadable_bill_is_one_line(content: str, message: str, path: Path) -> None:
    path.write_text(content)
    with pytest.raises(BadBill) as failed:
        read_bill(path)
    error = str(failed.value)
    assert message in error or ("no lines" in error and "\x00" in content)
    assert str(path) in error
    assert "\n" not in error


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bill.jsonl", b'{"cost": 1\n', "line 1: is not JSON"),
        ("bill.jsonl", b"[1]\n", "line 1: is not a JSON object"),
        ("bill.parquet", b"PAR1 and no more", "is not Parquet"),
        ("bill.csv", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("bill.csv.gz", b"no gzip", "bill.csv.gz"),
        ("none.csv", None, "No such file"),
    ],
)
def test_a_file_of_another_kind_is_one_line(
    name: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadBill, match=message):
        read_bill(tmp_path / name)


def test_missing_columns_of_the_chosen_provider_are_named(path: Path) -> None:
    path.write_text(as_csv(WHOLE["azure"]))
    with pytest.raises(BadBill, match=r"column missing: .*usagestarttime, .*; gcp exports have it"):
        read_bill(path, "gcp")


BEGIN = parse_time("2026-06-01T02:00:00Z")


def lines_of(line: Line, path: Path, provider: str = "") -> tuple[BillLine, ...]:
    path.write_text(as_csv([line]))
    bill = read_bill(path, provider)
    assert (bill.begin, bill.end) == (BEGIN - 2 * HOUR, BEGIN - 2 * HOUR + 30 * DAY)
    return bill.lines


@pytest.mark.parametrize("provider", CLOUDS)
def test_a_machines_hour_is_read_from_every_cloud(provider: str, path: Path) -> None:
    line, *others = lines_of(CLOUDS[provider], path)
    assert (line.resource, line.is_machine, line.run, line.kind) == (
        "i-0abc",
        True,
        "job-1",
        BillKind.USAGE,
    )
    assert (line.begin, line.end, line.amount, line.currency) == (
        BEGIN,
        BEGIN + HOUR,
        Decimal("0.125"),
        "USD",
    )
    credited = [(other.kind, other.amount) for other in others]
    assert credited == ([(BillKind.CREDIT, Decimal("-0.1"))] if provider == "gcp" else [])


@pytest.mark.parametrize(
    ("provider", "changes"),
    [
        ("aws", {"SkuMeter": "USE1-USW2-AWS-Out-Bytes"}),
        ("gcp", {"ChargeDescription": "Network Data Transfer Out from Americas"}),
        (
            "azure",
            {
                "ResourceType": "",
                "x_SkuMeterCategory": "Bandwidth",
                "ServiceCategory": "Networking",
            },
        ),
        (
            "azure",
            {"ServiceCategory": "Networking", "ConsumedUnit": "GB", "x_SkuMeterCategory": "Data"},
        ),
    ],
)
def test_traffic_is_no_machine_time(provider: str, changes: Line, path: Path) -> None:
    line = lines_of({**CLOUDS[provider], **changes}, path)[0]
    assert (line.is_machine, line.is_traffic) == (False, True)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"ChargeCategory": "Purchase", "ResourceId": ""}, BillKind.FEE),
        ({"ChargeCategory": "Tax", "ResourceId": ""}, BillKind.TAX),
        ({"ChargeCategory": "Credit"}, BillKind.CREDIT),
        ({"ChargeCategory": "Adjustment"}, BillKind.CREDIT),
        ({"ChargeClass": "Correction"}, BillKind.USAGE),
        (
            {"ChargeClass": "Correction", "ChargePeriodStart": "2026-05-30T02:00:00Z"},
            BillKind.CORRECTION,
        ),
    ],
)
@pytest.mark.parametrize("provider", ["aws", "azure"])
def test_other_charges_and_corrections_of_earlier_bills_are_no_usage(
    provider: str, changes: Line, kind: BillKind, path: Path
) -> None:
    assert [line.kind for line in lines_of({**CLOUDS[provider], **changes}, path)] == [kind]


@pytest.mark.parametrize(
    ("changes", "amount"),
    [
        ({"BilledCost": "0", "EffectiveCost": "0.08", "CommitmentDiscountId": "sp-1"}, "0.08"),
        ({"BilledCost": "0", "EffectiveCost": "0.08"}, "0"),
        ({"BilledCost": "0.3", "EffectiveCost": "0.08", "CommitmentDiscountId": "sp-1"}, "0.3"),
    ],
)
def test_the_effective_cost_counts_for_usage_that_a_commitment_has_paid(
    changes: Line, amount: str, path: Path
) -> None:
    assert [line.amount for line in lines_of({**CLOUDS["aws"], **changes}, path)] == [
        Decimal(amount)
    ]


EUROS = {"BillingCurrency": "EUR", "BilledCost": "0.115", "EffectiveCost": "0.115"}


@pytest.mark.parametrize(
    ("provider", "changes"),
    [
        ("azure", {"x_BilledCostInUsd": "0.125"}),
        ("azure", {"x_BillingExchangeRate": "0.92", "x_PricingCurrency": "USD"}),
        ("azure", {"PricingCurrency": "USD", "PricingCurrencyEffectiveCost": "0.125"}),
        ("gcp", {"x_CurrencyConversionRate": "0.92", "x_Credits": "[]"}),
    ],
)
def test_other_currencies_are_converted_by_what_the_line_states(
    provider: str, changes: Line, path: Path
) -> None:
    (line,) = lines_of({**CLOUDS[provider], **EUROS, **changes}, path)
    assert (line.amount, line.currency, line.billed_in) == (Decimal("0.125"), "USD", "EUR")


def test_a_currency_without_a_rate_stays(path: Path) -> None:
    (line,) = lines_of({**CLOUDS["aws"], **EUROS}, path)
    assert (line.amount, line.currency) == (Decimal("0.115"), "EUR")


@pytest.mark.parametrize(
    ("changes", "provider", "message"),
    [
        (
            {"ChargeCategory": "Gift"},
            "",
            "line 2: chargecategory 'gift' is not one of usage, purchase",
        ),
        ({"BilledCost": "free"}, "", "line 2: billedcost 'free' is not a number"),
        ({"ChargePeriodEnd": "2026-05-01"}, "", "line 2: the period ends before it begins"),
        ({"ProviderName": "Another"}, "", "has no lines"),
        ({}, "gcp", "has no lines of gcp"),
        ({"Tags": "[1"}, "", "line 2: the column Tags holds '[1', which is not a set of tags"),
    ],
)
def test_an_unreadable_line_is_named(
    changes: Line, provider: str, message: str, path: Path
) -> None:
    path.write_text(as_csv([{**CLOUDS["aws"], **changes}]))
    with pytest.raises(BadBill) as failed:
        read_bill(path, provider)
    assert message in str(failed.value)
