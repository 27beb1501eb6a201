"""Groups of costs."""

from __future__ import annotations

import pytest

from pricing_data.units import DAY, HOUR
from spotctl.home.errors import BadRequest
from spotctl.show.costs.periods import By, Period, check_tags, months_of_tags, parse_by
from tests.spotctl.show.costs.made import (
    NIGHT,
    MadeRun,
    report_of,
)
from tests.spotctl.show.costs.test_cost import DOLLAR, row, timeline


def test_bad_groupings_are_errors() -> None:
    with pytest.raises(BadRequest, match="--by is empty"):
        parse_by(",")
    with pytest.raises(
        BadRequest, match=r"'color'; allowed are job, run.*, or the name of a tag \(team, user\)"
    ):
        check_tags(parse_by("job,color"), [{"team": "search"}, {"user": "ada"}])


def test_repeated_groupings_count_once() -> None:
    assert parse_by(" job, day,job") == (By.JOB, By.DAY)


def test_each_tag_with_a_budget_has_a_month_of_its_own() -> None:
    runs = [
        timeline("a-1", tags={"user": "ada", "team": "x"}),
        timeline("a-2", tags={"user": "bob"}),
        timeline("a-3"),
    ]
    parts = [
        (run, [row(dollars * DOLLAR, run.run)])
        for run, dollars in zip(runs, (1, 2, 4), strict=True)
    ]
    months = months_of_tags(
        parts, NIGHT + 2 * HOUR, {"user=ada": 3.0, "user=bob": 1.0, "team=y": 9.0}
    )
    assert [(month.tag, month.paid / DOLLAR, month.budget) for month in months] == [
        ("user=ada", 1.0, 3.0),
        ("user=bob", 2.0, 1.0),
        ("team=y", 0.0, 9.0),
    ]


def test_history_has_all_runs_of_the_reported_jobs() -> None:
    runs = [MadeRun(f"{job}-{i}", job, NIGHT + i * DAY) for job in "ab" for i in range(3)]
    for made in runs:
        made.begin()
        made.finish(made.wall + HOUR)
    report_ = report_of(runs[:3], period=Period(NIGHT + 2 * DAY))
    assert [one.timeline.run for one in report_.history] == ["a-0", "a-1", "a-2"]
    assert [one.run for one in report_.runs] == ["a-2"]
