"""Tables in the width of the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from spotctl.show.layout import RankedColumn, ranked_table, within

COLUMNS = (
    RankedColumn("strategy", ["standard+checkpoint", "proteus"]),
    RankedColumn("jobs", ["60", "60"], 2),
    RankedColumn("cost %", ["38.4", "28.6"]),
    RankedColumn("95%", ["[38.1, 38.9]", "[28.0, 29.3]"], 1),
)


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
    assert " ".join(one.heading for one in within(width, COLUMNS)) == headings


def test_names_stay_whole_as_long_as_the_most_important_columns_fit() -> None:
    text = io.StringIO()
    Console(file=text, width=30).print(ranked_table(30, COLUMNS))
    assert [line.rstrip() for line in text.getvalue().splitlines()] == [
        "strategy             cost %",
        "standard+checkpoint    38.4",
        "proteus                28.6",
    ]
