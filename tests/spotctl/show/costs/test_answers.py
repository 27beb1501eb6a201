"""Reports as JSON, CSV and Markdown."""

from __future__ import annotations

import pytest

from pricing_data.units import DAY, HOUR
from spotctl.log.ledger.account import STEPS
from spotctl.show.costs.answers import as_csv, as_json, as_markdown
from spotctl.show.costs.periods import By
from tests.spotctl.show.costs.made import (
    ALWAYS,
    NIGHT,
    NOW,
    report,
)
from tests.spotctl.show.costs.test_cost import DOLLAR, row, timeline


def test_json_keys_and_values() -> None:
    answer = as_json(report([row(3 * DOLLAR)], [timeline()], ALWAYS, [By.JOB], NOW))
    assert list(answer) == [
        *(
            "total_usd",
            "on_demand_usd",
            "saved_pct",
            "free_usd",
            "lost_work_usd",
            "waiting_usd",
            "evictions",
            "work",
        ),
        *(
            "usd_per_work",
            "runs",
            "running",
            "loss_usd",
            "samples",
            "usd_per_million_samples",
            "successes",
        ),
        *(
            "usd_per_success",
            "budget_usd",
            "sent_bytes",
            "received_bytes",
            "traffic_runs",
            "total_low_usd",
        ),
        *("total_high_usd", "rows_lost", "saving", "trend", "left_plan", "month"),
        *("months_of_tags", "replayed", "time_zone", "groups"),
    ]
    assert answer["total_usd"] == 3.0
    assert answer["on_demand_usd"] == 6.0
    assert answer["saved_pct"] == 50.0
    assert list(answer["saving"]) == [
        *(
            "on_demand_usd",
            "on_demand_low_usd",
            "on_demand_high_usd",
            "steps",
            "paid_usd",
            "on_demand_unknown",
        ),
    ]
    assert [step["name"] for step in answer["saving"]["steps"]] == list(STEPS)
    assert answer["usd_per_work"] == 0.03
    (group,) = answer["groups"]
    assert group["job"] == "a"
    assert group["total_usd"] == 3.0
    assert (group["runs"], group["running"]) == (1, 0)


def test_unknown_values_are_null() -> None:
    """Without use there is no saving; commands count no work; the work of two jobs cannot be
    added."""
    nothing = as_json(report([], [timeline(work=None)], ALWAYS, [By.JOB], NOW))
    assert nothing["saved_pct"] is None
    assert nothing["work"] is None
    assert nothing["usd_per_work"] is None
    two = [timeline(), timeline("b-1", "b")]
    assert as_json(report([row(1), row(1, "b-1", "b")], two, ALWAYS, [By.JOB], NOW))["work"] is None


def test_csv_has_a_line_per_group_and_no_total() -> None:
    text = as_csv(
        report([row(DOLLAR // 3)], [timeline(work=None)], ALWAYS, [By.JOB, By.CLOUD], NOW)
    )
    head, line = text.splitlines()
    cells = dict(zip(head.split(","), line.split(","), strict=True))
    assert (cells["job"], cells["cloud"], cells["total_usd"]) == ("a", "aws", "0.333333333")
    assert cells["work"] == cells["usd_per_work"] == ""


def test_markdown_is_escaped() -> None:
    evil = "a|b](http://x) <script>`"
    text = as_markdown(report([row(DOLLAR, job=evil)], [timeline(job=evil)], ALWAYS, [By.JOB], NOW))
    line = text.splitlines()[-1]
    assert "<script>" not in text
    assert line.replace(r"\|", "").count("|") == 10


def test_units_of_a_job_and_their_trend() -> None:
    """Four successful nights that become cheaper, and a failed one that is paid for by the
    others."""
    nights = [timeline(f"a-{i}", wall_began=NIGHT + i * DAY, samples=2_000_000) for i in range(4)]
    failed = timeline("a-9", wall_began=NIGHT + 9 * DAY, outcome="failed", work=50)
    rows = [row(cost * DOLLAR, f"a-{i}") for i, cost in enumerate((4, 6, 3, 3))] + [
        row(2 * DOLLAR, "a-9")
    ]
    found = as_json(report(rows, [*nights, failed], ALWAYS, [By.JOB], NOW))
    assert (found["successes"], found["usd_per_success"], found["samples"]) == (4, 4.5, 9_000_000)
    assert found["usd_per_million_samples"] == pytest.approx(2.0)
    (trend,) = found["trend"]
    assert (trend["unit"], trend["runs"], trend["before_usd"], trend["latest_usd"]) == (
        "clock",
        2,
        0.05,
        0.03,
    )
    assert trend["change_pct"] == pytest.approx(-40)


def test_the_month_and_its_forecast() -> None:
    """A dollar on each of the last ten days is expected on each day that is left; the third of July
    has three.
    """
    begins = [NOW - i * DAY for i in range(1, 11)]
    nights = [
        timeline(f"a-{at}", wall_began=at, began=at, wall_ended=at + HOUR, until=at + HOUR)
        for at in begins
    ]
    rows = [row(DOLLAR, one.run, at=one.began) for one in nights]
    month = as_json(report(rows, nights, ALWAYS, [By.JOB], NOW, 35.0))["month"]
    assert (month["month"], month["paid_usd"], month["budget_usd"]) == ("2026-07", 1.0, 35.0)
    left = 30 - 9 / 24
    assert month["forecast_usd"] == pytest.approx(1 + left * 0.9, abs=0.01)
    assert month["forecast_low_usd"] < month["forecast_usd"] < month["forecast_high_usd"]
