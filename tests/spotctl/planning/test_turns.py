"""Whole machines for jobs under quotas that are too small for all: a sample of the random cases, and small ones."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from pricing_data.units import HOUR
from spotctl.files.job.spec import Objective
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.planning.demand import Demand
from spotctl.planning.errors import NotInTime
from spotctl.planning.offers import MachineKind
from spotctl.planning.quota_groups import QuotaGroup
from spotctl.planning.share import JobShare, shares_of
from spotctl.planning.turns import QuotaPart, Turn
from spotctl.planning.work import JobLength
from tests.pricing_data.histories import START
from tests.spotctl.planning.brute_division import TOLERANCE, cases, worst

KIND = MachineKind("local", "sim", "g2.2xlarge")


def test_random_divisions_are_as_fair_as_those_of_a_brute_force() -> None:
    """`python -m tests.spotctl.planning.brute_division` compares 1,000."""
    assert min(map(worst, cases(60))) >= 1 - TOLERANCE


def asked(name: str, least: int = 1, most: int = 2, hours_left: float = inf, units: float = 4.0) -> Demand:
    length = JobLength("drawn", units=units) if units < inf else JobLength("assumed", hours=1.0, assumed=True)
    return Demand(name, Objective.MIN_COST, np.array([1.0]), least, most, length, float(most), hours_left, None)


def divided(amount: int, *jobs: Demand) -> list[JobShare]:
    """The shares of jobs under a quota of vCPUs, of which one machine uses 8."""
    group = QuotaGroup(Quota("local", "*", "g2", amount, QuotaUnit.VCPUS), np.array([8.0]), float(amount))
    return shares_of(jobs, [KIND], np.array([0.5]), [group])


def turns(shares: list[JobShare]) -> list[tuple[float, float, int]]:
    return [(share.turn.begin, share.turn.end, share.quotas[0]) for share in shares]


def test_equal_jobs_get_whole_machines_as_long_as_the_quota_holds_one_for_each() -> None:
    assert [share.quotas for share in divided(40, *map(asked, "abc"))] == [(16,), (16,), (8,)]
    assert [share.quotas for share in divided(24, *map(asked, "abc"))] == [(8,), (8,), (8,)]
    assert [share.quotas for share in divided(48, *map(asked, "abc"))] == [(48,), (48,), (48,)]


def test_jobs_that_a_quota_does_not_hold_together_take_turns() -> None:
    """A machine does 4 units in 4 hours; the job that is named last begins when the first one ends."""
    assert turns(divided(16, *map(asked, "abc"))) == [(0.0, 4.0, 8), (0.0, 4.0, 8), (4.0, 6.0, 16)]
    assert turns(divided(8, asked("a"), asked("b", hours_left=9.0))) == [(4.0, 8.0, 8), (0.0, 4.0, 8)]


def test_a_job_waits_for_the_end_of_jobs_of_unknown_length_only_without_a_deadline() -> None:
    assert turns(divided(8, asked("a", units=inf), asked("b"))) == [(0.0, inf, 8), (inf, inf, 8)]
    with pytest.raises(NotInTime, match=r"b: other jobs use the quotas \(local/\*/g2=8 vCPUs\) until 4 hours from now"):
        divided(8, asked("a", hours_left=5.0), asked("b", hours_left=6.0))


def test_parts_name_the_times_of_their_turns() -> None:
    first, late = QuotaPart("a", 8, Turn(0.0, 3.5)), QuotaPart("b", 16, Turn(3.5, 26.0))
    assert first.words(START) == "a 8 until 03:30"
    assert late.words(START) == "b 16 from 03:30 until 2026-01-02 02:00"
    assert QuotaPart("c", 8, Turn(inf, inf)).words(START) == "c 8 after the others"
    assert (late.turn.delay, Turn(inf, inf).delay) == (round(3.5 * HOUR), 0)
