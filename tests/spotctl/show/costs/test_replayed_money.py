"""Real and replayed money: no sum has both, in any format."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, NANO_SECONDS_PER_DOLLAR
from spotctl.cli import api
from spotctl.log import events as ev
from spotctl.log.ledger.final_cost import timeline_of
from spotctl.show.costs import answers, focus, page, tables
from spotctl.show.costs.answers import cost_summary
from spotctl.show.costs.cost import Report
from spotctl.show.costs.periods import By, Period
from tests.spotctl.command_line import spotctl
from tests.spotctl.show.costs.made import (
    ALWAYS,
    AWS,
    GCP,
    LOCAL,
    NOW,
    MadeRun,
    in_order,
    report,
    write_log,
)

FORMATS = ("table", "json", "csv", "md", "html", "focus", "focus-1.0")


def made(
    number: int, market: Market, hours: int, dollars: float, job: str = "", began: int = NOW - DAY
) -> MadeRun:
    """A run with one spot machine, which the provider bills by the hour at this price."""
    cloud = market.cloud
    run = MadeRun(
        f"{job or cloud}-{number}", job or cloud, began, {"team": job or cloud}, provider=cloud
    )
    run.begin(budget="25 USD")
    run.plan(1.0, 2.0)
    run.price(market, [began, began + 2 * DAY], [round(dollars * 1e9)] * 2)
    names = run.rent(market, 1, began)
    for clock in (40, 70, 100):
        run.add(began + hours * HOUR * clock // 100, ev.Progressed(clock, 0.5, 1))
    run.end_machines(names, began + hours * HOUR, "returned")
    run.finish(began + hours * HOUR, clocks=100)
    return run


def three_on_a_cloud() -> list[MadeRun]:
    """Three runs for $0.64 together."""
    return [made(i, AWS[0], hours, 0.16) for i, hours in enumerate((1, 1, 2))]


def one_local() -> MadeRun:
    """A run for $4.68 of replayed money."""
    return made(9, LOCAL, 4, 1.17)


def of(runs: Sequence[MadeRun], *by: By, local: bool = False, period: Period = ALWAYS) -> Report:
    timelines = in_order(timeline_of(run.log(1000 * i)) for i, run in enumerate(runs))
    rows = [row for run in runs for row in run.rows()]
    return report(rows, timelines, period, by or (By.JOB,), NOW, 10.0, local=local)


def dollars_of(runs: Sequence[MadeRun]) -> float:
    return sum(row.amount for run in runs for row in run.rows()) / NANO_SECONDS_PER_DOLLAR


@pytest.fixture
def mixed(tmp_path: Path) -> None:
    write_log([*three_on_a_cloud(), one_local()], tmp_path / "home")


@pytest.fixture
def only_local(tmp_path: Path) -> None:
    write_log([one_local()], tmp_path / "home")


@pytest.mark.usefixtures("mixed")
def test_a_local_run_is_in_no_sum_of_a_report_on_cloud_runs() -> None:
    table = spotctl("report", "cost").out
    assert "aws: $0.6400 paid for 3 runs" in " ".join(table.split())
    answer = spotctl("report", "cost", "--by", "run", "--json").json
    assert (answer["total_usd"], answer["month"]["paid_usd"]) == (0.64, 0.0)
    assert [group["run"] for group in answer["groups"]] == ["aws-0", "aws-1", "aws-2"]
    assert answer["replayed"] == {
        "reported": False,
        "runs": 1,
        "total_usd": pytest.approx(4.68),
        "on_demand_usd": pytest.approx(1.6, abs=0.4),
    }
    for format_ in FORMATS:
        assert "5.32" not in spotctl("report", "cost", "--format", format_).out, format_


def test_the_month_and_its_forecast_are_without_replayed_money() -> None:
    billed, every = (
        answers.as_json(of(runs))["month"] for runs in (three_on_a_cloud(), mixed_runs())
    )
    assert billed == every
    assert billed["forecast_usd"] > 0


def mixed_runs() -> list[MadeRun]:
    return [*three_on_a_cloud(), one_local()]


@pytest.mark.parametrize("format_", ["table", "md", "html"])
@pytest.mark.usefixtures("mixed")
def test_what_was_left_out_is_said_with_its_option(format_: str) -> None:
    text = " ".join(
        spotctl("report", "cost", "--format", format_, COLUMNS="200").out.split()
    ).replace("\\", "")
    assert "left out: 1 run on the local market, $4.68 replayed and not billed (--local" in text


@pytest.mark.usefixtures("mixed")
def test_local_runs_are_reported_when_asked_for() -> None:
    table = " ".join(spotctl("report", "cost", "--local").out.split())
    assert "local: $4.68 replayed, not billed, for 1 run" in table
    assert "paid" not in table
    assert "No real money was spent." in table
    answer = spotctl("report", "cost", "--local", "--json").json
    assert (answer["total_usd"], answer["replayed"]["reported"]) == (pytest.approx(4.68), True)
    assert (answer["month"]["paid_usd"], answer["groups"][0]["replayed_runs"]) == (0.0, 1)


@pytest.mark.usefixtures("only_local")
def test_a_home_with_only_local_runs_shows_them_as_replayed() -> None:
    alone, asked = (
        spotctl("report", "cost", "--by", "run", *words) for words in ((), ("--local",))
    )
    assert "$4.68 replayed, not billed, for 1 run" in " ".join(alone.out.split())
    assert alone.out == asked.out
    assert spotctl("report", "cost", "--json").json["month"]["forecast_usd"] == 0.0
    markdown = spotctl("report", "cost", "--format", "md").out
    assert "| job | replayed | on demand |" in markdown
    (line,) = csv.DictReader(io.StringIO(spotctl("report", "cost", "--format", "csv").out))
    assert (line["runs"], line["replayed_runs"]) == ("1", "1")


def test_replayed_rows_cost_nothing_in_focus() -> None:
    for columns in (focus.COLUMNS, focus.COLUMNS_1_0):
        lines = list(csv.DictReader(focus.csv_lines(of([one_local()]), columns)))
        assert lines
        for line in lines:
            costs = (
                "BilledCost",
                "EffectiveCost",
                "ContractedCost",
                "ListCost",
                "PricingCurrencyEffectiveCost",
            )
            assert {line.get(cost, "0.0") for cost in costs} == {"0.0"}
            assert Decimal(line["PricingQuantity"]) > 0


def test_runs_of_a_job_that_was_tried_on_the_local_market_are_compared_with_cloud_runs_alone() -> (
    None
):
    """The first runs of a job are often local: they are no part of its trend and of its cost per
    clock.
    """
    tried = [made(i, LOCAL, 1, 2.0, "a", NOW - (9 - i) * DAY) for i in range(3)]
    paid = [made(i + 3, AWS[0], 1, 0.2, "a", NOW - (3 - i) * DAY) for i in range(2)]
    answer, alone = (answers.as_json(of(runs)) for runs in ([*tried, *paid], paid))
    assert {**answer, "replayed": None} == {**alone, "replayed": None}
    (trend,) = answer["trend"]
    assert trend["before_usd"] == trend["latest_usd"] == pytest.approx(0.002)


def test_the_message_about_replayed_runs_calls_nothing_paid() -> None:
    _, summary = cost_summary(of([one_local()]))
    assert "- replayed: $4.68" in summary.splitlines()
    assert "- paid: " not in summary


@pytest.mark.usefixtures("mixed")
def test_the_python_api_separates_them_too(tmp_path: Path) -> None:
    paid, replayed = (api.report(local=local, home=tmp_path / "home") for local in (False, True))
    assert (paid.total_usd, paid.replayed) == (0.64, False)
    assert replayed.total_usd == pytest.approx(4.68)
    assert replayed.replayed
    assert paid.frame()["total_usd"].sum() == pytest.approx(0.64)


# -- random mixes ----------------------------------------------------------------------------------

ANY_RUN = st.tuples(
    st.sampled_from((*AWS, GCP, LOCAL)),
    st.integers(1, 30),
    st.integers(1, 300),
    st.sampled_from("ab"),
    st.integers(0, 9),
)


def without_remark(text: str) -> str:
    """The text of a report without the line or paragraph that says what was left out."""
    return re.sub(r"(<p[^>]*>)?left out: .*?(</p>|\n+)", "", text, flags=re.DOTALL)


def sums(whole: Report) -> dict[str, Any]:
    """The text of every format, without what is said of replayed runs."""
    answer = answers.as_json(whole)
    return {
        "json": json.dumps({**answer, "replayed": None}),
        "csv": answers.as_csv(whole),
        "md": without_remark(answers.as_markdown(whole)),
        "table": without_remark(tables.plain_text(whole)),
        "html": without_remark(page.html(whole)),
        "focus": "".join(focus.csv_lines(whole, focus.COLUMNS)),
        "focus-1.0": "".join(focus.csv_lines(whole, focus.COLUMNS_1_0)),
        "summary": cost_summary(whole)[1].splitlines()[0],
    }


@settings(max_examples=25, deadline=None)
@given(st.lists(ANY_RUN, min_size=1, max_size=6), st.sampled_from(By))
def test_every_format_is_that_of_the_cloud_runs_alone(
    mix: list[tuple[Market, int, int, str, int]], by: By
) -> None:
    runs = [
        made(i, market, hours, cents / 100, job, NOW - days * DAY - 2 * DAY)
        for i, (market, hours, cents, job, days) in enumerate(mix)
    ]
    billed = [run for run in runs if run.provider != "local"]
    replayed = [run for run in runs if run.provider == "local"]
    if not billed or not replayed:
        return
    alone, together = sums(of(billed, by)), sums(of(runs, by))
    for name, text in alone.items():
        assert together[name] == text, name
    whole = of(runs, by)
    assert answers.as_json(whole)["total_usd"] == pytest.approx(dollars_of(billed), abs=1e-8)
    lines = list(csv.DictReader(focus.csv_lines(whole, focus.COLUMNS)))
    for column in ("BilledCost", "EffectiveCost"):
        assert float(sum(Decimal(line[column]) for line in lines)) == pytest.approx(
            dollars_of(billed), abs=1e-9
        )
    groups = list(csv.DictReader(io.StringIO(answers.as_csv(whole))))
    assert sum(float(line["total_usd"]) for line in groups) == pytest.approx(
        dollars_of(billed), abs=1e-7
    )
    local = of(runs, by, local=True)
    assert answers.as_json(local)["total_usd"] == pytest.approx(dollars_of(replayed), abs=1e-8)
    assert (local.is_replayed, whole.is_replayed) == (True, False)
