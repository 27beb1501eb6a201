"""FOCUS exports: the columns of 1.2 by the table next to this file, those of 1.0 by the FinOps Foundation's validator.

The table has the columns of https://focus.finops.org/focus-specification/v1-2/: the version that introduced each, its
feature level, whether it allows nulls, and its type. It was written by hand; the specification counts.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

import pytest

from pricing_data.units import parse_time
from spotctl.reports import focus
from tests.spotctl.reports.focus_validator import exported, found_by, made_up

_TABLE = Path(__file__).parent / "focus_1_2.csv"
TABLE = {line["column"]: line for line in csv.DictReader(_TABLE.read_text().splitlines())}
READERS: Mapping[str, Callable[[str], object]] = {
    "decimal": Decimal,
    "time": parse_time,
    "json": json.loads,
    "string": str,
}


def test_columns_are_those_of_the_specification() -> None:
    ours = [name for name in focus.COLUMNS if not name.startswith("x_")]
    assert set(ours) <= TABLE.keys()
    assert {name for name, one in TABLE.items() if one["level"] == "mandatory"} <= set(ours)
    first = [name for name in focus.COLUMNS_1_0 if not name.startswith("x_")]
    assert first == [name for name in TABLE if TABLE[name]["since"] == "1.0"]


def test_values_have_the_types_of_the_specification() -> None:
    lines = list(csv.DictReader(io.StringIO(focus.as_csv(made_up(), focus.COLUMNS))))
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


def test_the_validator_finds_nothing_in_a_1_0_export() -> None:
    place = os.environ.get("SPOTCTL_FOCUS_VALIDATOR")
    if not place:
        pytest.skip("SPOTCTL_FOCUS_VALIDATOR names no environment with focus-validator; 'make focus' installs one")
    assert found_by(Path(place) / "bin" / "focus-validator", exported()) == set()
