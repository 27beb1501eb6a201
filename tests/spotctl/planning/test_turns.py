"""Whole machines for jobs under quotas that are too small for all: a sample of the random cases, and small ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import cast

import numpy as np
import pytest

from pricing_data.units import HOUR
from spotctl.files.job.spec import Objective
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.planning.candidates import KindColumns
from spotctl.planning.errors import NotInTime
from spotctl.planning.offers import MachineKind
from spotctl.planning.quotas import QuotaGroup
from spotctl.planning.share import divide, shares_of
from spotctl.planning.values import Demand, Job, JobLength, JobShare, QuotaPart, Turn
from spotctl.show.phrases import part_text
from tests.pricing_data.histories import START
from tests.spotctl.planning.brute_division import TOLERANCE, cases, worst

KIND = MachineKind("local", "sim", "g2.2xlarge")


def test_random_divisions_are_as_fair_as_those_of_a_brute_force() -> None:
    """`python -m tests.spotctl.planning.brute_division` compares 1,000."""
    ratios = [ratio for case in cases(60) if (ratio := worst(case)) is not None]
    assert len(ratios) > 20
    assert min(ratios) >= 1 - TOLERANCE


def asked(name: str, least: int = 1, most: int = 2, hours_left: float = inf, units: float = 4.0) -> Demand:
    length = JobLength("drawn", units=units) if units < inf else JobLength("assumed", hours=1.0, assumed=True)
    return Demand(name, Objective.MIN_COST, np.array([1.0]), least, most, length, float(most), hours_left, None)


def divided(amount: int, *jobs: Demand) -> list[JobShare]:
    """The shares of jobs under a quota of vCPUs, of which one machine uses 8."""
    group = QuotaGroup(Quota("local", "*", "g2", amount, QuotaUnit.VCPUS), np.array([8.0]), float(amount))
    return shares_of(jobs, [KIND], np.array([0.5]), [group])


def turns(shares: list[JobShare]) -> list[tuple[float, float, int]]:
    return [(share.turn.begin, share.turn.end, share.amounts[0]) for share in shares]


def test_equal_jobs_get_whole_machines_as_long_as_the_quota_holds_one_for_each() -> None:
    assert [share.amounts for share in divided(40, *map(asked, "abc"))] == [(16,), (16,), (8,)]
    assert [share.amounts for share in divided(24, *map(asked, "abc"))] == [(8,), (8,), (8,)]
    assert [share.amounts for share in divided(48, *map(asked, "abc"))] == [(48,), (48,), (48,)]


def test_jobs_that_a_quota_does_not_hold_together_take_turns() -> None:
    """A machine does 4 units in 4 hours; the job that is named last begins when the first one ends."""
    assert turns(divided(16, *map(asked, "abc"))) == [(0.0, 4.0, 8), (0.0, 4.0, 8), (4.0, 6.0, 16)]
    assert turns(divided(8, asked("a"), asked("b", hours_left=9.0))) == [(4.0, 8.0, 8), (0.0, 4.0, 8)]


def test_a_job_waits_for_the_end_of_jobs_of_unknown_length_only_without_a_deadline() -> None:
    assert turns(divided(8, asked("a", units=inf), asked("b"))) == [(0.0, inf, 8), (inf, inf, 8)]
    with pytest.raises(NotInTime, match=r"b: other jobs use the quotas \(local/\*/g2=8 vCPUs\) until 4 hours from now"):
        divided(8, asked("a", hours_left=5.0), asked("b", hours_left=6.0))


def test_no_job_is_refused_because_one_without_a_deadline_goes_first() -> None:
    """The third job fits next to the first one, and would keep the second one from both machines for ever."""
    jobs = asked("a", most=1, hours_left=5.0), asked("b", least=2, hours_left=10.0), asked("c", units=inf)
    assert turns(divided(16, *jobs)) == [(0.0, 4.0, 8), (4.0, 6.0, 16), (6.0, inf, 16)]


def test_deadlines_are_kept_in_another_order_if_the_first_does_not_keep_them() -> None:
    """The first job is forecast to take longer than its machines would."""
    jobs = replace(asked("a", hours_left=8.0), lasts_hours=7.0), asked("b", hours_left=8.0)
    assert turns(divided(8, *jobs)) == [(4.0, 11.0, 8), (0.0, 4.0, 8)]


def kinds_of(*uses: float) -> tuple[tuple[MachineKind, ...], tuple[QuotaGroup, ...]]:
    """Kinds in one region, of which one machine uses so much of a quota of 5."""
    kinds = tuple(MachineKind("aws", "east", f"k{j}.x") for j in range(len(uses)))
    return kinds, (QuotaGroup(Quota("aws", None, "q", 5, QuotaUnit.VCPUS), np.array(uses), 5.0),)


def drawn(name: str, nu: Sequence[float], least: int, most: int) -> Demand:
    return replace(asked(name, least, most, units=10.0), nu=np.array(nu), reference_nu=most * max(nu))


def test_a_quota_that_each_job_needs_as_a_whole_is_not_enough_for_both() -> None:
    shares = divided(16, asked("a", 2), asked("b", 2))
    assert turns(shares) == [(0.0, 2.0, 16), (2.0, 4.0, 16)]
    assert [share.short for share in shares] == [(True,), (True,)]
    assert [share.short for share in divided(32, asked("a", 2), asked("b", 2))] == [(False,), (False,)]


def test_a_waiting_job_needs_no_more_to_begin_than_its_part() -> None:
    """Two of the large machines would use 8 of 5; the job is planned with a large and a small one."""
    kinds, groups = kinds_of(4.0, 1.0)
    columns = KindColumns((0, 1), kinds, ((0,), (1,)), np.ones(2), np.ones(2), groups)
    demands = drawn("a", [0.0, 1.0], 4, 4), drawn("b", [8.0, 1.0], 2, 2)
    jobs = [(cast("Job", None), demand) for demand in demands]
    _, late = divide(jobs, columns, 0.0)
    assert late.share.turn.machines == (1, 1)
    assert [(part.amount, part.least) for part in late.share.quotas[0].parts] == [(4, 4), (5, 5)]


def test_turns_keep_to_quotas_that_are_large_enough_for_all() -> None:
    """Only one job may use the first quota, which is not short; it holds one machine, not two."""
    kinds, (second,) = kinds_of(1.0, 1.0)
    first = QuotaGroup(Quota("aws", None, "first", 4, QuotaUnit.VCPUS), np.array([4.0, 0.0]), 4.0)
    jobs = drawn("a", [8.0, 1.0], 1, 3), drawn("b", [0.0, 1.0], 1, 3)
    shares = shares_of(jobs, kinds, np.ones(2), [first, replace(second, most=3.0)])
    assert [share.short for share in shares] == [(False, True)] * 2
    assert [share.turn.machines for share in shares] == [(1, 0), (0, 2)]
    assert [share.amounts for share in shares] == [(4, 1), (4, 2)]


def test_parts_name_the_times_of_their_turns() -> None:
    first, late = QuotaPart("a", 8, Turn(0.0, 3.5)), QuotaPart("b", 16, Turn(3.5, 26.0))
    assert part_text(first, START) == "a 8 until 03:30Z"
    assert part_text(late, START) == "b 16 from 03:30Z until 2026-01-02 02:00Z"
    assert part_text(QuotaPart("c", 8, Turn(inf, inf)), START) == "c 8 after the others"
    assert part_text(QuotaPart("d", 8, Turn(0.01, inf)), START) == "d 8 from 00:01Z", "not at the launch"
    assert (late.turn.delay, Turn(inf, inf).delay) == (round(3.5 * HOUR), 0)
