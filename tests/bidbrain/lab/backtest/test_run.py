from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from bidbrain.billing import billing_rule
from bidbrain.lab.backtest.results import JobResult, notes, summarize
from bidbrain.lab.backtest.run import backtest, jobs_in, portions, run_of
from bidbrain.lab.backtest.scenario import BadScenario, Scenario
from bidbrain.strategies.base import Checkpointing, Offer, Overheads, Rent
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, SECOND, Span
from tests.bidbrain.lab.backtest.worlds import BASELINE, offer, restless
from tests.pricing_data.histories import START

SCHEMES = [
    "on-demand",
    "standard+checkpoint",
    "standard+agileml",
    "tierml",
    "proteus",
    "fixed-bid:0.0000001",
]
HISTORIES = (restless(1, 200), restless(2, 200, "b.large"))
ELSEWHERE = replace(restless(3, 200), market=Market("aws", "us-east-1", "us-east-1b", "a.large"))
ZONE = "us-east-1a"
RELIABLE = Rent(Offer(Market("aws", "us-east-1", "-", "tiny"), 1.0, 100), 1, None)


def scenario(**changes: object) -> Scenario:
    known = {
        "histories": HISTORIES,
        "offers": (offer(HISTORIES[0]), offer(HISTORIES[1], 6.0)),
        "train": Span(START, START + 90 * HOUR),
        "test": Span(START + 90 * HOUR, START + 199 * HOUR),
        "baseline": BASELINE,
        "reliable": RELIABLE,
        "hours": (2.0, 6.0),
        "most_nu": 48.0,
        "billing": billing_rule("hourly-refund"),
        "overheads": Overheads(300 * SECOND, 60 * SECOND, 30 * SECOND),
        "checkpoints": Checkpointing(0.83, 120 * SECOND),
        "starts": 12,
        "seed": 3,
    }
    return Scenario(**{**known, **changes})  # type: ignore[arg-type]


def test_all_strategies_run_the_same_jobs_and_none_is_below_the_bound() -> None:
    results = backtest(scenario(), [*SCHEMES, "bound"])
    jobs = {
        name: [(r.zone, r.hours, r.start) for r in results if r.scheme == name]
        for name in [*SCHEMES, "bound"]
    }
    assert all(same == jobs["bound"] for same in jobs.values())
    assert len(jobs["bound"]) == 24
    least = {(r.hours, r.start): r.cost for r in results if r.scheme == "bound"}
    for result in results:
        if result.end is not None and result.runtime_hours <= 2 * result.hours:
            assert result.cost + result.refunds >= least[result.hours, result.start] * (1 - 1e-9), (
                result
            )


def test_the_baseline_on_demand_costs_itself_and_its_start_up() -> None:
    for result in backtest(scenario(), ["on-demand"]):
        assert result.cost == pytest.approx(
            result.on_demand_cost * (result.hours + 1 / 12) / result.hours
        )
        assert (result.evictions, result.refunds, result.spot_hours) == (0, 0, 0)


def test_a_backtest_is_deterministic_per_seed() -> None:
    assert backtest(scenario(), ["proteus"]) == backtest(scenario(), ["proteus"])
    assert backtest(scenario(seed=4), ["proteus"]) != backtest(scenario(), ["proteus"])


