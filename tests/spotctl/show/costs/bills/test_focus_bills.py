"""FOCUS exports as bills: of spotctl's own ledger, and rows as the three clouds write them."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from spotctl.clouds.bills import BadBill
from spotctl.log.ledger.rows import ChargeKind, LedgerRow
from spotctl.show.costs import focus
from spotctl.show.costs.bills.read import read_bill
from spotctl.show.costs.bills.reconcile import reconcile
from spotctl.show.costs.bills.views import Agreement, DifferenceKind
from spotctl.show.costs.cost import Report
from tests.spotctl.command_line import spotctl
from tests.spotctl.show.costs.bills.exports import PROVIDERS, Line, as_csv, made_run
from tests.spotctl.show.costs.focus_validator import made_up
from tests.spotctl.show.costs.made import night, report_of, write_log

NANO_DOLLAR = 3600
"""In the ledger's unit."""
REPORT = made_up()
COLUMNS = {"1.2": focus.COLUMNS, "1.0": focus.COLUMNS_1_0}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "focus.csv"


def exported(version: str, report: Report = REPORT) -> list[Line]:
    return list(csv.DictReader(focus.csv_lines(report, COLUMNS[version])))


def compared(
    bill: list[Line], path: Path, provider: str, rows: Sequence[LedgerRow] = REPORT.rows
) -> Agreement:
    path.write_text(as_csv(bill))
    return reconcile(rows, read_bill(path, provider), 0.0)


# -- spotctl's own exports -------------------------------------------------------------------------


