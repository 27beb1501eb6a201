"""Job courses against a walk second by second without arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.errors import TooLittleHistory
from bidbrain.lab.gavel.movement import Movement
from bidbrain.lab.gavel.pricing.analysis import LIST_TARIFFS_2020
from bidbrain.lab.gavel.pricing.strategies import (
    PlacementRule,
    PriceBoard,
    TrainingJobs,
    board_of,
    follow,
    ladder,
    left_out,
    stay,
)
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, SECOND
from tests.bidbrain.lab.gavel.markets import BEGIN, board, histories, machine


def series(name: str, hours: list[float], usd: list[float]) -> PriceSeries:
    times = [BEGIN + round(hour * HOUR) for hour in hours]
    prices = [round(price * 1e9) for price in usd]
    return PriceSeries(
        Market.parse(name), np.array(times, dtype=np.int64), np.array(prices, dtype=np.int64)
    )


@given(st.integers(0, 2**32), st.integers(0, 399), st.integers(0, 399))
def test_the_cost_equals_a_sum_over_seconds(seed: int, one: int, other: int) -> None:
    found = histories(np.random.default_rng(seed), 400)
    board = board_of(found, machine)
    start, stop = sorted((one, other))
    for i, offer in enumerate(board.offers):
        history = next(history for history in found if history.market == offer.market)
        seconds = sum(history.price_at(BEGIN + second * SECOND) for second in range(start, stop))
        expected = seconds / 3600 / 1e9 / offer.accelerators
        paid = board.paid(np.array([i]), np.array([start / 3600]), np.array([stop / 3600]))
        assert paid[0] == pytest.approx(expected, abs=1e-12)


def test_prices_are_per_accelerator_and_hold_until_the_next_change() -> None:
    board = board_of([series("aws/r/a/V100x4", [0, 2, 2.5, 5], [4, 8, 8, 99])], machine)
    assert board.span == 5
    # The change at the very end never holds, and a repeated price is no change.
    assert board.hours.tolist() == [0, 2]
    assert board.usd.tolist() == [[1, 2]]
    assert board.paid(np.array([0]), np.array([1.0]), np.array([5.0])).tolist() == [7]
    assert board.usd[0, board.moment(np.array([1.999, 2.0]))].tolist() == [1, 2]


def test_a_market_that_ends_early_does_not_shorten_the_span_of_the_others() -> None:
    long = [series(f"aws/r/{zone}/V100x1", [0, 100], [1, 1]) for zone in "abc"]
    short = series("aws/r/d/V100x1", [0, 1], [1, 1])
    late = series("azure/s/-/K80x1", [40, 90], [1, 1])
    found = [*long, short, late]
    board = board_of(found, machine)
    assert (board.begin, board.end) == (BEGIN + 40 * HOUR, BEGIN + 90 * HOUR)
    assert left_out(found, board) == [short.market]


def test_every_cloud_is_on_the_board_or_there_is_none() -> None:
    apart = [series("aws/r/a/V100x1", [0, 10], [1, 1]), series("azure/s/-/K80x1", [11, 90], [1, 1])]
    with pytest.raises(TooLittleHistory, match=r"no time in common: aws 2020-.* azure 2020-"):
        board_of(apart, machine)
    with pytest.raises(TooLittleHistory, match="none is given"):
        board_of([], machine)


@given(st.integers(0, 2**32))
def test_the_common_span_is_the_one_of_most_market_hours(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = []
    for i in range(5):
        first, last = sorted(rng.choice(np.arange(30), size=2, replace=False).tolist())
        cloud = "aws/r" if i % 2 else "azure/s"
        found.append(series(f"{cloud}/z{i}/V100x1", [first, last], [1, 1]))
    areas = {}
    for begin in range(30):
        for end in range(begin + 1, 30):
            held = [
                s for s in found if s.first <= BEGIN + begin * HOUR and s.last >= BEGIN + end * HOUR
            ]
            if len({s.market.cloud for s in held}) == 2:
                areas[begin, end] = len(held) * (end - begin)
    if not areas:
        with pytest.raises(TooLittleHistory):
            board_of(found, machine)
        return
    board = board_of(found, machine)
    assert len(board.offers) * board.span == max(areas.values())


SECONDS = 900


@dataclass
class Walked:
    usd: float = 0.0
    moved: float = 0.0
    moves: int = 0
    stop: float | None = None


def walk(
    on: PriceBoard, start: int, work: float, rates: list[float], movement: Movement, *, moves: bool
) -> Walked:
    """One job, one second after the other; rates and prices are per hour."""
    result, at, held, busy = Walked(), -1, set(movement.dataset_on), 0
    changes = {round(hour * 3600) for hour in on.hours}
    usable = [i for i, rate in enumerate(rates) if rate > 0]
    for second in range(start, round(on.span * 3600)):
        now = np.array([second / 3600 + 1e-9])
        price = {i: float(on.usd[i, on.moment(now)[0]]) for i in usable}
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
                    moved = data + movement.checkpoint_usd(
                        on.offers[at].market, on.offers[i].market
                    )
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
def test_every_course_equals_a_step_by_step_walk(
    seed: int, moves: bool, elsewhere: bool, move_seconds: int
) -> None:
    rng = np.random.default_rng(seed)
    on = board(rng, SECONDS)
    # Sizes are small because prices are paid for seconds: so data costs about as much as machines.
    sizes = rng.uniform(0, 0.002, size=2)
    where = frozenset({"aws"}) if elsewhere else frozenset({"aws", "azure"})
    movement = Movement(sizes[0], sizes[1] * 20, where, move_seconds / 3600, LIST_TARIFFS_2020)
    rates = rng.uniform(0.5, 5.0, size=(4, len(on.offers))) * (
        rng.random((4, len(on.offers))) < 0.8
    )
    rates[:, 0] = 1.0
    start = rng.integers(0, SECONDS // 2, size=4)
    runs = TrainingJobs(start / 3600, rng.uniform(0.01, 0.8, size=4), rates)
    course = (follow if moves else stay)(on, runs, movement)
    for job in range(4):
        expected = walk(
            on, int(start[job]), runs.work[job], rates[job].tolist(), movement, moves=moves
        )
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
    assert (free.usd.tolist(), free.moves.tolist(), free.stop.tolist()) == (
        [2 * 2 + 3 * 3],
        [1],
        [5],
    )
    # At 2 h, 3 h remain: 18 dollars here; 9 there, an hour of moving for 3, and 5.5 for the
    # transfer.
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
    assert stay(
        on, one_run(1), replace(data, dataset_on=frozenset({"aws", "azure"}))
    ).usd.tolist() == [2]


def test_each_strategy_may_use_what_its_name_says() -> None:
    zones = [
        "aws/us-east-1/a/V100x1",
        "aws/us-east-1/a/V100x8",
        "aws/us-east-1/a/K80x1",
        "aws/eu/a/K80x1",
    ]
    on = board_of(
        [series(zone, [0, 1], [1, 1]) for zone in [*zones, "azure/eastus/-/P100x4"]], machine
    )
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
    assert [strategy.name for strategy in ladder("h", "V100") if strategy.moves] == [
        "dynamic",
        "dynamic+data",
    ]
    assert not PlacementRule("s", home="aws/eu").may_use(on.offers[0])