def test_prices_outside_the_training_span_do_not_affect_strategies() -> None:
    """Strategies do not see prices between training and the first job."""
    assert scenario().learned(HISTORIES[0].market).last == START + 90 * HOUR


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": Span(START, START + 120 * HOUR)}, "train ends at .*, after test begins"),
        ({"test": Span(START + 90 * HOUR, START + 90 * HOUR)}, "test: ends at"),
        ({"test": Span(START + 90 * HOUR, START + 400 * HOUR)}, "does not cover the test"),
        ({"hours": (40.0,)}, "40 hours need a test of three times that"),
        ({"hours": (0.0,)}, "job: 0 hours need a test of three times that"),
        ({"offers": ()}, "no price history has a requested type"),
        ({"starts": 0}, "starts: 0"),
        ({"deadline": 1.01}, "a deadline of 1.01 times 2 hours: on demand, jobs take 1.042 times"),
        ({"deadline": 4.0}, "a replay lasts 3 times as long"),
        ({"baseline": Rent(BASELINE.offer, 0, None)}, "0 machines"),
    ],
)
def test_an_invalid_scenario_is_refused_with_the_reason(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(BadScenario, match=message):
        scenario(**changes)


@pytest.mark.parametrize("name", ["magic", "fixed-bid", "proteus:3", "fixed-bid:free"])
def test_an_unknown_strategy_is_refused(name: str) -> None:
    with pytest.raises(BadScenario, match=f"{name}"):
        backtest(scenario(), [name])


def test_auto_is_chosen_at_each_start() -> None:
    known = scenario(starts=2)
    rows = backtest(known, ["auto"])
    assert len(rows) == 4
    assert {row.scheme for row in rows} == {"auto"}
    noted = [re.fullmatch(r"(\d+)-hour jobs had (\S+?)(, waiting)?", row.note) for row in rows]
    assert all(match is not None for match in noted)
    (*lines,) = notes(rows)
    counts = [re.search(r"at (\d+) starts$", line) for line in lines]
    assert sum(int(match[1]) for match in counts if match) == len(rows)


def later_prices(series: PriceSeries, at: int, factor: int) -> PriceSeries:
    """The history with other prices after a moment."""
    return replace(
        series, prices=np.where(series.times > at, series.prices * factor, series.prices)
    )


def test_auto_turns_to_on_demand_at_starts_that_know_of_dear_spot_machines() -> None:
    """Prices that rise when the training has ended: one choice then would be for spot machines."""
    rise = START + 90 * HOUR
    dear = tuple(later_prices(series, rise, 20) for series in HISTORIES)
    known = scenario(histories=dear, hours=(2.0,), billing=billing_rule("gcp"), starts=2)
    rows = backtest(known, ["auto"])
    late = [row for row in rows if row.start > rise + HOUR]
    assert late
    assert {row.note for row in late} == {"2-hour jobs had on-demand"}


def test_no_choice_of_auto_knows_what_follows_its_start() -> None:
    at = START + 130 * HOUR
    other = tuple(later_prices(series, at, 40) for series in HISTORIES)
    known = scenario(hours=(2.0,), starts=4)
    changed = replace(known, histories=other)
    before = [row.start for row in backtest(known, ["on-demand"]) if row.start <= at]
    assert before
    chosen = [
        [row.note for row in backtest(each, ["auto"]) if row.start in before]
        for each in (known, changed)
    ]
    assert chosen[0] == chosen[1]


def test_where_spot_costs_more_than_on_demand_auto_rents_on_demand() -> None:
    dear = tuple(replace(series, prices=series.prices * 20) for series in HISTORIES)
    rows = backtest(scenario(histories=dear, billing=billing_rule("gcp"), starts=1), ["auto"])
    assert {row.note[-9:] for row in rows} == {"on-demand"}


def test_one_job_of_auto_is_replayed_again_as_it_was() -> None:
    known = scenario(hours=(2.0,), starts=2)
    for row in backtest(known, ["auto"]):
        assert run_of(known, "auto", ZONE, 2.0, row.start).end == row.end


def test_jobs_of_auto_are_divided_among_processes() -> None:
    known = scenario()
    parts = portions(known, ["auto"])
    assert len(parts) == 3
    jobs = list(jobs_in(known, ZONE))
    assert [job for *_, part in parts for job in jobs[part]] == jobs


@pytest.mark.parametrize("name", ["deadline", "auto", "tierml", "proteus", "price-capacity"])
def test_every_strategy_keeps_a_deadline_that_on_demand_machines_can_keep(name: str) -> None:
    # A choice takes as long as a plan.
    starts = 2 if name in ("deadline", "auto") else 12
    known = scenario(deadline=1.5, billing=billing_rule("per-second"), starts=starts)
    results = backtest(known, [name])
    assert len(results) == 2 * starts
    for result in results:
        assert result.end is not None
        assert result.end <= result.start + 1.5 * result.hours * HOUR
    assert any(result.on_demand_hours == 0 for result in results), (
        "some jobs need no on-demand machines"
    )


def test_regions_moves_a_gang_of_the_baselines_machines_between_their_markets() -> None:
    both = scenario(
        baseline=Rent(Offer(Market("aws", "us-east-1", "-", "a.large"), 4.0, 1000), 4, None),
        offers=(offer(HISTORIES[0]), offer(ELSEWHERE), offer(HISTORIES[1], 6.0)),
        histories=(*HISTORIES, ELSEWHERE),
        billing=billing_rule("per-second"),
        zones_together=True,
        deadline=2.0,
    )
    results = backtest(both, ["regions"])
    assert len(results) == 24
    assert all(result.end is not None for result in results)
    places = set()
    for result in results:
        run = run_of(both, "regions", result.zone, result.hours, result.start)
        assert {tenure.rent.machines for tenure in run.tenures} == {4}
        assert {tenure.rent.offer.market.instance_type for tenure in run.tenures} == {"a.large"}
        places |= {tenure.rent.offer.market.zone for tenure in run.tenures}
    assert {"us-east-1a", "us-east-1b"} <= places
    with pytest.raises(
        BadScenario, match="moves the baseline between its markets, and none in us-east-1a has base"
    ):
        backtest(scenario(deadline=2.0), ["regions"])


@pytest.mark.parametrize("name", ["deadline", "regions"])
def test_a_strategy_that_needs_a_deadline_is_refused_without_one(name: str) -> None:
    with pytest.raises(BadScenario, match=f"schemes: '{name}' needs a deadline"):
        portions(scenario(), [name])


def test_portions_cover_every_strategy_and_zone() -> None:
    assert len(portions(scenario(), ["proteus", "bound"])) == 2


def test_a_summary_counts_unfinished_jobs_separately() -> None:
    row = JobResult("s", "z", 2.0, START, START + HOUR, 1.0, 0.5, 4.0, 3, 1.0, 2.0, 1.0, 1.0)
    lost = JobResult("s", "z", 2.0, START, None, 9.0, 0.0, 4.0, 1, 0.0, 0.0, 0.0, 6.0)
    (summary,) = summarize([row, lost])
    assert (summary.jobs, summary.unfinished, summary.cost_pct, summary.runtime_ratio) == (
        2,
        1,
        25.0,
        0.5,
    )
    assert (summary.free_pct, summary.evictions_per_job) == (25.0, 3.0)
    (nothing,) = summarize([lost])
    assert math.isnan(nothing.cost_pct)


def test_histories_that_do_not_cover_the_test_are_named() -> None:
    short = PriceSeries(
        HISTORIES[0].market, HISTORIES[0].times[:50].copy(), HISTORIES[0].prices[:50].copy()
    )
    with pytest.raises(
        BadScenario, match=r"prices: aws/us-east-1/us-east-1a/a\.large has prices from"
    ):
        scenario(histories=(short, HISTORIES[1]))
