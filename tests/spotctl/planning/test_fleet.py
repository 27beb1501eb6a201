"""Fleets of jobs that share quotas."""

from __future__ import annotations

import pytest

from spotctl.files.job.spec import Objective
from spotctl.planning.errors import NotInTime
from spotctl.planning.fleet import companions
from tests.spotctl.planning.test_share import (
    CHEAP,
    FAR,
    FAST,
    KINDS,
    PRICE,
    SLOW,
    asked,
    mixtures,
    names,
    schedule,
    shares,
)


def test_least_cost_is_the_least_price_of_work() -> None:
    assert names(asked()) == [CHEAP, FAR]
    assert names(asked(), {CHEAP: 0, FAR: 8})[0] == FAR


@pytest.mark.parametrize(
    ("hours_left", "machines"),
    [
        (10.05, [{"cheap": 8}]),
        (6.0 + 1 / 30, [{"cheap": 3, "fast": 5}, {"cheap": 2, "fast": 6}]),
        (5.03, [{"fast": 8}]),
    ],
)
def test_a_deadline_takes_as_many_fast_machines_as_it_needs(
    hours_left: float, machines: list[dict[str, int]]
) -> None:
    """320 units are 10 hours of 8 cheap machines and 5 of 8 fast ones; at 53.3 an hour they take 6
    hours.
    """
    job = asked(hours_left=hours_left)
    planned = schedule(job)
    assert mixtures(planned) == machines
    assert sum(phase.hours * phase.mixture.rate for phase in planned.phases) == pytest.approx(320.0)
    assert planned.hours <= hours_left + 1e-6
    assert shares([job])[0].policy == "min-cost-slo"


def test_quotas_of_two_kinds_hold_a_mixture_together() -> None:
    """Five fast and three cheap machines do 52 an hour: neither kind alone is allowed as many."""
    quotas = {CHEAP: 3, FAST: 5, SLOW: 0, FAR: 0}
    assert mixtures(schedule(asked(hours_left=6.154 + 1 / 30), quotas))[-1] == {
        "cheap": 3,
        "fast": 5,
    }
    with pytest.raises(
        NotInTime, match="3 machines of aws/east/cheap and 5 machines of aws/east/fast, the fastest"
    ):
        shares([asked(hours_left=6.0)], quotas)


def test_a_strategy_may_use_kinds_that_are_about_as_good_and_others_have_a_reason() -> None:
    job = asked()
    (share,) = shares([job])
    passed = companions(job, share, 0, KINDS)
    assert set(passed) == {3}
    assert (
        "in another region: $0.012 per unit of work, against $0.01 for aws/east/cheap" in passed[3]
    )
    dear = companions(job, shares([job], price=PRICE * [1, 1.1, 1, 1])[0], 0, KINDS)
    assert dear[1].startswith("too expensive: $0.022")
    late = asked(hours_left=10.0)
    assert (
        "8 machines would need 20.0 hours, and 10.0 are left"
        in companions(late, share, 0, KINDS)[2]
    )
    big = asked(least=8)
    assert (
        "8 machines would do more than the 8 planned machines of cheap"
        in companions(big, share, 0, KINDS)[1]
    )
    hurry = asked(objective=Objective.MAX_THROUGHPUT)
    assert "slower than cheap" in companions(hurry, share, 0, KINDS)[2]
