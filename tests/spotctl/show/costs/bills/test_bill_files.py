"""Bills in every form that a provider exports, and files that are none."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spotctl.clouds.bills import BadBill
from spotctl.show.costs.bills.read import read_bill
from spotctl.show.costs.bills.reconcile import reconcile
from tests.spotctl.show.costs.bills.exports import ROWS, WHOLE, Line, as_csv


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bill.csv"


def nested(line: Line) -> str:
    """A flat line of Google Cloud in the nested form of BigQuery."""
    row: dict[str, object] = {}
    for name, text in line.items():
        first, _, second = name.partition(".")
        value = json.loads(text) if name in {"labels", "credits", "cost"} else text
        if second:
            row.setdefault(first, {})[second] = value  # type: ignore[index]
        else:
            row[first] = value
    return json.dumps(row)


def test_json_lines_of_bigquery(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    path.write_text("\n".join(map(nested, WHOLE["gcp"])) + "\n")
    assert reconcile(ROWS["gcp"], read_bill(path), 0.0).agrees


def test_cur_2_as_parquet_and_compressed_csv(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def renamed(name: str) -> str:
        return (
            "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
            .replace("/_", "_")
            .replace("/", "_")
        )

    rows = [
        {renamed(key): text for key, text in line.items() if "Tags" not in key}
        for line in WHOLE["aws"]
    ]
    tags = [[("user_spotctl_run", "job-1")]] * len(rows)
    table = pa.Table.from_pylist(rows).append_column(
        "resource_tags", pa.array(tags, pa.map_(pa.string(), pa.string()))
    )
    pq.write_table(table, tmp_path / "cur.snappy.parquet")
    bill = read_bill(tmp_path / "cur.snappy.parquet")
    assert bill.has_tags
    assert {line.run for line in bill.lines} == {"job-1"}
    assert reconcile(ROWS["aws"], bill, 0.0).agrees
    (tmp_path / "cur.csv.gz").write_bytes(gzip.compress(as_csv(WHOLE["aws"]).encode()))
    assert reconcile(ROWS["aws"], read_bill(tmp_path / "cur.csv.gz"), 0.0).agrees


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
