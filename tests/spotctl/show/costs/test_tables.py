"""Tables of reports."""

from __future__ import annotations

from pricing_data.units import DAY, HOUR
from spotctl.show.costs import answers, page, tables
from spotctl.show.costs.periods import By, Period
from tests.spotctl.show.costs.made import (
    AWS,
    NIGHT,
    NOW,
    MadeRun,
)
from tests.spotctl.show.costs.test_replayed_money import made, of, one_local


def test_a_period_in_which_only_local_runs_cost_something_cost_nothing() -> None:
    """Else, the totals of days would add up to more than the total of all days."""
    runs = [made(0, AWS[0], 1, 0.16, began=NIGHT), one_local()]
    today = of(runs, period=Period(NOW - DAY))
    answer = answers.as_json(today)
    assert (answer["total_usd"], answer["groups"], answer["replayed"]["runs"]) == (0.0, [], 1)
    for text in (tables.plain_text(today), answers.as_markdown(today), page.html(today)):
        assert "No run began in that time." in text
        assert "1 run on the local market" in text


def test_the_headline_says_how_many_runs_are_in_no_group() -> None:
    """A run without machines belongs to no cloud, so its row is missing there."""
    without = MadeRun("aws-7", "aws", NIGHT)
    without.begin()
    without.finish(NIGHT + HOUR, "no capacity")
    runs = [*(made(i, AWS[0], 1, 0.1) for i in range(7)), without]
    by_cloud, by_job = of(runs, By.CLOUD), of(runs)
    assert "paid for 8 runs (1 without machines)" in tables.plain_text(by_cloud)
    assert [group.figures.runs for group in by_cloud.groups] == [7]
    assert "paid for 8 runs, " in tables.plain_text(by_job)
