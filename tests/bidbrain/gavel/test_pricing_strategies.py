"""Job courses against a walk second by second without arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.gavel.effective_price import Movement
from bidbrain.gavel.pricing.board import PriceBoard, board_of
from bidbrain.gavel.pricing.published import LIST_TARIFFS_2020
from bidbrain.gavel.pricing.strategies import PlacementRule, TrainingJobs, follow, ladder, stay
from tests.bidbrain.gavel.markets import board, machine
from tests.bidbrain.gavel.test_pricing_board import series

SECONDS = 900


@dataclass
class Walked:
    usd: float = 0.0
    moved: float = 0.0
    moves: int = 0
    stop: float | None = None


def walk(on: PriceBoard, start: int, work: float, rates: list[float], movement: Movement, *, moves: bool) -> Walked:
    """One job, one second after the other; rates and prices are per hour."""
    result, at, held, busy = Walked(), -1, set(movement.dataset_on), 0
    changes = {round(hour * 3600) for hour in on.hours}
    usable = [i for i, rate in enumerate(rates) if rate > 0]
    for second in range(start, round(on.span * 3600)):
        now = np.array([second / 3600 + 1e-9])
        price = {i: float(on.price(np.array([i]), now)[0]) for i in usable}
        if at < 0 or (moves and second in changes):
            costs = {}
            for i in usable:
                cloud = on.offers[i].market.cloud
                data = 0.0 if cloud in held else movement.dataset_usd(cloud, held)
                if i == at:
                    costs[i] = (busy / 3600 + work / rates[i]) * price[i], 0.0
                elif at < 0:
                    costs[i] = work / rates[i] * price[i] + data, data
                else:
                    moved = data + movement.checkpoint_usd(on.offers[at].market, on.offers[i].market)
                    costs[i] = (movement.hours + work / rates[i]) * price[i] + moved, moved
            best = min(usable, key=lambda i: (costs[i][0], i != at))
            if best != at:
                result.usd += costs[best][1]
                result.moved += costs[best][1]
                busy = 0 if at < 0 else round(movement.hours * 3600)
                result.moves += at >= 0
                at = best
                held.add(on.offers[best].market.cloud)
        if busy:
            busy -= 1
            result.usd += price[at] / 3600
            continue
        share = min(1.0, work / (rates[at] / 3600))
        result.usd += share * price[at] / 3600
        work -= share * rates[at] / 3600
        if work <= 1e-12:
            result.stop = (second + share) / 3600
            return result
    return result


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.booleans(), st.booleans(), st.sampled_from([0, 7, 60]))
def test_every_course_equals_a_step_by_step_walk(seed: int, moves: bool, elsewhere: bool, move_seconds: int) -> None:
    rng = np.random.default_rng(seed)
    on = board(rng, SECONDS)
    # Sizes are small because prices are paid for seconds: so data costs about as much as machines.
    sizes = rng.uniform(0, 0.002, size=2)
    where = frozenset({"aws"}) if elsewhere else frozenset({"aws", "azure"})
    movement = Movement(sizes[0], sizes[1] * 20, where, move_seconds / 3600, LIST_TARIFFS_2020)
    rates = rng.uniform(0.5, 5.0, size=(4, len(on.offers))) * (rng.random((4, len(on.offers))) < 0.8)
    rates[:, 0] = 1.0
    start = rng.integers(0, SECONDS // 2, size=4)
    runs = TrainingJobs(start / 3600, rng.uniform(0.01, 0.8, size=4), rates)
    course = (follow if moves else stay)(on, runs, movement)
    for job in range(4):
        expected = walk(on, int(start[job]), runs.work[job], rates[job].tolist(), movement, moves=moves)
        if expected.stop is None:
            assert np.isnan(course.usd[job])
            assert np.isnan(course.stop[job])
            continue
        assert course.usd[job] == pytest.approx(expected.usd, rel=1e-9)
        assert course.stop[job] == pytest.approx(expected.stop, rel=1e-9)
        assert course.moved_usd[job] == pytest.approx(expected.moved, abs=1e-15)
        assert course.moves[job] == expected.moves


FREE = Movement(0.0, 0.0, frozenset({"aws"}), 0.0, LIST_TARIFFS_2020)


def two_markets() -> PriceBoard:
    """Amazon at 2 then 6 dollars, Azure at 3; an hour of work at rate 1 takes an hour."""
    amazon = series("aws/r/a/V100x1", [0, 2, 20], [2, 6, 6])
    return board_of([amazon, series("azure/s/-/V100x1", [0, 20], [3, 3])], machine)


def one_run(work: float) -> TrainingJobs:
    return TrainingJobs(np.zeros(1), np.array([work]), np.ones((1, 2)))


def test_a_job_moves_when_that_saves_more_than_it_costs() -> None:
    on, run = two_markets(), one_run(5)
    assert stay(on, run, FREE).usd.tolist() == [2 * 2 + 3 * 6]
    free = follow(on, run, FREE)
    assert (free.usd.tolist(), free.moves.tolist(), free.stop.tolist()) == ([2 * 2 + 3 * 3], [1], [5])
    # At 2 h, 3 h remain: 18 dollars here; 9 there, an hour of moving for 3, and 5.5 for the transfer.
    dear = Movement(0.5 / 0.09, 5 / 0.09, frozenset({"aws"}), 1.0, LIST_TARIFFS_2020)
    moved = follow(on, run, dear)
    assert moved.usd[0] == pytest.approx(2 * 2 + 9 + 3 + 5.5)
    assert moved.moved_usd[0] == pytest.approx(5.5)
    assert moved.stop.tolist() == [6]
    too_dear = replace(dear, dataset_gb=5.6 / 0.09)
    assert follow(on, run, too_dear).usd.tolist() == [22]


def test_a_moving_job_counts_the_rest_of_its_move() -> None:
    amazon = series("aws/r/a/V100x1", [0, 2, 20], [2, 6, 6])
    azure = series("azure/s/-/V100x1", [0, 20], [3, 3])
    later = series("azure/t/-/V100x1", [0, 2.5, 20], [9, 2.5, 2.5])
    on = board_of([amazon, azure, later], machine)
    run = TrainingJobs(np.zeros(1), np.array([5.0]), np.ones((1, 3)))
    # At 2.5 h half of the move remains: 3.5 h at 3 dollars cost more than 4 h at 2.5.
    course = follow(on, run, replace(FREE, hours=1.0))
    assert course.moves.tolist() == [2]
    assert course.usd.tolist() == [2 * 2 + 0.5 * 3 + 4 * 2.5]


def test_a_job_that_ends_with_the_prices_fits_and_a_longer_one_does_not() -> None:
    assert follow(two_markets(), one_run(20), FREE).stop.tolist() == [20]
    for strategy in (stay, follow):
        course = strategy(two_markets(), one_run(20.001), FREE)
        assert np.isnan(course.usd).all()
        assert np.isnan(course.stop).all()


def test_a_dataset_already_present_costs_nothing_and_a_missing_one_may_decide() -> None:
    on = two_markets()
    data = Movement(0.0, 100.0, frozenset({"azure"}), 0.0, LIST_TARIFFS_2020)
    assert stay(on, one_run(1), data).usd.tolist() == [3]
    assert stay(on, one_run(1), replace(data, dataset_on=frozenset({"aws", "azure"}))).usd.tolist() == [2]


def test_each_strategy_may_use_what_its_name_says() -> None:
    zones = ["aws/us-east-1/a/V100x1", "aws/us-east-1/a/V100x8", "aws/us-east-1/a/K80x1", "aws/eu/a/K80x1"]
    on = board_of([series(zone, [0, 1], [1, 1]) for zone in [*zones, "azure/eastus/-/P100x4"]], machine)
    allowed = {
        strategy.name: "".join("x" if strategy.may_use(offer) else "." for offer in on.offers)
        for strategy in ladder("aws/us-east-1", "V100")
    }
    assert allowed == {
        "fixed-type": "x....",
        "best-type": "x.x..",
        "multi-gpu": "xxx..",
        "multi-cloud": "xxxxx",
        "dynamic": "xxxxx",
        "dynamic+data": "xxxxx",
    }
    assert [strategy.name for strategy in ladder("h", "V100") if strategy.moves] == ["dynamic", "dynamic+data"]
    assert not PlacementRule("s", home="aws/eu").may_use(on.offers[0])
