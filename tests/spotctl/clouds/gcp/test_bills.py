"""Bills that BigQuery has exported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spotctl.show.costs.bills.read import read_bill
from spotctl.show.costs.bills.reconcile import reconcile
from tests.spotctl.show.costs.bills.exports import ROWS, WHOLE, Line


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
