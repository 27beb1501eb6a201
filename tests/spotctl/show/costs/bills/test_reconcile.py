"""The ledger compared with bills that lack lines, have too many, or have other amounts."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from pricing_data.units import HOUR, MINUTE
from spotctl.clouds.bills import BillLine, ProviderBill
from spotctl.log.ledger.rows import ChargeKind, Use
from spotctl.show.costs.bills import views
from spotctl.show.costs.bills.read import read_bill
from spotctl.show.costs.bills.reconcile import reconcile
from spotctl.show.costs.bills.views import Agreement, BillDifference, DifferenceKind
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.show.costs.bills.exports import (
    COST,
    CURRENCY,
    PROVIDERS,
    RESOURCE,
    ROWS,
    TAGS,
    WHOLE,
    Line,
    as_csv,
    made_run,
)
from tests.spotctl.show.costs.made import AWS, NIGHT, started_hour, write_log


def compared(provider: str, bill: list[Line], path: Path, tolerance: float = 0.005) -> Agreement:
    path.write_text(as_csv(bill))
    return reconcile(ROWS[provider], read_bill(path), tolerance)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bill.csv"


def only(agreement: Agreement) -> BillDifference:
    assert not agreement.agrees
    (difference,) = agreement.differences
    return difference


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_matching_bill_agrees(provider: str, path: Path) -> None:
    agreement = compared(provider, WHOLE[provider], path, tolerance=0.0)
    assert agreement.provider == provider
    assert agreement.differences == ()
    assert agreement.machines == 3
    assert agreement.ledger == sum(row.amount for row in ROWS[provider]) > 0
    assert agreement.bill == pytest.approx(agreement.ledger, rel=1e-8)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_missing_line_is_found(provider: str, place: int, path: Path) -> None:
    """In the first hour, in the middle, and at the end."""
    bill = list(WHOLE[provider])
    gone = bill.pop(place)
    found = only(compared(provider, bill, path))
    assert found.kind is DifferenceKind.MISSING_IN_BILL
    assert found.resource == gone[RESOURCE[provider]].rpartition("/")[2].lower()
    assert found.ledger == pytest.approx(cost(provider, gone) * 3.6e12, rel=1e-6)


def named(provider: str, name: str) -> str:
    return f"/virtualMachines/{name}" if provider == "azure" else name


def cost(provider: str, line: Line) -> float:
    return float(line[COST[provider]])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_missing_machine_is_one_difference(provider: str, path: Path) -> None:
    name = WHOLE[provider][-1][RESOURCE[provider]]
    found = only(
        compared(
            provider, [line for line in WHOLE[provider] if line[RESOURCE[provider]] != name], path
        )
    )
    assert found.kind is DifferenceKind.MISSING_IN_BILL
    assert found.resource == name.rpartition("/")[2].lower()
    assert found.begin == NIGHT + HOUR // 3


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_duplicate_line_is_reported_and_counted_once(provider: str, path: Path) -> None:
    agreement = compared(provider, [*WHOLE[provider], WHOLE[provider][1]], path)
    found = only(agreement)
    assert found.kind is DifferenceKind.DUPLICATE
    assert found.where == (f"line {len(WHOLE[provider]) + 2}",)
    assert found.resource == WHOLE[provider][1][RESOURCE[provider]].rpartition("/")[2].lower()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_line_in_another_currency_is_reported_and_not_compared(provider: str, path: Path) -> None:
    bill = [dict(line) for line in WHOLE[provider]]
    bill[1].update({CURRENCY[provider]: "EUR", COST[provider]: "7.5"})
    found = only(compared(provider, bill, path))
    assert (found.kind, found.currency, found.where) == (
        DifferenceKind.OTHER_CURRENCY,
        "EUR",
        ("line 3",),
    )


def test_a_charge_after_the_end_of_a_machine_belongs_to_its_last_period() -> None:
    """A started hour that is charged in full, in two lines."""
    rows = [row._replace(market=AWS[0]) for row in started_hour().rows()]
    ends = [NIGHT, NIGHT + HOUR, NIGHT + HOUR + 20 * MINUTE]

    def bill(*amounts: str) -> ProviderBill:
        charged = zip(pairwise(ends), amounts, strict=True)
        name = rows[0].machine.lower()
        return ProviderBill(
            "aws",
            tuple(
                BillLine("", name, True, b, e, Decimal(a), "USD", "", None) for (b, e), a in charged
            ),
            None,
            None,
        )

    assert reconcile(rows, bill("0.1", "0.1"), 0.0).agrees
    found = only(reconcile(rows, bill("0.15", "0.1"), 0.0))
    assert (found.kind, found.begin, found.end) == (DifferenceKind.DIFFERS, NIGHT, NIGHT + HOUR)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_different_amount_is_reported_with_both(provider: str, path: Path) -> None:
    bill = [dict(line) for line in WHOLE[provider]]
    bill[1][COST[provider]] = str(float(bill[1][COST[provider]]) + 0.25)
    found = only(compared(provider, bill, path))
    assert found.kind is DifferenceKind.DIFFERS
    assert found.bill is not None
    assert found.ledger is not None
    assert found.bill - found.ledger == pytest.approx(0.25 * 3.6e12, rel=1e-3)
    assert found.where == ("line 3",)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_machine_unknown_to_the_ledger_is_reported(provider: str, path: Path) -> None:
    stranger = {**WHOLE[provider][0], RESOURCE[provider]: named(provider, "i-stranger")}
    found = only(compared(provider, [*WHOLE[provider], stranger], path))
    assert (found.kind, found.resource) == (DifferenceKind.MISSING_IN_LEDGER, "i-stranger")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_other_resources_of_the_account_are_not_compared(provider: str, path: Path) -> None:
    """They are told apart by tag; in an export without tags every machine must be in the ledger,
    and nothing else.
    """
    others = {
        **WHOLE[provider][0],
        RESOURCE[provider]: named(provider, "i-other"),
        TAGS[provider]: "",
    }
    agreement = compared(provider, [*WHOLE[provider], others], path)
    assert agreement.agrees
    assert agreement.other_lines == 1
    untagged = [
        {key: text for key, text in line.items() if key != TAGS[provider]}
        for line in [*WHOLE[provider], others]
    ]
    assert only(compared(provider, untagged, path)).kind is DifferenceKind.MISSING_IN_LEDGER
    disk = {
        **untagged[-1],
        RESOURCE[provider]: "/disks/vol-1" if provider == "azure" else "vol-1",
        "service.description": "Storage",
    }
    disk = {key: disk[key] for key in untagged[0]}
    assert compared(provider, [*untagged[:-1], disk], path).agrees


DISK = {"aws": ("vol-1", "vol-2"), "gcp": ("disk-1", "disk-2"), "azure": ("/disks/a", "/disks/b")}
PER_HOUR = {"aws": "lineItem/UsageType", "gcp": "sku.description", "azure": "MeterCategory"}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_disks_are_compared_by_run(provider: str, path: Path) -> None:
    """Bills name volumes, which the ledger does not know by name: the tag names their run."""
    machine = next(row for row in ROWS[provider] if row.kind.value == "compute")
    cents = 360 * 10**8
    disk = machine._replace(
        kind=ChargeKind.DISK, use=Use.WORKING, amount=100 * cents, on_demand=100 * cents
    )
    kinds = {PER_HOUR[provider]: "EBS:VolumeUsage.gp3 / Storage PD Capacity"}
    volumes = [
        {**WHOLE[provider][0], **kinds, RESOURCE[provider]: name, COST[provider]: amount}
        for name, amount in zip(DISK[provider], ("0.5", "0.5"), strict=True)
    ]

    def agreement(bill: list[Line]) -> Agreement:
        path.write_text(as_csv(bill))
        return reconcile([*ROWS[provider], disk], read_bill(path), 0.001)

    assert agreement([*WHOLE[provider], *volumes]).agrees
    found = only(agreement([*WHOLE[provider], *volumes[:1]]))
    assert (found.kind, found.resource) == (DifferenceKind.DIFFERS, "other charges of job-1")
    assert only(agreement(WHOLE[provider])).kind is DifferenceKind.MISSING_IN_BILL
    untagged = [{k: v for k, v in line.items() if k != TAGS[provider]} for line in WHOLE[provider]]
    without_tags = agreement(untagged)
    assert without_tags.agrees
    assert without_tags.untagged == 100 * cents


def test_traffic_of_a_machine_is_not_machine_time(path: Path) -> None:
    traffic = {
        **WHOLE["aws"][0],
        "lineItem/UsageType": "DataTransfer-Out-Bytes",
        "lineItem/UnblendedCost": "0.3",
    }
    found = compared("aws", [*WHOLE["aws"], traffic], path)
    assert (found.agrees, found.unmeasured) == (True, 3 * 360 * 10**9)
    assert found.bill == pytest.approx(found.ledger, rel=1e-6)
    assert views.headline(found).endswith(
        ": 100% agreed; $0.300000 of traffic in the bill was not compared"
    )
    assert "not compared: $0.300000 of traffic in the bill" in "\n".join(
        views.as_lines(found, "bill.csv")
    )
    assert (
        only(compared("aws", [*WHOLE["aws"], traffic, traffic], path)).kind
        is DifferenceKind.DUPLICATE
    )


def test_moves_of_checkpoints_are_compared_with_the_traffic_of_the_bill(path: Path) -> None:
    machine = next(row for row in ROWS["aws"] if row.kind is ChargeKind.COMPUTE)
    sent = machine._replace(kind=ChargeKind.EGRESS, amount=360 * 10**9)

    def billed(dollars: str) -> Agreement:
        line = {
            **WHOLE["aws"][0],
            "lineItem/UsageType": "USE1-USW2-AWS-Out-Bytes",
            "lineItem/UnblendedCost": dollars,
        }
        path.write_text(as_csv([*WHOLE["aws"], line]))
        return reconcile([*ROWS["aws"], sent], read_bill(path), 0.001)

    assert (billed("0.1").agrees, billed("0.1").unmeasured) == (True, 0)
    assert (billed("0.4").agrees, billed("0.4").unmeasured) == (True, 3 * 360 * 10**9)
    assert only(billed("0.05")).resource == "traffic of job-1"


def test_taxes_and_lines_without_a_resource_are_ignored(path: Path) -> None:
    tax = {**WHOLE["aws"][0], "lineItem/LineItemType": "Tax"}
    support = {**WHOLE["aws"][0], "lineItem/ResourceId": ""}
    assert compared("aws", [*WHOLE["aws"], tax, support], path).agrees


KIND = {"aws": "lineItem/LineItemType", "gcp": "cost_type", "azure": "ChargeType"}
ADJUSTED = {
    "aws": {"credits": "Credit", "discounts": "EdpDiscount", "taxes": "Tax", "refunds": "Refund"},
    "gcp": {"taxes": "tax", "refunds": "adjustment"},
    "azure": {"credits": "Adjustment", "taxes": "Tax", "refunds": "Refund"},
}
RATE = {
    "gcp": {"currency": "EUR", "currency_conversion_rate": "0.92"},
    "azure": {
        "BillingCurrency": "EUR",
        "exchangeRatePricingToBilling": "0.92",
        "pricingCurrency": "USD",
    },
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_planted_discrepancies_are_found_and_none_is_invented(provider: str, path: Path) -> None:
    """Adjustments, traffic and charges of others are no differences; one wrong line, one doubled
    and one lost are.
    """
    whole, cost_ = WHOLE[provider], COST[provider]
    adjusted = [
        {**whole[0], KIND[provider]: word, cost_: "-1.5"} for word in ADJUSTED[provider].values()
    ]
    stranger = {
        **whole[0],
        TAGS[provider]: "[]" if provider == "gcp" else "",
        RESOURCE[provider]: "disks/of-others",
    }
    right = compared(provider, [*whole, *adjusted, stranger], path, tolerance=0.0)
    assert (
        right.differences,
        right.bill == pytest.approx(right.ledger, rel=1e-8),
        right.other_lines,
    ) == ((), True, 1)
    amounts = {one.kind.value: one.own / 3.6e12 for one in right.adjustments}
    assert {name: amounts[name] for name in ADJUSTED[provider]} == dict.fromkeys(
        ADJUSTED[provider], -1.5
    )
    assert (
        views.headline(right)
        == f"compared all ${right.ledger / 3.6e12:,.6f} of the ledger: 100% agreed"
    )
    machines = list(dict.fromkeys(line[RESOURCE[provider]] for line in whole))
    of = [[line for line in whole if line[RESOURCE[provider]] == machine] for machine in machines]
    wrong = {**of[1][0], cost_: f"{float(of[1][0][cost_]) * 2:.10f}"}
    planted = compared(
        provider, [*of[0], of[0][0], wrong, *of[1][1:], *of[2][:-1], *adjusted], path
    )
    assert sorted(one.kind.value for one in planted.differences) == [
        "differs",
        "doubled in the bill",
        "missing in the bill",
    ]
    off = sum(cost(provider, line) for line in (of[0][0], of[1][0], of[2][-1])) * 3.6e12
    assert planted.agreed == pytest.approx(
        1 - off / (planted.ledger + cost(provider, of[0][0]) * 3.6e12)
    )
    assert f"{views.percent(planted.agreed):g}% agreed, the rest is $" in views.headline(planted)


@pytest.mark.parametrize("provider", RATE)
def test_other_currencies_are_converted_at_the_rate_of_the_bill(provider: str, path: Path) -> None:
    euros = [
        {**line, **RATE[provider], COST[provider]: f"{cost(provider, line) * 0.92:.10f}"}
        for line in WHOLE[provider]
    ]
    agreement = compared(provider, euros, path, tolerance=0.0001)
    assert (agreement.differences, agreement.converted) == ((), ("EUR",))


def test_rows_outside_the_billing_period_are_not_compared(path: Path) -> None:
    bill = [
        {**line, "bill/BillingPeriodStartDate": "2026-06-02T00:00:00Z"}
        for line in WHOLE["aws"][-4:]
    ]
    agreement = compared("aws", bill, path)
    assert agreement.outside > 0


def test_running_machines_are_not_compared(path: Path) -> None:
    made = made_run("aws")
    made.events = made.events[:-1]
    path.write_text(as_csv(WHOLE["aws"][:1]))
    agreement = reconcile(made.rows(), read_bill(path), 0.005)
    assert agreement.ledger == 0
    assert agreement.unsettled == len(made.rows())


def test_the_tolerance_applies_to_the_sum_of_a_machine(path: Path) -> None:
    bill = [
        {**line, "lineItem/UnblendedCost": str(1.01 * float(line["lineItem/UnblendedCost"]))}
        for line in WHOLE["aws"]
    ]
    assert compared("aws", bill, path, tolerance=0.02).agrees
    assert {one.kind for one in compared("aws", bill, path, tolerance=0.005).differences} == {
        DifferenceKind.DIFFERS
    }


@settings(max_examples=40)
@given(st.sampled_from(PROVIDERS), st.data())
def test_differences_account_for_all_changes(
    tmp_path_factory: pytest.TempPathFactory, provider: str, data: st.DataObject
) -> None:
    whole = WHOLE[provider]
    kept = data.draw(st.lists(st.sampled_from(range(len(whole))), unique=True, min_size=1))
    again = data.draw(st.lists(st.sampled_from(kept), unique=True))
    bill = [whole[i] for i in sorted(kept)] + [whole[i] for i in again]
    agreement = compared(
        provider, bill, tmp_path_factory.mktemp("bill") / "bill.csv", tolerance=0.0
    )
    kinds = [one.kind for one in agreement.differences]
    assert kinds.count(DifferenceKind.DUPLICATE) == len(again)
    missing = sum(
        one.ledger or 0
        for one in agreement.differences
        if one.kind is DifferenceKind.MISSING_IN_BILL
    )
    doubled = sum(
        one.bill or 0 for one in agreement.differences if one.kind is DifferenceKind.DUPLICATE
    )
    assert agreement.bill == pytest.approx(agreement.ledger - missing + doubled, rel=1e-6, abs=1e7)
    assert doubled == pytest.approx(
        sum(cost(provider, whole[i]) for i in again) * 3.6e12, rel=1e-6, abs=10
    )


# -- the command -----------------------------------------------------------------------------------


def test_the_command_reports_differences(path: Path, tmp_path: Path) -> None:
    write_log([made_run("aws")], tmp_path / "home")
    path.write_text(as_csv(WHOLE["aws"]))
    ended = spotctl("report", "reconcile", "--bill", path)
    assert (ended.code, ended.err) == (0, "")
    assert "no differences" in ended.out
    bill = [dict(line) for line in WHOLE["aws"]]
    bill[2]["lineItem/CurrencyCode"] = "EUR"
    path.write_text(as_csv([*bill[:5], *bill[6:], bill[0]]))
    ended = spotctl("report", "reconcile", "--bill", path, "--tolerance", "1%")
    assert ended.code == 1
    assert "3 differences" in ended.out
    for kind in ("missing in the bill", "doubled in the bill", "in another currency"):
        (line,) = [line for line in ended.out.splitlines() if line.startswith(kind)]
        assert "i-job-1-00" in line
    answer = spotctl("report", "reconcile", "--bill", path, "--json").json
    assert [one["kind"] for one in answer["differences"]].count("doubled in the bill") == 1
    assert answer["agrees"] is False


@pytest.mark.parametrize(
    "words",
    [["--tolerance", "2"], ["--provider", "oracle"], []],
)
def test_errors_are_one_line(words: list[str], path: Path, approved: Approved) -> None:
    path.write_text("")
    ended = spotctl("report", "reconcile", "--bill", path, *words)
    approved(ended)
