"""The declared columns of a cost report: values in each format, and the columns of each format."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pricing_data.units import HOUR, NANO_SECONDS_PER_DOLLAR
from spotctl.show.costs.answers import as_csv, as_json, as_markdown
from spotctl.show.costs.columns import (
    COLUMNS,
    JSON_GROUP,
    MARKDOWN,
    TERMINAL,
    TERMINAL_PRIORITY,
    FigureColumn,
    Unit,
)
from spotctl.show.costs.tables import plain_text
from tests.spotctl.show.costs.made import month, report_of


@pytest.mark.parametrize(
    ("unit", "value", "json", "csv", "text"),
    [
        (Unit.DOLLARS, 3 * NANO_SECONDS_PER_DOLLAR // 2, 1.5, "1.500000000", "$1.50"),
        (Unit.HOURS, 3 * HOUR // 2, 1.5, "1.5", "1.5"),
        (Unit.PERCENT, 12.345, 12.345, "12.345", "12.3%"),
        (Unit.COUNT, 1234, 1234, "1234", "1,234"),
        (Unit.BYTES, 1_234_567_890, 1_234_567_890, "1234567890", "1.2 GB"),
        (Unit.BYTES, 5_000_000, 5_000_000, "5000000", "5.0 MB"),
        (Unit.DOLLARS_PER_WORK, 0.01234, 0.01234, "0.01234", "$0.0123"),
        *((unit, None, None, "", "-") for unit in Unit),
    ],
)
def test_values_in_each_format(
    unit: Unit, value: float | None, json: float | None, csv: str, text: str
) -> None:
    column, row = (
        FigureColumn("key", "heading", unit, "work", "meaning"),
        report_of(month()[:1]).whole,
    )
    figures = replace(row, work=value)  # type: ignore[arg-type]  # any figure of this unit
    assert (column.json(figures), column.csv(figures), column.text(figures, 2)) == (json, csv, text)


def test_terminal_columns_have_a_priority() -> None:
    assert sorted(one.name for one in TERMINAL) == sorted(one.name for one in TERMINAL_PRIORITY)


def test_every_format_shows_its_columns() -> None:
    report = report_of(month()[:3])
    (group,) = as_json(report)["groups"]
    names = [column.name for column in JSON_GROUP]
    assert list(group) == ["job", *names, "saving"]
    assert as_csv(report).splitlines()[0].split(",") == ["job", *names]
    headings = [column.heading for column in MARKDOWN]
    assert f"| job | {' | '.join(headings)} |" in as_markdown(report)
    assert all(column.heading in plain_text(report) for column in TERMINAL)
    for column in COLUMNS.values():
        if column.name in group:
            assert group[column.name] == column.json(report.groups[0].figures)
