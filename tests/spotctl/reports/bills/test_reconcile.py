"""The ledger beside bills that lack something, hold too much, or say something else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing_data.units import HOUR, MINUTE
from spotctl.ledger import Kind as Ledger
from spotctl.ledger import Use
from spotctl.reports.bills.lines import BadBill, Bill, BillLine
from spotctl.reports.bills.read import read_bill
from spotctl.reports.bills.reconcile import Agreement, Difference, Kind, reconciled
from tests.spotctl.cli import spotctl
from tests.spotctl.reports.bills.exports import COST, CURRENCY, RESOURCE, TAGS, Line, as_csv, lines, made_run
from tests.spotctl.reports.made import AWS, NIGHT, begun_hour, keep

PROVIDERS = ("aws", "gcp", "azure")
ROWS = {provider: made_run(provider).rows() for provider in PROVIDERS}
WHOLE = {provider: lines(provider, ROWS[provider]) for provider in PROVIDERS}


def beside(provider: str, bill: list[Line], path: Path, tolerance: float = 0.005) -> Agreement:
    path.write_text(as_csv(bill))
    return reconciled(ROWS[provider], read_bill(path), tolerance)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bill.csv"


def only(agreement: Agreement) -> Difference:
    assert not agreement.agrees
    (difference,) = agreement.differences
    return difference


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_bill_that_says_the_same_agrees(provider: str, path: Path) -> None:
    agreement = beside(provider, WHOLE[provider], path, tolerance=0.0)
    assert agreement.provider == provider
    assert agreement.differences == ()
    assert agreement.machines == 3
    assert agreement.ledger == sum(row.amount for row in ROWS[provider]) > 0
    assert agreement.bill == pytest.approx(agreement.ledger, rel=1e-8)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_line_that_is_missing_is_named(provider: str, place: int, path: Path) -> None:
    """Wherever it was: at the first hour, within, at the end."""
    bill = list(WHOLE[provider])
    gone = bill.pop(place)
    found = only(beside(provider, bill, path))
    assert found.kind is Kind.MISSING_IN_BILL
    assert found.resource == gone[RESOURCE[provider]].rpartition("/")[2].lower()
    assert found.ledger == pytest.approx(cost(provider, gone) * 3.6e12, rel=1e-6)


def named(provider: str, name: str) -> str:
    return f"/virtualMachines/{name}" if provider == "azure" else name


def cost(provider: str, line: Line) -> float:
    return float(line[COST[provider]]) - (0.5 if provider == "gcp" else 0.0)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_machine_that_is_missing_is_one_difference(provider: str, path: Path) -> None:
    name = WHOLE[provider][-1][RESOURCE[provider]]
    found = only(beside(provider, [line for line in WHOLE[provider] if line[RESOURCE[provider]] != name], path))
    assert found.kind is Kind.MISSING_IN_BILL
    assert found.resource == name.rpartition("/")[2].lower()
    assert found.begin == NIGHT + HOUR // 3


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_line_that_is_there_twice_is_named_and_counted_once(provider: str, path: Path) -> None:
    agreement = beside(provider, [*WHOLE[provider], WHOLE[provider][1]], path)
    found = only(agreement)
    assert found.kind is Kind.DOUBLED
    assert found.where == (f"line {len(WHOLE[provider]) + 2}",)
    assert found.resource == WHOLE[provider][1][RESOURCE[provider]].rpartition("/")[2].lower()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_line_in_another_currency_is_named_and_not_compared(provider: str, path: Path) -> None:
    bill = [dict(line) for line in WHOLE[provider]]
    bill[1].update({CURRENCY[provider]: "EUR", COST[provider]: "7.5"})
    found = only(beside(provider, bill, path))
    assert (found.kind, found.currency, found.where) == (Kind.OTHER_CURRENCY, "EUR", ("line 3",))


def test_what_is_charged_beyond_the_end_of_a_life_belongs_to_its_last_period() -> None:
    """An hour that was begun and is charged as a whole, in two lines."""
    rows = [replace(row, market=AWS[0]) for row in begun_hour().rows()]
    ends = [NIGHT, NIGHT + HOUR, NIGHT + HOUR + 20 * MINUTE]

    def bill(*amounts: str) -> Bill:
        charged = zip(pairwise(ends), amounts, strict=True)
        name = rows[0].machine.lower()
        return Bill(
            "aws",
            tuple(BillLine("", name, True, b, e, Decimal(a), "USD", "", None) for (b, e), a in charged),
            None,
            None,
        )

    assert reconciled(rows, bill("0.1", "0.1"), 0.0).agrees
    found = only(reconciled(rows, bill("0.15", "0.1"), 0.0))
    assert (found.kind, found.begin, found.end) == (Kind.DIFFERS, NIGHT, NIGHT + HOUR)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_another_amount_is_named_with_both(provider: str, path: Path) -> None:
    bill = [dict(line) for line in WHOLE[provider]]
    bill[1][COST[provider]] = str(float(bill[1][COST[provider]]) + 0.25)
    found = only(beside(provider, bill, path))
    assert found.kind is Kind.DIFFERS
    assert found.bill is not None
    assert found.ledger is not None
    assert found.bill - found.ledger == pytest.approx(0.25 * 3.6e12, rel=1e-3)
    assert found.where == ("line 3",)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_machine_that_the_ledger_does_not_have_is_named(provider: str, path: Path) -> None:
    stranger = {**WHOLE[provider][0], RESOURCE[provider]: named(provider, "i-stranger")}
    found = only(beside(provider, [*WHOLE[provider], stranger], path))
    assert (found.kind, found.resource) == (Kind.MISSING_IN_LEDGER, "i-stranger")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_others_rent_in_the_account_is_not_compared(provider: str, path: Path) -> None:
    """By its tag; where the export tells no tags, every machine has to be explained, and nothing else."""
    others = {**WHOLE[provider][0], RESOURCE[provider]: named(provider, "i-other"), TAGS[provider]: ""}
    agreement = beside(provider, [*WHOLE[provider], others], path)
    assert agreement.agrees
    assert agreement.other_lines == 1
    untagged = [
        {key: text for key, text in line.items() if key != TAGS[provider]} for line in [*WHOLE[provider], others]
    ]
    assert only(beside(provider, untagged, path)).kind is Kind.MISSING_IN_LEDGER
    disk = {
        **untagged[-1],
        RESOURCE[provider]: "/disks/vol-1" if provider == "azure" else "vol-1",
        "service.description": "Storage",
    }
    disk = {key: disk[key] for key in untagged[0]}
    assert beside(provider, [*untagged[:-1], disk], path).agrees


DISK = {"aws": ("vol-1", "vol-2"), "gcp": ("disk-1", "disk-2"), "azure": ("/disks/a", "/disks/b")}
PER_HOUR = {"aws": "lineItem/UsageType", "gcp": "sku.description", "azure": "MeterCategory"}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_disks_are_compared_by_run(provider: str, path: Path) -> None:
    """Bills name volumes, which the ledger does not know by name: the tag of their run says whose they are."""
    machine = next(row for row in ROWS[provider] if row.kind.value == "compute")
    cents = 360 * 10**8
    disk = replace(machine, kind=Ledger.DISK, use=Use.WORKING, amount=100 * cents, on_demand=100 * cents)
    kinds = {PER_HOUR[provider]: "EBS:VolumeUsage.gp3 / Storage PD Capacity"}
    volumes = [
        {**WHOLE[provider][0], **kinds, RESOURCE[provider]: name, COST[provider]: amount}
        for name, amount in zip(DISK[provider], ("1.0", "1.0") if provider == "gcp" else ("0.5", "0.5"), strict=True)
    ]

    def laid(bill: list[Line]) -> Agreement:
        path.write_text(as_csv(bill))
        return reconciled([*ROWS[provider], disk], read_bill(path), 0.001)

    assert laid([*WHOLE[provider], *volumes]).agrees
    found = only(laid([*WHOLE[provider], *volumes[:1]]))
    assert (found.kind, found.resource) == (Kind.DIFFERS, "beside the machines of job-1")
    assert only(laid(WHOLE[provider])).kind is Kind.MISSING_IN_BILL
    untagged = [{k: v for k, v in line.items() if k != TAGS[provider]} for line in WHOLE[provider]]
    told = laid(untagged)
    assert told.agrees
    assert told.untold == 100 * cents


def test_traffic_of_a_machine_is_no_time_of_it(path: Path) -> None:
    traffic = {**WHOLE["aws"][0], "lineItem/UsageType": "DataTransfer-Out-Bytes", "lineItem/UnblendedCost": "0.3"}
    found = only(beside("aws", [*WHOLE["aws"], traffic], path))
    assert (found.kind, found.resource) == (Kind.MISSING_IN_LEDGER, "beside the machines of job-1")


def test_taxes_and_lines_without_a_resource_do_not_count(path: Path) -> None:
    tax = {**WHOLE["aws"][0], "lineItem/LineItemType": "Tax"}
    support = {**WHOLE["aws"][0], "lineItem/ResourceId": ""}
    assert beside("aws", [*WHOLE["aws"], tax, support], path).agrees


def test_rows_outside_of_the_billing_period_are_not_compared(path: Path) -> None:
    bill = [{**line, "bill/BillingPeriodStartDate": "2026-06-02T00:00:00Z"} for line in WHOLE["aws"][-4:]]
    agreement = beside("aws", bill, path)
    assert agreement.outside > 0


def test_machines_that_still_run_are_not_compared(path: Path) -> None:
    made = made_run("aws")
    made.events = made.events[:-1]
    path.write_text(as_csv(WHOLE["aws"][:1]))
    agreement = reconciled(made.rows(), read_bill(path), 0.005)
    assert agreement.ledger == 0
    assert agreement.unsettled == len(made.rows())


def test_the_tolerance_is_of_a_machines_sum(path: Path) -> None:
    bill = [
        {**line, "lineItem/UnblendedCost": str(1.01 * float(line["lineItem/UnblendedCost"]))} for line in WHOLE["aws"]
    ]
    assert beside("aws", bill, path, tolerance=0.02).agrees
    assert {one.kind for one in beside("aws", bill, path, tolerance=0.005).differences} == {Kind.DIFFERS}


@settings(max_examples=40)
@given(st.sampled_from(PROVIDERS), st.data())
def test_whatever_is_taken_away_is_what_is_found_missing(
    tmp_path_factory: pytest.TempPathFactory, provider: str, data: st.DataObject
) -> None:
    """The differences account for all that both sums are apart."""
    whole = WHOLE[provider]
    kept = data.draw(st.lists(st.sampled_from(range(len(whole))), unique=True, min_size=1))
    again = data.draw(st.lists(st.sampled_from(kept), unique=True))
    bill = [whole[i] for i in sorted(kept)] + [whole[i] for i in again]
    agreement = beside(provider, bill, tmp_path_factory.mktemp("bill") / "bill.csv", tolerance=0.0)
    kinds = [one.kind for one in agreement.differences]
    assert kinds.count(Kind.DOUBLED) == len(again)
    missing = sum(one.ledger or 0 for one in agreement.differences if one.kind is Kind.MISSING_IN_BILL)
    doubled = sum(one.bill or 0 for one in agreement.differences if one.kind is Kind.DOUBLED)
    assert agreement.bill == pytest.approx(agreement.ledger - missing + doubled, rel=1e-6, abs=1e7)
    assert doubled == pytest.approx(sum(cost(provider, whole[i]) for i in again) * 3.6e12, rel=1e-6, abs=10)


# -- files -------------------------------------------------------------------------------------------------------------


def nested(line: Line) -> str:
    """A flat line of Google Cloud as BigQuery writes it."""
    found: dict[str, object] = {}
    for name, text in line.items():
        first, _, second = name.partition(".")
        value = json.loads(text) if name in {"labels", "credits", "cost"} else text
        if second:
            found.setdefault(first, {})[second] = value  # type: ignore[index]
        else:
            found[first] = value
    return json.dumps(found)


def test_bigquerys_json_lines_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    path.write_text("\n".join(map(nested, WHOLE["gcp"])) + "\n")
    assert reconciled(ROWS["gcp"], read_bill(path), 0.0).agrees


def test_cur_2_as_parquet_and_compressed_csv_say_the_same(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def renamed(name: str) -> str:
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).replace("/_", "_").replace("/", "_")

    rows = [{renamed(key): text for key, text in line.items() if "Tags" not in key} for line in WHOLE["aws"]]
    tags = [[("user_spotctl_run", "job-1")]] * len(rows)
    table = pa.Table.from_pylist(rows).append_column("resource_tags", pa.array(tags, pa.map_(pa.string(), pa.string())))
    pq.write_table(table, tmp_path / "cur.snappy.parquet")
    bill = read_bill(tmp_path / "cur.snappy.parquet")
    assert bill.tells_tags
    assert {line.run for line in bill.lines} == {"job-1"}
    assert reconciled(ROWS["aws"], bill, 0.0).agrees
    (tmp_path / "cur.csv.gz").write_bytes(gzip.compress(as_csv(WHOLE["aws"]).encode()))
    assert reconciled(ROWS["aws"], read_bill(tmp_path / "cur.csv.gz"), 0.0).agrees


def edited(change: Callable[[Line], Line]) -> str:
    """A bill whose third line is another."""
    return as_csv([*WHOLE["aws"][:1], change(dict(WHOLE["aws"][1])), *WHOLE["aws"][2:]])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "has no line"),
        ("a,b,c\n1,2,3\n", "its columns (a, b, c ...) are of no known export; an AWS Cost and Usage Report has"),
        (edited(lambda line: {**line, "lineItem/UnblendedCost": "abc"}), "line 3: lineitemunblendedcost 'abc' is not"),
        (
            edited(lambda line: {**line, "lineItem/UnblendedCost": "nan"}),
            "line 3: lineitemunblendedcost 'nan' is no am",
        ),
        (edited(lambda line: {**line, "lineItem/UsageStartDate": "noon"}), "line 3: lineitemusagestartdate 'noon'"),
        (edited(lambda line: {**line, "lineItem/UsageEndDate": "2020-01-01"}), "line 3: the period ends before"),
        (as_csv(WHOLE["aws"]).replace("USD", "USD,", 1), "line 2: has 16 of 15 columns"),
        (as_csv(WHOLE["aws"]).replace("lineItem/ResourceId", "x"), "let the report include resource ids"),
        ('"a\n', "is no CSV"),
        ("\x00\x01", "of no known export"),
    ],
)
def test_a_bill_that_cannot_be_read_is_one_line(content: str, says: str, path: Path) -> None:
    path.write_text(content)
    with pytest.raises(BadBill) as failed:
        read_bill(path)
    message = str(failed.value)
    assert says in message or ("no line" in message and "\x00" in content)
    assert str(path) in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("bill.jsonl", b'{"cost": 1\n', "line 1: is no JSON"),
        ("bill.jsonl", b"[1]\n", "line 1: is no object"),
        ("bill.parquet", b"PAR1 and no more", "is no Parquet"),
        ("bill.csv", b"\xff\xfe\x00", "is no text in UTF-8"),
        ("bill.csv.gz", b"no gzip", "bill.csv.gz"),
        ("none.csv", None, "No such file"),
    ],
)
def test_a_file_that_is_no_export_is_one_line(name: str, content: bytes | None, says: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadBill, match=says):
        read_bill(tmp_path / name)


def test_the_wrong_provider_is_told_what_is_missing(path: Path) -> None:
    path.write_text(as_csv(WHOLE["azure"]))
    with pytest.raises(BadBill, match=r"lacks .*usagestarttime, .* which an export of gcp has"):
        read_bill(path, "gcp")


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_says_whether_they_agree(path: Path, tmp_path: Path) -> None:
    keep([made_run("aws")], tmp_path / "home")
    path.write_text(as_csv(WHOLE["aws"]))
    told = spotctl("report", "reconcile", "--bill", path)
    assert (told.code, told.err) == (0, "")
    assert "they agree" in told.out
    bill = [dict(line) for line in WHOLE["aws"]]
    bill[2]["lineItem/CurrencyCode"] = "EUR"
    path.write_text(as_csv([*bill[:5], *bill[6:], bill[0]]))
    told = spotctl("report", "reconcile", "--bill", path, "--tolerance", "1%")
    assert told.code == 1
    assert "they differ in 3 places" in told.out
    for kind in ("missing in the bill", "doubled in the bill", "in another currency"):
        (line,) = [line for line in told.out.splitlines() if line.startswith(kind)]
        assert "i-job-1-00" in line
    answer = spotctl("report", "reconcile", "--bill", path, "--json").json
    assert [one["kind"] for one in answer["differences"]].count("doubled in the bill") == 1
    assert answer["agrees"] is False


@pytest.mark.parametrize(
    ("words", "says"),
    [(["--tolerance", "2"], "is not a fraction"), (["--provider", "oracle"], "is not one of"), ([], "no line")],
)
def test_what_cannot_be_done_is_one_line(words: list[str], says: str, path: Path) -> None:
    path.write_text("")
    told = spotctl("report", "reconcile", "--bill", path, *words)
    assert told.code == 2
    assert says in told.error