@pytest.mark.parametrize("version", COLUMNS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_export_of_the_ledger_agrees_with_the_ledger(
    provider: str, version: str, path: Path
) -> None:
    """Machines, refunds, disks, addresses, traffic and corrections, to the nano-dollar."""
    agreement = compared(exported(version), path, provider)
    assert agreement.differences == ()
    assert (agreement.agreed, agreement.compared, agreement.untagged) == (1, 1, 0)
    assert (
        agreement.ledger
        == sum(row.amount for row in REPORT.rows if row.market.cloud == provider)
        > 0
    )
    assert agreement.bill == agreement.ledger
    assert agreement.other_lines == agreement.unmeasured == 0


@pytest.mark.parametrize("seed", range(5))
def test_exports_of_random_runs_agree(seed: int, path: Path) -> None:
    rng = np.random.default_rng(seed)
    report = report_of([night(i, rng) for i in range(2)])
    for provider in {row.market.cloud for row in report.rows}:
        agreement = compared(exported("1.2", report), path, provider, report.rows)
        assert (agreement.differences, agreement.bill) == ((), agreement.ledger)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_planted_differences_are_found(provider: str, path: Path) -> None:
    report = report_of([made_run(provider)])
    whole = exported("1.2", report)
    lost, wrong, doubled = (
        next(
            line
            for line in whole
            if line["ResourceId"].endswith(f"-00{i}") and Decimal(line["BilledCost"]) > 0
        )
        for i in range(3)
    )
    planted = [dict(line) for line in whole if line is not lost]
    next(line for line in planted if line == wrong)["BilledCost"] = str(
        Decimal(wrong["BilledCost"]) + 1
    )
    agreement = compared([*planted, doubled], path, provider, report.rows)
    found = {difference.kind: difference for difference in agreement.differences}
    assert sorted(kind.name for kind in found) == ["DIFFERS", "DUPLICATE", "MISSING_IN_BILL"]
    assert (
        abs(
            (found[DifferenceKind.MISSING_IN_BILL].ledger or 0) / 3.6e12 - float(lost["BilledCost"])
        )
        < 1e-9
    )
    off = found[DifferenceKind.DIFFERS]
    assert (off.bill or 0) - (off.ledger or 0) == 10**9 * NANO_DOLLAR
    assert found[DifferenceKind.DUPLICATE].resource == doubled["ResourceId"].lower()


def test_two_equal_charges_of_one_moment_are_both_counted(path: Path) -> None:
    """Such as two moves of equal checkpoints: the ledger has both."""
    sent = next(
        row for row in REPORT.rows if row.kind is ChargeKind.EGRESS and row.market.cloud == "gcp"
    )
    report = Report(
        **{name: getattr(REPORT, name) for name in Report.__dataclass_fields__}
        | {"rows": (sent, sent)}
    )
    agreement = compared(exported("1.2", report), path, "gcp", report.rows)
    assert (agreement.differences, agreement.bill) == ((), 2 * sent.amount)


def test_the_command_reads_an_export_of_the_command(tmp_path: Path) -> None:
    write_log([made_run("gcp")], tmp_path / "home")
    path = tmp_path / "focus.csv"
    spotctl("report", "cost", "--format", "focus", "--out", path)
    answer = spotctl("report", "reconcile", "--bill", path, "--tolerance", "0", "--json").json
    assert (answer["provider"], answer["agreed_pct"], answer["compared_pct"]) == ("gcp", 100, 100)
    assert answer["ledger_usd"] == answer["bill_usd"] > 0


# -- the clouds' exports ---------------------------------------------------------------------------

COMMON = {
    "BilledCost": "0.125",
    "BillingAccountId": "123456789012",
    "BillingCurrency": "USD",
    "BillingPeriodStart": "2026-06-01T00:00:00Z",
    "BillingPeriodEnd": "2026-07-01T00:00:00Z",
    "ChargeCategory": "Usage",
    "ChargeClass": "",
    "ChargePeriodStart": "2026-06-01T02:00:00Z",
    "ChargePeriodEnd": "2026-06-01T03:00:00Z",
    "CommitmentDiscountId": "",
    "ConsumedQuantity": "1",
    "ConsumedUnit": "Hours",
    "EffectiveCost": "0.125",
    "PricingCategory": "Dynamic",
    "ServiceCategory": "Compute",
}
CLOUDS: dict[str, Line] = {
    "aws": COMMON
    | {
        "ProviderName": "AWS",
        "ResourceId": "arn:aws:ec2:us-east-1:123456789012:instance/i-0abc",
        "ResourceType": "",
        "ServiceName": "Amazon Elastic Compute Cloud",
        "SkuMeter": "SpotUsage:c6i.2xlarge",
        "Tags": json.dumps({"user:spotctl-run": "job-1"}),
        "x_Operation": "RunInstances:SV001",
    },
    "gcp": COMMON
    | {
        "BilledCost": "0.025",
        "EffectiveCost": "0.025",
        "ProviderName": "Google Cloud",
        "ResourceId": "//compute.googleapis.com/projects/p/zones/us-central1-a/instances/7312345",
        "ResourceName": "i-0abc",
        "ServiceCategory": "",
        "ServiceName": "Compute Engine",
        "ChargeDescription": "Spot Preemptible N2 Instance Core running in Americas",
        "Tags": json.dumps([{"key": "spotctl-run", "value": "job-1"}]),
        "x_Credits": json.dumps([{"Name": "promotion", "Amount": "-0.1", "Type": "PROMOTION"}]),
    },
    "azure": COMMON
    | {
        "ServiceProviderName": "Microsoft",
        "ResourceId": "/subscriptions/5c1f/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/I-0ABC",
        "ResourceType": "Virtual machine",
        "ServiceName": "Virtual Machines",
        "Tags": '"spotctl-run": "job-1"',
        "x_SkuMeterCategory": "Virtual Machines",
    },
}


def test_a_file_with_several_clouds_needs_a_choice(path: Path) -> None:
    path.write_text(as_csv(exported("1.0")))
    with pytest.raises(
        BadBill, match="has lines of aws and azure and gcp; choose one, for example --provider aws"
    ):
        read_bill(path)
    without = [
        {name: text for name, text in line.items() if name != "ResourceId"}
        for line in exported("1.0")
    ]
    path.write_text(as_csv(without))
    with pytest.raises(BadBill, match=r"column missing: resourceid; exports of FOCUS 1\.0 have it"):
        read_bill(path)
