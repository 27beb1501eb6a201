"""The replay's rules, and its policies, on worlds whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.lab.regions.replay import Field, play, region_of
from bidbrain.strategies.regions import Running
from pricing_data.units import HOUR
from tests.bidbrain.lab.regions.worlds import window


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-east-1a", "us-east-1"),
        ("us-west1-b", "us-west1"),
        ("asia-southeast1-c", "asia-southeast1"),
        ("here", "here"),
    ],
)
def test_a_zone_is_in_a_region(zone: str, region: str) -> None:
    assert region_of(zone) == region


class Written:
    """Does what is written for each step, and looks at what it could know."""

    bills_last_step = False

    def __init__(self, *steps: tuple[str, int] | None) -> None:
        self._steps = steps
        self.seen: list[tuple[Running | None, int]] = []

    def step(self, field: Field) -> None:
        done = self._steps[field.now] if field.now < len(self._steps) else None
        if done is not None:
            what, zone = done
            {"spot": field.start_spot, "on-demand": field.start_on_demand, "probe": field.probe}[
                what
            ](zone)
        self.seen.append((field.machine, field.work_left))


def test_a_start_takes_its_delay_and_a_move_its_price() -> None:
    up = np.ones((3, 30), dtype=np.bool_)
    up[0, 3] = False
    one = window(up, work=1, slack=2)
    policy = Written(("spot", 0), None, None, ("spot", 2), None, ("probe", 1))
    outcome = play(one, policy, "scripted")
    assert [machine and machine.zone for machine, _ in policy.seen[:5]] == [0, 0, 0, 2, 2]
    # Each step takes 10 minutes, and each start 12.
    done = [one.job.work - left for _, left in policy.seen[:6]]
    assert [round(part / HOUR * 60) for part in done] == [0, 0, 8, 18, 18, 26]
    assert outcome.bill.moving == pytest.approx(20 * 0.01)
    assert outcome.bill.probing == pytest.approx(one.record.spot[1, 5] / 60)
    spent = sum(
        one.record.spot[held.zone, step] / 6 for step, held in enumerate(outcome.course) if held
    )
    assert outcome.bill.machines == pytest.approx(spent)
    assert (outcome.bill.moves, outcome.missed) == (1, False)


def test_a_job_of_four_machines_pays_for_those_that_a_zone_grants() -> None:
    granted = np.full((1, 30), 4)
    granted[0, 2:] = 3
    alone = window(granted, work=1, slack=2)
    outcome = play(
        replace(alone, job=replace(alone.job, machines=4)), Written(("spot", 0)), "scripted"
    )
    steps = [step for step, held in enumerate(outcome.course) if held]
    spent = sum((4 if step < 2 else 3) * alone.record.spot[0, step] / 6 for step in steps)
    assert outcome.bill.machines == pytest.approx(spent)


def test_a_refusal_is_free_and_spot_that_goes_is_lost() -> None:
    up = np.zeros((2, 30), dtype=np.bool_)
    up[0, :2] = True
    policy = Written(("spot", 1), ("spot", 0), None)
    outcome = play(window(up, work=1, slack=2), policy, "scripted")
    assert [machine for machine, _ in policy.seen[:3]] == [None, Running(0, spot=True), None]
    assert outcome.missed
