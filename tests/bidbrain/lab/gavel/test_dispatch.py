"""The simulator against hand-solved clusters, a slow reference simulator, and the published
figures.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bidbrain.gavel.policies import policy_named
from bidbrain.gavel.problem import AllocationProblem, Cluster, ClusterAllocation
from bidbrain.lab.gavel.dispatch import ByShares, DispatchRules, InOrder
from bidbrain.lab.gavel.engine import SimulationOutcome, Stalled, simulate
from bidbrain.lab.gavel.results import finish_time_fairness, summarize, utilization
from bidbrain.lab.gavel.workload import ClusterSimulation
from spotctl.lab.gavel.throughputs_file import read_throughputs, read_trace
from tests.bidbrain.gavel.clusters import (
    Fixed,
    scenario,
    workload,
)


def play(
    asked: ClusterSimulation, policy: str = "max-min-fairness", rules: DispatchRules | None = None
) -> SimulationOutcome:
    return simulate(asked, ByShares(asked, policy_named(policy), rules))


def test_a_new_job_waits_for_the_next_allocation_but_not_on_an_idle_cluster() -> None:
    asked = scenario(workload([[1.0], [1.0], [1.0]], [3600, 360, 360], arrival=[0, 100, 9000]), [3])
    # Allocated at 0, again at 360 because of the arrival, and at 9000.
    assert play(asked).finish.tolist() == [3600, 720, 9360]
    later = scenario(workload([[1.0]] * 4, [3600, 360, 360, 360], arrival=[0, 100, 800, 9000]), [4])
    # The third job waits for 2520, the first round's end 1920 s after the second allocation.
    assert play(later).finish.tolist() == [3600, 720, 2880, 9360]
    # On an idle cluster a job does not wait.
    idle = scenario(workload([[1.0]] * 3, [720, 360, 360], arrival=[0, 100, 1200]), [3])
    assert play(idle).finish.tolist() == [720, 720, 1560]
    eager = replace(asked, allocation_seconds=0)
    assert play(eager).finish.tolist() == [3600, 720, 9360]


def test_a_job_of_many_workers_does_not_starve_when_allocations_are_short() -> None:
    """Eight workers, ten active jobs at any time: its share is small, and changes with each
    arriving job.
    """
    arrival = [0.0] * 10 + [2_000.0 * m for m in range(1, 120)]
    rates, scale = [[1.0]] * 130, [8] + [1] * 129
    asked = scenario(workload(rates, [3600.0] + [16_000.0] * 129, scale, [0.0, *arrival]), [8])
    outcome = play(asked)
    assert finish_time_fairness(outcome)[0] < 4


def test_a_queue_starts_in_order_and_runs_to_the_end() -> None:
    """The job of two workers waits for both, and the third behind it although it would fit."""
    rates, steps = [[1.0, 2.0], [1.0, 2.0], [1.0, 1.0]], [7200, 7200, 360]
    asked = scenario(workload(rates, steps, scale=[1, 2, 1]), [1, 2], allocation_seconds=0)
    outcome = simulate(asked, InOrder(asked))
    assert outcome.finish.tolist() == [3600, 7200, 3960]
    assert outcome.moves.tolist() == [0, 0, 0]


def test_in_a_queue_that_moves_jobs_take_faster_types_that_become_free() -> None:
    asked = scenario(workload([[1.0, 2.0], [1.0, 2.0]], [720, 3600]), [1, 1], allocation_seconds=0)
    stays, moves = (simulate(asked, InOrder(asked, moves=moves)) for moves in (False, True))
    assert stays.finish.tolist() == [360, 3600]
    # 360 s on the slow type, then the remaining 3,240 steps on the fast one.
    assert moves.finish.tolist() == [360, 360 + 1620]
    assert moves.moves.tolist() == [0, 1]


def test_an_agnostic_queue_draws_types_at_random() -> None:
    asked = scenario(workload([[1.0, 8.0]] * 40, [3600] * 40), [20, 20])
    outcome = simulate(asked, InOrder(asked, np.random.default_rng(0)))
    fast = outcome.held_seconds[:, 1] > 0
    assert 0 < fast[:20].sum() < 20
    assert not (outcome.held_seconds > 0).all(axis=1).any()


def test_remaining_workers_are_used_or_left_idle_as_the_rules_say() -> None:
    """The policy gives the second job half of the first type and nothing of the other."""
    asked = scenario(workload([[1.0, 1.0], [1.0, 1.0]], [720, 720]), [1, 1])
    fixed = Fixed({"0": [1.0, 0.0], "1": [0.5, 0.0]})
    lively = simulate(asked, ByShares(asked, fixed))
    assert (lively.finish.tolist(), lively.held_seconds[:, 1].sum()) == ([720, 720], 720)
    thrifty = simulate(asked, ByShares(asked, fixed, DispatchRules(beyond_shares=False)))
    assert (thrifty.finish.max(), thrifty.held_seconds[:, 1].sum()) == (1440, 0)


def test_a_job_without_any_share_runs_on_free_workers_unless_these_are_to_stay_idle() -> None:
    asked, thrifty = (
        scenario(workload([[1.0], [1.0]], [720, 720]), [2]),
        DispatchRules(beyond_shares=False),
    )
    fixed = Fixed({"0": [1.0], "1": [0.0]})
    assert simulate(asked, ByShares(asked, fixed)).finish.tolist() == [720, 720]
    with pytest.raises(Stalled, match="gives no time to job 1 and 0 more"):
        simulate(asked, ByShares(asked, fixed, thrifty))
    first = replace(asked, measured=range(1))
    outcome = simulate(first, ByShares(first, fixed, thrifty))
    assert (outcome.finish.tolist(), outcome.held_seconds.sum()) == ([720, np.inf], 720)


def test_deadlines_are_planned_two_rounds_early_within_the_jobs_reserve() -> None:
    """With 3600 seconds of work: no deadline, a distant one, one with 360 seconds in reserve, and
    an impossible one.
    """
    seen = []

    class Seeing(Fixed):
        def __call__(self, problem: AllocationProblem, /) -> ClusterAllocation:
            seen.append(problem.jobs.slo_seconds.tolist())
            return super().__call__(problem)

    work = replace(
        workload([[1.0, 2.0]] * 4, [7200] * 4), slo_factor=np.array([np.inf, 3.0, 1.1, 0.5])
    )
    asked = scenario(work, [0, 4])
    simulate(asked, ByShares(asked, Seeing({str(m): [1.0, 1.0] for m in range(4)})))
    assert seen[0] == pytest.approx([np.inf, 3 * 3600 - 720, 3960 - 0.99 * 360, 1800])


def test_deadlines_that_can_be_kept_are_kept_at_less_than_the_price_of_speed() -> None:
    """The cheap type is the slow one: an urgent job uses the expensive one, at least in part."""
    rng = np.random.default_rng(5)
    work = workload(
        [[1.0, 3.0]] * 12,
        rng.integers(4_000, 40_000, 12).tolist(),
        arrival=[1800 * m for m in range(12)],
    )
    work = replace(work, slo_factor=rng.choice([1.3, 2.0, 10.0], 12))
    cluster = Cluster(("a", "b"), np.array([12.0, 12.0]), np.array([0.1, 1.0]))
    asked = ClusterSimulation(work, cluster, range(12), allocation_seconds=0)
    found = {
        name: summarize(simulate(asked, ByShares(asked, policy_named(name), rules)))
        for name, rules in (
            ("max-throughput", DispatchRules()),
            ("min-cost", DispatchRules(beyond_shares=False)),
            ("min-cost-slo", DispatchRules(beyond_shares=False, periodic=True)),
        )
    }
    violations = {name: one.slo_violations for name, one in found.items()}
    cost = [found[name].cost_usd or 0.0 for name in ("min-cost", "min-cost-slo", "max-throughput")]
    assert (violations["max-throughput"], violations["min-cost-slo"]) == (0, 0)
    assert (violations["min-cost"] or 0) > 0
    assert cost == sorted(cost)
    assert cost[1] < 0.9 * cost[2]


def test_periodic_policies_reallocate_without_arrivals_or_departures() -> None:
    asked = scenario(workload([[1.0]], [18_000]), [1])
    plain = simulate(asked, ByShares(asked, Fixed({"0": [1.0]})))
    periodic = simulate(asked, ByShares(asked, Fixed({"0": [1.0]}), DispatchRules(periodic=True)))
    assert (plain.allocations, periodic.allocations) == (1, 5)


def test_sharing_workers_is_never_worse_for_a_batch() -> None:
    """Two jobs that share one worker without loss finish in half the time."""
    work = workload([[1.0], [1.0]], [3600, 3600])
    together = np.zeros((2, 2, 1, 2))
    together[0, 1] = together[1, 0] = 1.0
    work = replace(work, throughputs=replace(work.throughputs, together=together))
    asked = scenario(work, [1])
    assert play(asked, "makespan").finish.max() == pytest.approx(7200)
    outcome = play(replace(asked, believed=asked.workload.throughputs), "makespan")
    assert outcome.finish.tolist() == [3600, 3600]
    assert outcome.held_seconds.sum() == pytest.approx(3600)
    assert utilization(outcome) == pytest.approx(1)


def test_newcomers_wait_for_the_next_allocation_if_asked_and_take_up_idle_workers() -> None:
    """As published, also on an idle cluster, if another job is still to come."""
    wait = DispatchRules(newcomers_wait=True)
    asked = scenario(workload([[1.0]] * 4, [720, 360, 360, 360], arrival=[0, 100, 1200, 5000]), [3])
    assert play(asked).finish.tolist() == [720, 720, 1560, 5360]
    assert play(asked, rules=wait).finish.tolist() == [720, 720, 5360, 5360]
    # The second job has no share and runs on an idle worker, which the last then takes up until it
    # is allocated.
    jobs = workload([[1.0]] * 4, [9000, 5400, 360, 360], arrival=[100, 100, 200, 2300])
    asked, fixed = scenario(jobs, [2]), Fixed({name: [float(name == "0")] for name in "0123"})
    finish = [
        simulate(asked, ByShares(asked, fixed, rules)).finish.tolist()
        for rules in (DispatchRules(), wait)
    ]
    assert finish[0][1] < finish[1][1]


def test_a_policy_that_gives_no_job_time_stops_the_simulation() -> None:
    asked = scenario(workload([[1.0], [1.0]], [10, 10]), [2])
    for rules in (
        DispatchRules(beyond_shares=False),
        DispatchRules(beyond_shares=False, periodic=True),
    ):
        with pytest.raises(Stalled, match="gives no time to job 0 and 1 more"):
            simulate(asked, ByShares(asked, Fixed({"0": [0.0], "1": [0.0]}), rules))


@pytest.mark.parametrize(
    ("trace", "workers", "policy", "makespan", "jct"),
    [
        ("minimize_makespan.csv", [8, 16, 24], "makespan", 64_720.8, 63_774.7),
        ("max_min_fairness.csv", [12, 12, 12], "max-min-fairness", None, 14_981),
        ("max_min_fairness.csv", [12, 12, 12], "fifo", None, 27_205),
    ],
)
def test_published_results_are_matched_within_three_percent(
    shared_data: Path,
    trace: str,
    workers: list[float],
    policy: str,
    makespan: float | None,
    jct: float,
) -> None:
    folder = shared_data / "gavel"
    table = read_throughputs(folder / "simulation_throughputs.json.gz").on(("v100", "p100", "k80"))
    asked = scenario(read_trace(folder / trace, table, 0)[0], workers)
    dispatcher = InOrder(asked) if policy == "fifo" else ByShares(asked, policy_named(policy))
    found = summarize(simulate(asked, dispatcher))
    assert found.average_jct_seconds == pytest.approx(jct, rel=0.03)
    if policy == "fifo":
        # The published queue does not know throughputs: it draws types at random.
        draws = (simulate(asked, InOrder(asked, np.random.default_rng(seed))) for seed in range(8))
        assert np.mean([summarize(draw).average_jct_seconds for draw in draws]) == pytest.approx(
            jct, rel=0.1
        )
    if makespan is not None:
        assert found.makespan_seconds == pytest.approx(makespan, rel=0.03)


def test_a_spread_job_is_slower_until_a_server_has_room_and_its_move_takes_a_checkpoint() -> None:
    """Three jobs of two workers on two servers of three: the last has one worker of each until the
    first is done.
    """
    work = workload([[2.0]] * 3, [720, 2160, 1780], scale=[2, 2, 2])
    work = replace(work, throughputs=replace(work.throughputs, spread=np.ones((3, 1))))
    asked = replace(scenario(work, [6], checkpoint_seconds=10), per_server=np.array([3.0]))
    outcome = play(asked)
    # A round spread, 10 s of a move, and the remaining 1,420 steps at full speed.
    assert outcome.finish.tolist() == [360, 1080, 360 + 10 + 710]
    assert (outcome.moves.tolist(), outcome.spread_seconds.tolist()) == ([0, 0, 1], [0, 0, 360])
    # Who was not measured on several servers waits.
    waits = replace(
        asked,
        workload=replace(work, throughputs=replace(work.throughputs, spread=np.zeros((3, 1)))),
    )
    assert play(waits).finish.tolist() == [360, 1080, 360 + 890]


def test_a_job_with_fewer_steps_left_than_workers_is_dropped_if_asked() -> None:
    """As published: 361 steps in a round of four workers leave one, which four workers cannot
    share.
    """
    asked = scenario(workload([[1.0], [1.0]], [361, 3600], scale=[4, 1]), [5])
    dropped = play(replace(asked, drops=True))
    assert play(asked).finish.tolist() == [361, 3600]
    assert dropped.dropped.tolist() == [True, False]
    # Five more rounds of the other job, in which nothing is held.
    assert dropped.finish[0] == 6 * 360
    assert dropped.held_seconds[:, 0].tolist() == [360, 3600]
    assert (summarize(dropped).jobs, summarize(dropped).average_jct_seconds) == (1, 3600)
