"""`regions`, the project's own strategy, on hostile and on plain traces."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from bidbrain.arrays import Bools
from bidbrain.lab.regions.policies import ELASTIC_NAMES, DecidedRegions, played
from bidbrain.lab.regions.replay import Field, PlayedWindow, Window, play
from bidbrain.strategies.regions import RegionsSituation, RegionsStrategy, Running
from bidbrain.strategies.spells import Known
from tests.bidbrain.lab.regions.worlds import flapping, window

STEPS = 60


def every(period: int, up_for: int) -> Bools:
    """Three zones that are up for a few steps of each period, one after another."""
    steps = np.arange(STEPS)
    return np.array([(steps + zone * up_for) % period < up_for for zone in range(3)])


def until_it_matters() -> Bools:
    """Up until there is just enough time left to finish, then down for ever."""
    up = np.zeros((3, STEPS), dtype=np.bool_)
    up[:, 2:20] = True
    return up


@pytest.mark.parametrize("slack", [1.0, 1.1, 1.5])
@pytest.mark.parametrize(
    "up",
    [
        every(2, 1),
        every(3, 1),
        every(4, 2),
        every(9, 3),
        until_it_matters(),
        np.zeros((3, STEPS), dtype=np.bool_),
    ],
)
def test_hostile_traces_cost_no_deadline_and_little_money(up: Bools, slack: float) -> None:
    one = window(up, work=5, slack=slack)
    outcome = play(one, DecidedRegions(), "regions")
    assert not outcome.missed
    # Each start on spot pays for its delay and a move; it starts only while slack for two more
    # delays is left.
    on_demand = played(one, "on-demand")[0].bill.total
    starts = (
        one.job.steps(one.record.gap) * one.record.gap / one.job.delay
        - one.job.work / one.job.delay
        + 2
    )
    delay_hours, step_hours = 0.2, 1 / 6
    a_start = float(one.record.spot.max()) * (delay_hours + step_hours) + one.moving.max()
    assert outcome.bill.machines + outcome.bill.moving <= on_demand + (starts + 1) * a_start


class LosesWhatItStarts:
    """A window whose zones go down as soon as the job runs in them: up at odd steps where it does
    not run.
    """

    def __init__(self, one: Window) -> None:
        self.window = one
        self._policy = DecidedRegions()

    def outcome(self) -> PlayedWindow:
        up = np.ones(self.window.record.granted.shape, dtype=np.int64)
        for _ in range(STEPS):
            outcome = play(
                replace(self.window, record=replace(self.window.record, granted=up)),
                DecidedRegions(),
                "regions",
            )
            ran = [
                (step, held.zone)
                for step, held in enumerate(outcome.course)
                if held is not None and held.spot
            ]
            caught = next(
                ((step, zone) for step, zone in ran if step + 1 < STEPS and up[zone, step + 1]),
                None,
            )
            if caught is None:
                return outcome
            up[caught[1], caught[0] + 1] = 0
        return outcome


def test_zones_that_go_whenever_the_job_comes_cost_no_deadline() -> None:
    one = window(np.ones((3, STEPS), dtype=np.bool_), work=5, slack=1.3)
    assert not LosesWhatItStarts(one).outcome().missed


class Refuses(Field):
    """A field in which every zone but the first refuses every start."""

    def start_spot(self, zone: int) -> bool:
        return zone == 0 and super().start_spot(zone)


def test_zones_that_look_cheap_and_refuse_cost_no_deadline_and_little_money() -> None:
    up = np.ones((3, STEPS), dtype=np.bool_)
    up[0] = every(6, 4)[0]
    one = window(up, work=5, slack=1.5)
    one.record.spot[1:] *= 0.3
    field, policy = Refuses(one), DecidedRegions()
    while field.work_left > 0 and field.now < field.steps:
        field.begin_step()
        policy.step(field)
        field.end_step()
        field.pay_step()
    assert field.work_left <= 0
    assert not field.bill.probes
    assert field.bill.total <= 1.1 * played(one, "on-demand")[0].bill.total


def test_a_job_without_a_checkpoint_yet_does_not_wait_for_the_best_zone() -> None:
    """With moves that cost nothing, waiting until the best zone comes up would look better than a
    start.
    """
    up = np.ones((3, STEPS), dtype=np.bool_)
    one = window(up, work=5, slack=1.9, gb=50)
    assert play(one, DecidedRegions(), "regions").course[0] is not None


@pytest.mark.parametrize("slack", [1.05, 1.5])
def test_prices_that_change_every_hour_and_pass_on_demand_cost_no_deadline_and_little_money(
    slack: float,
) -> None:
    """Each hour another zone is cheap, and each zone is above on demand in turn."""
    one = window(np.ones((3, STEPS), dtype=np.bool_), work=5, slack=slack, gb=200)
    hours = np.arange(one.record.steps) // 6
    turn = (np.arange(3)[:, None] + hours[None, :]) % 3
    spot = one.record.on_demand[:, None] * np.array([0.3, 0.8, 1.5])[turn]
    changing = replace(one, record=replace(one.record, spot=spot))
    outcome = play(changing, DecidedRegions(), "regions")
    held = [(step, where) for step, where in enumerate(outcome.course) if where is not None]
    begun = [held[0], *(now for (_, before), now in pairwise(held) if before != now[1])]
    assert not outcome.missed
    # Nothing starts above on demand, and no move is paid for: it costs more than an hour saves.
    assert all(
        spot[where.zone, step] <= one.record.on_demand[where.zone]
        for step, where in begun
        if where.spot
    )
    assert not outcome.bill.moving
    assert outcome.bill.total <= 1.05 * played(changing, "on-demand")[0].bill.total


@pytest.mark.parametrize("seed", range(3))
def test_what_comes_later_changes_nothing_before(seed: int) -> None:
    up = flapping(seed, 3, STEPS)
    one = window(up, work=5, slack=1.4, seed=seed)
    first = play(one, DecidedRegions(), "regions").course
    for moment in (6, 17, 29):
        spot = one.record.spot.copy()
        changed = one.record.granted.copy()
        changed[:, moment:] = 1 - changed[:, moment:]
        spot[:, moment:] *= 1.7
        other = replace(one, record=replace(one.record, granted=changed, spot=spot))
        assert play(other, DecidedRegions(), "regions").course[:moment] == first[:moment]


def test_it_stays_where_moving_costs_more_than_it_saves() -> None:
    regions = ("us-east-1", "us-west-2")
    spot, on_demand = np.array([0.5, 1.0]), np.array([3.0, 3.0])
    known = Known.nothing(regions).observed([0], 1.0, [True]).observed([1], 1.0, [True])
    for usd, stays in ((40.0, True), (0.0, False)):
        moving = np.array([[0.0, usd], [usd, 0.0]])
        running = Running(1, spot=True)
        at = RegionsSituation(
            1.0, regions, spot, on_demand, moving, known, 10.0, 15.0, 0.2, 1 / 6, running, 1
        )
        chosen, reason = RegionsStrategy().decide(at)
        assert (chosen.action == "stay") is stays, reason
        assert reason.count("$") >= 2


@pytest.mark.parametrize("policy", ELASTIC_NAMES)
@pytest.mark.parametrize("slack", [1.05, 1.4])
def test_an_elastic_job_takes_what_there_is_and_is_in_time(policy: str, slack: float) -> None:
    one = window(flapping(3, 3, STEPS), work=5, slack=slack)
    granted = np.random.default_rng(4).integers(1, 9, one.record.granted.shape) * one.record.granted
    job = replace(one.job, machines=8)
    outcome = played(replace(one, job=job, record=replace(one.record, granted=granted)), policy)[0]
    assert not outcome.missed
    if policy == "regions" and slack > 1.1:
        whole = replace(
            one, job=replace(job, at_least=8), record=replace(one.record, granted=granted)
        )
        assert outcome.bill.total < played(whole, policy)[0].bill.total


def test_spot_above_on_demand_is_not_used() -> None:
    one = window(np.ones((2, STEPS), dtype=np.bool_), work=5, slack=1.5)
    outcome = play(
        replace(one, record=replace(one.record, spot=one.record.spot * 10)),
        DecidedRegions(),
        "regions",
    )
    assert (outcome.spot_steps, outcome.missed) == (0, False)


def test_it_costs_much_less_than_on_demand_on_zones_that_come_and_go() -> None:
    ours = theirs = 0.0
    for seed in range(3):
        one = window(flapping(seed, 3, 120, up_for=20, down_for=12), work=10, slack=1.5, seed=seed)
        ours += played(one, "regions")[0].bill.total
        theirs += played(one, "on-demand")[0].bill.total
    assert ours < 0.6 * theirs


def test_a_decision_over_two_hundred_zones_says_why_in_dollars() -> None:
    regions = tuple(f"region-{zone // 3}" for zone in range(200))
    moving = np.array([[0.0 if a == b else 1.0 for b in regions] for a in regions])
    spot = np.linspace(1.0, 1.6, 200)
    known = Known.nothing(regions)
    at = RegionsSituation(
        0.0, regions, spot, np.full(200, 3.0), moving, known, 40.0, 60.0, 0.2, 1 / 6
    )
    strategy = RegionsStrategy()
    strategy.decide(at)
    began = time.process_time()
    chosen, reason = strategy.decide(replace(at, now=1 / 6))
    assert time.process_time() - began < 5
    assert chosen.spot
    assert chosen.zone is not None
    assert spot[chosen.zone] < 1.05
    assert reason.startswith(f"start on spot in zone {chosen.zone}: $")
