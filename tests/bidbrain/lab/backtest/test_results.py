"""Variants of a scenario, paired differences, and the choice of the default."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import isnan

import numpy as np
import pytest

from bidbrain.billing import billing_rules
from bidbrain.lab.backtest.results import (
    OVERHEADS,
    BacktestSummary,
    JobResult,
    cheapest,
    differences,
    mean_interval,
    variants,
)
from bidbrain.lab.backtest.run import backtest
from bidbrain.lab.backtest.scenario import BadScenario
from bidbrain.strategies.names import known
from bidbrain.strategies.registry import BIDDING, TODAY, default_for
from pricing_data.units import DAY, HOUR
from tests.bidbrain.lab.backtest.test_run import scenario
from tests.pricing_data.histories import START


def result(
    scheme: str, start: int, cost: float, hours: float = 1.0, end: int | None = START
) -> JobResult:
    return JobResult(scheme, "z", 2.0, start, end, cost, 0.0, 4.0, 0, 0.0, 1.0, 0.0, hours)


def test_every_window_is_tested_once_and_after_its_training() -> None:
    plain = scenario(hours=(2.0,))
    cut = [changed for name, changed in variants(plain, 3, ()) if name != "as it is"]
    assert len(cut) == 3
    assert all(
        one.train.start == plain.train.start and one.train.end == one.test.start for one in cut
    )
    assert all(before.test.end == after.test.start for before, after in pairwise(cut))
    assert cut[-1].test.end == plain.test.end
    assert all(one.learned(plain.offers[0].market).last <= one.test.start for one in cut)


def test_each_overhead_is_halved_and_doubled_separately() -> None:
    plain = scenario()
    found = {name: changed.overheads for name, changed in variants(plain, 0, list(OVERHEADS))}
    assert list(found) == [
        "as it is",
        *(f"{name} x {factor}" for name in OVERHEADS for factor in ("0.5", "2")),
    ]
    now = plain.overheads
    assert found["lambda x 2"] == replace(now, eviction=2 * now.eviction)
    assert found["startup x 0.5"] == replace(now, startup=now.startup // 2)
    assert found["sigma x 2"] == replace(now, resize=2 * now.resize)


def test_unknown_overheads_are_refused() -> None:
    with pytest.raises(
        BadScenario, match=r"vary: 'weather' is unknown \(known: lambda, startup, sigma"
    ):
        variants(scenario(), 0, ["weather"])
    with pytest.raises(
        BadScenario, match=r"cuts: with 40, .*need a test of.*; use fewer cuts or shorter jobs"
    ):
        variants(scenario(), 40, ())


def test_differences_pair_jobs_and_leave_out_unfinished_ones() -> None:
    starts = [START + day * DAY for day in range(5)]
    ours = [result("ours", at, 1.0 + 0.1 * i, 1.5) for i, at in enumerate(starts)]
    theirs = [result("theirs", at, 1.2 + 0.1 * i, 2.0) for i, at in enumerate(starts)]
    ours[4] = result("ours", starts[4], 99.0, 6.0, end=None)
    (found,) = differences("as it is", [*ours, *theirs], "theirs", np.random.default_rng(0))
    assert (found.scheme, found.against, found.jobs, found.unpaired) == ("ours", "theirs", 4, 1)
    # Every job is $0.20 of $4 cheaper and half an hour of two faster: every resample has the same
    # mean.
    for interval, mean in ((found.cost, -5.0), (found.runtime, -0.25)):
        assert interval.mean == pytest.approx(mean)
        assert (interval.low, interval.high) == pytest.approx((mean, mean))


def test_too_few_days_give_no_interval() -> None:
    rows = [result(name, START + at * HOUR, 1.0) for name in ("ours", "theirs") for at in range(4)]
    (found,) = differences("as it is", rows, "theirs", np.random.default_rng(0))
    assert found.cost.mean == 0.0
    assert isnan(found.cost.low)
    assert isnan(found.cost.high)
    (nothing,) = differences(
        "as it is",
        [result("ours", START, 1.0, end=None), result("theirs", START, 1.0)],
        "theirs",
        np.random.default_rng(0),
    )
    assert (nothing.jobs, nothing.unpaired) == (0, 1)
    assert np.isnan(nothing.cost.mean)


def test_the_interval_covers_the_truth_when_only_days_are_independent() -> None:
    """Jobs of one day are correlated: resampling them separately would give far too narrow
    intervals.
    """
    rng = np.random.default_rng(5)
    held, naive = 0, 0
    blocks = np.repeat(np.arange(20), 10)
    for _ in range(200):
        values = np.repeat(rng.normal(size=20), 10) + 0.3 * rng.normal(size=200)
        found = mean_interval(values, blocks, rng)
        held += found.low <= 0 <= found.high
        alone = mean_interval(values, np.arange(200), rng)
        naive += alone.low <= 0 <= alone.high
    assert held >= 0.88 * 200
    assert naive <= 0.6 * 200


def test_the_mean_difference_is_the_difference_of_means() -> None:
    results = backtest(scenario(starts=6, hours=(2.0,)), ["standard+agileml", "proteus"])
    (found,) = differences("as it is", results, "proteus", np.random.default_rng(0))
    mean = {
        name: np.mean(
            [100 * one.cost / one.on_demand_cost for one in results if one.scheme == name]
        )
        for name in ("standard+agileml", "proteus")
    }
    assert found.cost.mean == pytest.approx(mean["standard+agileml"] - mean["proteus"])


def summary(scheme: str, cost: float, runtime: float, unfinished: int = 0) -> BacktestSummary:
    return BacktestSummary(
        scheme, 2.0, 10, cost, cost, cost, runtime, 0.0, 0.0, unfinished, 0.0, 1.0, 0.0
    )


def test_the_cheapest_qualifying_strategy_finishes_all_jobs_in_the_baselines_time() -> None:
    rows = [
        summary("bound", 1.0, 1.0),
        summary("idle", 5.0, 0.9, unfinished=1),
        summary("slow", 10.0, 1.2),
        summary("fine", 30.0, 0.8),
        summary("fine", 20.0, 1.1),
        summary("dear", 40.0, 0.5),
    ]
    assert cheapest(rows) == "fine"
    assert cheapest(rows[:3]) is None


def test_each_billing_rule_has_a_default_strategy_with_a_reason() -> None:
    for rule in billing_rules():
        choice = default_for(rule)
        assert known(choice.name)
        assert "docs/decisions/" in choice.reason
    assert default_for("hourly-refund") == BIDDING
    assert default_for("per-second-first-hour-free") == TODAY
