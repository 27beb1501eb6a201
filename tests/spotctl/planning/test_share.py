"""The share of each job: kinds, caps and turns, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from bidbrain.arrays import Floats
from bidbrain.decision.mixture_solver import Schedule
from bidbrain.queue.values import JobQueue, QueueTerms
from bidbrain.strategies.base import Overheads
from pricing_data.units import HOUR
from spotctl.files.job.spec import Objective
from spotctl.home.errors import BadRequest
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.planning.candidates import KindColumns
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.explain import mean_ends
from spotctl.planning.fleet import machine_mixes
from spotctl.planning.offers import MachineKind
from spotctl.planning.quotas import QuotaGroup
from spotctl.planning.share import divide, shares_of
from spotctl.planning.values import (
    Demand,
    Job,
    JobLength,
    JobPlan,
    JobShare,
    MachineMix,
    QuotaSlice,
    Turn,
)
from spotctl.show.phrases import slice_text
from tests.pricing_data.histories import START
from tests.spotctl.planning.random_divisions import cases, check, with_limits

CHEAP, FAST, SLOW, FAR = KINDS = tuple(
    MachineKind("aws", region, name)
    for region, name in (("east", "cheap"), ("east", "fast"), ("east", "slow"), ("west", "cheap"))
)
NU = np.array([4.0, 8.0, 2.0, 4.0])
# Dollars per unit of work: 0.01, 0.02, 0.015, 0.012.
PRICE = np.array([0.04, 0.16, 0.03, 0.048])


def asked(
    name: str = "job",
    objective: Objective = Objective.MIN_COST,
    units: float = 320.0,
    **changes: object,
) -> Demand:
    made = Demand(name, objective, NU, 2, 8, JobLength("told", units=units), 32.0, inf, None)
    return with_limits(replace(made, **changes))  # type: ignore[arg-type]


def limited(quotas: dict[MachineKind, int]) -> list[QuotaGroup]:
    """A quota of machines for each kind by itself."""
    return [
        QuotaGroup(
            Quota(kind.cloud, kind.region, kind.type, most, QuotaUnit.MACHINES),
            np.array([float(one == kind) for one in KINDS]),
            float(most),
        )
        for kind, most in quotas.items()
    ]


def shares(
    jobs: list[Demand], quotas: dict[MachineKind, int] | None = None, price: Floats = PRICE
) -> list[JobShare]:
    return shares_of(jobs, KINDS, price, limited(quotas or {}))


def options(job: Demand, quotas: dict[MachineKind, int] | None = None) -> list[MachineMix]:
    groups = limited(quotas or {})
    (share,) = shares_of([job], KINDS, PRICE, groups)
    numbers, rows = tuple(range(len(KINDS))), ((),) * len(KINDS)
    columns = KindColumns(numbers, KINDS, rows, PRICE, np.ones(len(KINDS)), tuple(groups))
    return machine_mixes(job, share, columns, np.zeros(len(KINDS)), Overheads(0, 0, 0))


def names(job: Demand, quotas: dict[MachineKind, int] | None = None) -> list[MachineKind]:
    return [KINDS[one.home] for one in options(job, quotas)]


def schedule(job: Demand, quotas: dict[MachineKind, int] | None = None) -> Schedule:
    chosen = options(job, quotas)[0].schedule
    assert chosen is not None
    return chosen


def mixtures(of: Schedule) -> list[dict[str, int]]:
    """The machines of each phase by type."""
    return [
        {
            kind.type: count
            for kind, count in zip(KINDS, phase.mixture.machines, strict=True)
            if count
        }
        for phase in of.phases
    ]


def test_throughput_is_where_machines_are_fast() -> None:
    assert names(asked(objective=Objective.MAX_THROUGHPUT)) == [FAST, FAR, CHEAP]


def test_of_kinds_that_are_as_fast_the_cheaper_is_taken() -> None:
    alike = asked(objective=Objective.MAX_THROUGHPUT, nu=np.array([4.0, 0.0, 0.0, 4.0]))
    assert names(alike)[0] == CHEAP
    # Three machines of a quota are not as fast as eight.
    assert names(alike, {CHEAP: 3}) == [FAR, CHEAP]


def test_an_impossible_deadline_is_refused_with_what_it_would_take() -> None:
    with pytest.raises(
        NotInTime,
        match=r"4 hours are left.*8 machines of aws/east/fast.*need 5; about 10 machines would be fast",
    ):
        shares([asked(hours_left=4.0)])
    with pytest.raises(
        NotInTime,
        match=r"at least 2 machines, and quotas allow at most 1 \(aws/east/cheap=1 machines,.*raise a quota",
    ):
        shares([asked(least=2, most=2, nu=NU * [1, 0, 0, 1])], dict.fromkeys(KINDS, 1))


def test_a_budget_buys_speed_and_one_that_is_too_small_is_refused() -> None:
    """All of the work costs 3.20 dollars at the least, 6.40 on the fast machines."""
    hurry = Objective.MAKESPAN_WITHIN_BUDGET
    assert mixtures(schedule(asked(objective=hurry, budget_usd=6.5))) == [{"fast": 8}]
    tight = schedule(asked(objective=hurry, budget_usd=4.0))
    # Less than two cents are kept for a standstill, and for the time until the machines are
    # returned.
    assert 3.98 < tight.usd < 4.0
    assert 5.0 < tight.hours < 10.0
    with pytest.raises(OverBudget, match=r"budget of \$3\.00 is too low.* at least \$3\.20$"):
        shares([asked(objective=hurry, budget_usd=3.0)])


def test_an_unknown_job_length_is_not_checked_against_deadline_or_budget() -> None:
    unknown = JobLength("assumed", hours=1.0, assumed=True)
    (share,) = shares([asked(work=unknown, hours_left=0.0)])
    assert share.policy == "min-cost"
    hurry = asked(objective=Objective.MAKESPAN_WITHIN_BUDGET, work=unknown, budget_usd=0.01)
    assert shares([hurry])[0].policy == "max-throughput"


def test_one_allocation_has_one_objective_though_some_jobs_have_deadlines() -> None:
    both = [asked("a"), asked("b", hours_left=6.0, objective=Objective.MIN_COST_SLO)]
    assert {share.policy for share in shares(both)} == {"min-cost-slo"}
    hurry = Objective.MAKESPAN_WITHIN_BUDGET
    unknown = JobLength("assumed", hours=1.0, assumed=True)
    mixed = [asked("a", hurry, budget_usd=9.0), asked("b", hurry, budget_usd=9.0, work=unknown)]
    assert {share.policy for share in shares(mixed)} == {"makespan-within-budget"}
    with pytest.raises(BadRequest, match="a: min-cost, b: max-throughput"):
        shares([asked("a"), asked("b", Objective.MAX_THROUGHPUT)])


KIND = MachineKind("local", "sim", "g2.2xlarge")


def test_random_divisions_keep_to_quotas_and_deadlines_and_refuse_only_what_no_order_keeps() -> (
    None
):
    """`python -m tests.spotctl.planning.random_divisions` looks at 1,000."""
    divisions = [check(case) for case in cases(60)]
    assert (
        sum(
            division is not None and any(job.share.turn.begin for job in division)
            for division in divisions
        )
        > 20
    )


def waiting_job(
    name: str, least: int = 1, most: int = 2, hours_left: float = inf, units: float = 4.0
) -> Demand:
    length = (
        JobLength("drawn", units=units)
        if units < inf
        else JobLength("assumed", hours=1.0, assumed=True)
    )
    nu = np.array([1.0])
    return with_limits(
        Demand(name, Objective.MIN_COST, nu, least, most, length, float(most), hours_left, None)
    )


def divided(amount: int, *jobs: Demand) -> list[JobShare]:
    """The shares of jobs under a quota of vCPUs, of which one machine uses 8."""
    group = QuotaGroup(
        Quota("local", "*", "g2", amount, QuotaUnit.VCPUS), np.array([8.0]), float(amount)
    )
    return shares_of(jobs, [KIND], np.array([0.5]), [group])


def turns(shares: list[JobShare]) -> list[tuple[float, float, int]]:
    return [(share.turn.begin, share.turn.end, share.amounts[0]) for share in shares]


def test_jobs_that_a_quota_does_not_hold_together_take_turns() -> None:
    """Alone, each takes 2 hours with two machines."""
    assert turns(divided(16, *map(waiting_job, "abc"))) == [
        (0.0, 2.0, 16),
        (2.0, 4.0, 16),
        (4.0, 6.0, 16),
    ]
    assert turns(divided(8, waiting_job("a"), waiting_job("b", hours_left=5.0))) == [
        (4.0, 8.0, 8),
        (0.0, 4.0, 8),
    ]
    assert [share.amounts for share in divided(48, *map(waiting_job, "abc"))] == [
        (48,),
        (48,),
        (48,),
    ]


def test_a_job_gets_more_of_a_quota_when_another_ends() -> None:
    """One machine is left beside the first job, which would do no more with all three."""
    first, second = divided(24, waiting_job("a"), waiting_job("b", units=10.0))
    assert (first.turn.begin, first.turn.end, first.turn.machines) == (0.0, 2.0, (2,))
    assert [(part.begin, part.end, part.machines) for part in second.parts] == [
        (0.0, 2.0, (1,)),
        (2.0, 6.0, (2,)),
    ]
    assert (second.turn.machines, second.turn.end, second.amounts, second.caps) == (
        (1,),
        6.0,
        (16,),
        (2,),
    )


def test_the_shortest_jobs_go_first() -> None:
    """In the order of their names, these jobs would end after 40.8 hours in the mean."""
    jobs = [
        waiting_job(f"j{i}", most=1, units=units)
        for i, units in enumerate((40.0, 40.0, 1.0, 1.0, 1.0))
    ]
    ends = [share.turn.end for share in divided(16, *jobs)]
    assert ends == pytest.approx([41.0, 42.0, 1.0, 1.0, 2.0])
    assert sum(ends) / len(ends) == pytest.approx(17.4)


def test_a_plan_says_when_jobs_would_end_with_another_policy() -> None:
    lengths = (40.0, 40.0, 1.0, 1.0, 1.0, inf)
    jobs = [waiting_job(f"j{i}", most=1, units=units) for i, units in enumerate(lengths)]
    (first, *_) = divided(16, *jobs[:5])
    means = mean_ends(cast("JobPlan", SimpleNamespace(share=first)))
    assert list(means) == ["mean-completion", "max-min-fairness", "fifo"]
    assert list(means.values()) == pytest.approx([17.4, 18.1, 40.8], abs=0.1)
    (first, *_) = divided(16, *jobs)
    assert mean_ends(cast("JobPlan", SimpleNamespace(share=first)))["mean-completion"] < 20
    (alone,) = divided(16, jobs[0])
    assert not mean_ends(cast("JobPlan", SimpleNamespace(share=alone)))


def test_jobs_behind_others_of_unknown_length_have_bounds() -> None:
    """The scheduler takes an unknown length to be an hour, and as long again as it has run."""
    unknown, known = divided(
        8, waiting_job("a", units=inf, most=1), waiting_job("b", units=1.0, most=1)
    )
    assert (known.turn.begin, known.turn.end) == pytest.approx((1.0, 2.0))
    assert known.turn.begins is not None
    assert known.turn.begins[0] == 0.0
    # It then gives way to jobs of known lengths.
    assert 1.0 < known.turn.begins[1] < 2.0
    assert (unknown.turn.begin, unknown.turn.end) == (0.0, inf)
    first, second = divided(8, *(waiting_job(name, units=inf) for name in "ab"))
    assert first.turn.begin == 0.0 < second.turn.begin < inf


def test_a_command_that_would_lose_its_work_may_keep_others_waiting_for_ever() -> None:
    jobs = replace(waiting_job("a", units=inf, most=1), gang=True), waiting_job("b", units=2.0)
    turn = divided(8, *jobs)[1].turn
    assert turn.begins == (0.0, inf)
    assert 0.0 < turn.begin < inf


def test_deadlines_are_kept_jointly_if_an_order_keeps_them() -> None:
    """Shared from the start, both have time; the long one alone would take nearly all of it."""
    jobs = (
        waiting_job("a", most=4, units=2.0),
        waiting_job("b", most=4, units=60.0, hours_left=31.5),
    )
    assert [share.turn.end for share in divided(16, *jobs)] == pytest.approx([1.0, 31.0])
    # The forecast of the first job may take longer than its machines' speeds say.
    slow = (
        replace(waiting_job("a", most=1, hours_left=8.0), pace=1.75),
        waiting_job("b", most=1, hours_left=12.0),
    )
    assert turns(divided(8, *slow)) == [(0.0, 7.0, 8), (7.0, 11.0, 8)]


def test_a_deadline_that_earlier_ones_do_not_leave_time_for_is_refused() -> None:
    with pytest.raises(
        NotInTime,
        match=r"b: other jobs use the quotas \(local/\*/g2=8 vCPUs\) until 4 hours from now",
    ):
        divided(8, waiting_job("a", hours_left=5.0), waiting_job("b", hours_left=6.0))
    grows = waiting_job("b", least=1, most=3, units=12.0, hours_left=4.5)
    late = r"b: shares the quotas \(local/\*/g2=24 vCPUs\) with other jobs, and would end 5 hours after start-up"
    with pytest.raises(NotInTime, match=late):
        divided(24, waiting_job("a", hours_left=1.6, units=3.0), grows)


def test_deadlines_may_be_kept_at_any_price() -> None:
    """The cheap machine is enough for each of the two jobs, but not for both."""
    kinds = tuple(MachineKind("aws", "east", name) for name in ("cheap", "dear"))
    groups = [
        QuotaGroup(Quota("aws", "east", kind.type, 1, QuotaUnit.MACHINES), np.array(each), 1.0)
        for kind, each in zip(kinds, ([1.0, 0.0], [0.0, 1.0]), strict=True)
    ]
    jobs = [
        replace(waiting_job(name, most=1, hours_left=5.0), nu=np.array([1.0, 1.0])) for name in "ab"
    ]
    shares = shares_of(jobs, kinds, np.array([0.1, 0.4]), groups)
    assert sorted(share.turn.machines for share in shares) == [(0, 1), (1, 0)]
    at_leisure = [replace(job, hours_left=9.0) for job in jobs]
    assert [
        share.turn.machines for share in shares_of(at_leisure, kinds, np.array([0.1, 0.4]), groups)
    ] == [(1, 0)] * 2


def kinds_of(*uses: float) -> tuple[tuple[MachineKind, ...], tuple[QuotaGroup, ...]]:
    """Kinds in one region, of which one machine uses so much of a quota of 5."""
    kinds = tuple(MachineKind("aws", "east", f"k{j}.x") for j in range(len(uses)))
    return kinds, (QuotaGroup(Quota("aws", None, "q", 5, QuotaUnit.VCPUS), np.array(uses), 5.0),)


def drawn(name: str, nu: Sequence[float], least: int, most: int, units: float = 10.0) -> Demand:
    return replace(
        waiting_job(name, least, most, units=units), nu=np.array(nu), reference_nu=most * max(nu)
    )


def test_a_quota_that_each_job_needs_as_a_whole_is_not_enough_for_both() -> None:
    shares = divided(16, waiting_job("a", 2), waiting_job("b", 2))
    assert turns(shares) == [(0.0, 2.0, 16), (2.0, 4.0, 16)]
    assert [share.short for share in shares] == [(True,), (True,)]
    assert [share.short for share in divided(32, waiting_job("a", 2), waiting_job("b", 2))] == [
        (False,),
        (False,),
    ]


def test_a_waiting_job_needs_no_more_to_begin_than_its_part() -> None:
    """Two of the large machines would use 8 of 5; the job is planned with a large and a small
    one."""
    kinds, groups = kinds_of(4.0, 1.0)
    columns = KindColumns((0, 1), kinds, ((0,), (1,)), np.ones(2), np.ones(2), groups)
    demands = drawn("a", [0.0, 1.0], 4, 4), drawn("b", [8.0, 1.0], 2, 2, units=80.0)
    jobs = [(cast("Job", None), demand) for demand in demands]
    first, late = divide(jobs, columns, 0.0)
    assert late.share.turn.machines == (1, 1)
    assert (first.share.wait, late.share.wait) == (0, round(late.share.turn.begin * HOUR))
    assert [part.amount for part in late.share.quotas[0].slices] == [4, 5]


def test_the_machines_of_a_job_are_in_one_region() -> None:
    kinds = tuple(MachineKind("aws", region, "k.x") for region in ("east", "west"))
    groups = [
        QuotaGroup(Quota("aws", kind.region, None, 2, QuotaUnit.VCPUS), np.array(each), 2.0)
        for kind, each in zip(kinds, ([1.0, 0.0], [0.0, 1.0]), strict=True)
    ]
    for least in (1, 2):
        jobs = [replace(drawn(name, [1.0, 1.0], least, 4), reference_nu=4.0) for name in "abc"]
        for share in shares_of(jobs, kinds, np.ones(2), groups):
            assert all(0 in part.machines for part in share.parts)


def test_parts_name_the_times_of_their_turns() -> None:
    first, late = QuotaSlice("a", 8, Turn(0.0, 3.5)), QuotaSlice("b", 16, Turn(3.5, 26.0))
    assert slice_text(first, START) == "a 8 until 03:30Z"
    assert slice_text(late, START) == "b 16 from 03:30Z until 2026-01-02 02:00Z"
    assert (
        slice_text(replace(first, later=((2.0, 16),)), START) == "a 8, 16 from 02:00Z until 03:30Z"
    )
    behind = Turn(1.0, 2.0, begins=(0.5, inf), ends=(1.5, 3.0))
    assert (
        slice_text(QuotaSlice("c", 8, behind), START)
        == "c 8 from 00:30Z or later until 01:30Z to 03:00Z"
    )
    assert slice_text(QuotaSlice("d", 8, Turn(0.01, inf)), START) == "d 8 from 00:01Z", (
        "not at the launch"
    )


def test_users_and_weights_decide_who_has_what_of_a_quota() -> None:
    """Two users have half of a quota each, however many jobs they have; policy and weights are the
    queue's terms.
    """
    one = asked("one", units=640.0, user="ann", most=4)
    many = [asked(f"many{number}", units=640.0, user="bob", most=4) for number in range(3)]
    jobs, quotas = [one, *many], limited({CHEAP: 4, FAST: 0, SLOW: 0, FAR: 0})

    def machines(queued: JobQueue) -> list[int]:
        return [
            sum(share.turn.machines) * (not share.turn.begin)
            for share in shares_of(jobs, KINDS, PRICE, quotas, 0.0, queued)
        ]

    assert machines(JobQueue(0.0, (), (), QueueTerms())) == [2, 2, 0, 0]
    assert machines(JobQueue(0.0, (), (), QueueTerms("fifo"))) == [4, 0, 0, 0]
