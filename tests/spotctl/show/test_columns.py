"""Tables in the width of the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from spotctl.show.columns import Column, fitting, table

COLUMNS: tuple[Column[dict[str, str]], ...] = (
    Column("strategy", heading="strategy"),
    Column("jobs", heading="jobs", rank=2),
    Column("cost", heading="cost %"),
    Column("ends", heading="95%", rank=1),
)
ROWS = [
    {"strategy": "standard+checkpoint", "jobs": "60", "cost": "38.4", "ends": "[38.1, 38.9]"},
    {"strategy": "proteus", "jobs": "60", "cost": "28.6", "ends": "[28.0, 29.3]"},
]


@pytest.mark.parametrize(
    ("width", "headings"),
    [
        (47, "strategy jobs cost % 95%"),
        (46, "strategy cost % 95%"),
        (41, "strategy cost % 95%"),
        (40, "strategy cost %"),
        (10, "strategy cost %"),
    ],
)
def test_the_least_important_columns_are_left_out_first(width: int, headings: str) -> None:
    assert " ".join(column.heading or "" for column, _ in fitting(COLUMNS, ROWS, width)) == headings


def test_names_stay_whole_as_long_as_the_most_important_columns_fit() -> None:
    text = io.StringIO()
    Console(file=text, width=30).print(table(COLUMNS, ROWS, 30))
    assert [line.rstrip() for line in text.getvalue().splitlines()] == [
        "strategy             cost %",
        "standard+checkpoint    38.4",
        "proteus                28.6",
    ]
