"""The claims of jobs on quotas that they share as a queue."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from bidbrain.decision.mixture_strategy import Aim
from bidbrain.queue.values import QueueJob
from pricing_data.units import MINUTE
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.planning.offers import MachineKind
from spotctl.planning.queue_claims import queue_job, queue_quotas
from spotctl.planning.quotas import QuotaGroup
from spotctl.planning.values import Demand, JobLength

CHEAP, FAST, DEAR = KINDS = tuple(
    MachineKind("aws", "east", name) for name in ("cheap", "fast", "dear")
)
NU = np.array([4.0, 8.0, 16.0])
# Dollars per unit of work: 0.01, 0.012, 0.03.
PRICE = np.array([0.04, 0.096, 0.48])
GROUPS = [
    QuotaGroup(Quota("aws", "east", "a", 16, QuotaUnit.VCPUS), np.array([2.0, 4.0, 0.0]), 16.0),
    QuotaGroup(
        Quota("aws", "east", "cheap", 3, QuotaUnit.MACHINES), np.array([1.0, 0.0, 0.0]), 3.0
    ),
]


def demand(**changes: object) -> Demand:
    made = Demand("job", "min-cost", NU, 2, 8, JobLength("told", units=320.0), 32.0, inf, None)  # type: ignore[arg-type]
    return replace(made, **changes)  # type: ignore[arg-type]


def claim(**changes: object) -> QueueJob:
    return queue_job(
        demand(**changes), KINDS, PRICE, GROUPS, arrival=100.0, now=200.0, startup_hours=0.1
    )


def kinds(job: QueueJob) -> set[str]:
    return {name.rpartition("/")[2] for name in job.rates}


def test_quotas_count_their_kinds_and_a_kind_without_one_is_never_short() -> None:
    shared, own, free = queue_quotas(KINDS, GROUPS)
    assert (shared.name, shared.amount, dict(shared.per_machine)) == (
        "aws/east/a",
        16.0,
        {"aws/east/cheap": 2.0, "aws/east/fast": 4.0},
    )
    assert (own.name, dict(own.per_machine)) == ("aws/east/cheap", {"aws/east/cheap": 1.0})
    assert (free.amount, dict(free.per_machine)) == (1e6, {"aws/east/dear": 1.0})


def test_a_claim_has_the_jobs_work_machines_and_start_up() -> None:
    job = claim(aim=Aim.HIGHEST_RATE)
    assert job.rates == {"aws/east/cheap": 4.0, "aws/east/fast": 8.0, "aws/east/dear": 16.0}
    assert (job.work, job.least, job.most, job.arrival, job.since) == (320.0, 2, 8, 100.0, 100.0)
    assert job.swap_seconds == 360.0
    assert claim(startup=5 * MINUTE).swap_seconds == 300.0
    assert claim(gang=True, saves=True, save_time=2 * MINUTE).swap_seconds == 480.0


def test_an_unknown_length_is_no_work_and_a_deadline_counts_from_now() -> None:
    assert claim(work=JobLength("unknown", hours=1.0, assumed=True)).work is None
    assert claim().deadline is None
    # `hours_left` are those after start-up.
    assert claim(hurries=True, hours_left=9.9).deadline == pytest.approx(200.0 + 10 * 3600)


def test_a_job_that_ends_after_a_fixed_time_ends_no_sooner_with_more_machines() -> None:
    job = claim(work=JobLength("told", longest=5.0))
    assert job.work == 5.0
    assert job.speed({"aws/east/cheap": 2}) == job.speed({"aws/east/fast": 8}) == 1 / 3600


def test_only_commands_without_checkpoints_keep_their_machines() -> None:
    assert claim().interruptible
    assert claim(gang=True, saves=True).interruptible
    assert not claim(gang=True).interruptible


def test_a_job_that_is_to_be_cheap_waits_for_kinds_of_about_its_lowest_price() -> None:
    assert kinds(claim()) == {"cheap", "fast"}
    assert kinds(claim(aim=Aim.HIGHEST_RATE)) == {"cheap", "fast", "dear"}
    # Four fast machines do the work in ten hours; four dear ones in five.
    relaxed, pressed = claim(hurries=True, hours_left=12.0), claim(hurries=True, hours_left=9.0)
    assert (kinds(relaxed), relaxed.most) == ({"cheap", "fast"}, 4)
    assert (kinds(pressed), pressed.most) == ({"cheap", "fast", "dear"}, 3)
    at_any_cost = claim(hurries=True, hours_left=9.0, aim=Aim.HIGHEST_RATE)
    assert (kinds(at_any_cost), at_any_cost.most) == ({"cheap", "fast", "dear"}, 8)


def test_a_budget_that_buys_speed_leaves_out_what_it_cannot_pay() -> None:
    assert kinds(claim(aim=Aim.SHORTEST_TIME, budget_usd=320 * 0.011)) == {"cheap"}
    assert kinds(claim(aim=Aim.SHORTEST_TIME, budget_usd=320 * 0.02)) == {"cheap", "fast"}
