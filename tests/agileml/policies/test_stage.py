"""Fixed stages, stages by ratio and learned stages: by hand, and in the simulated network of the
paper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from agileml.policies.stage import (
    ClockFinished,
    ClockSums,
    FixedStage,
    LearnedStage,
    NodesChanged,
    StageByRatio,
    Thresholds,
    TrainingPolicy,
    TrainingReport,
    UseStage,
)
from tests.agileml.stage_trials import MAX_BEHIND, Trial, trained

SUMS = ClockSums(pushed=100, pulled=100, backup=50)


def stage_for(policy: TrainingPolicy, reliable: int, transient: int) -> int:
    _, (proposal,) = policy.observe(NodesChanged(reliable, transient))
    return proposal.stage


def stages_chosen(
    policy: TrainingPolicy, nodes: tuple[int, int], seconds: dict[int, float], clocks: int
) -> list[int]:
    """The stages that a policy chooses, given the seconds of a clock in each stage."""
    return [stage for stage, _ in _steps(policy, nodes, seconds, clocks)]


def policy_after(
    policy: TrainingPolicy, nodes: tuple[int, int], seconds: dict[int, float], clocks: int
) -> TrainingPolicy:
    """The policy after these clocks."""
    return _steps(policy, nodes, seconds, clocks)[-1][1]


def _steps(
    policy: TrainingPolicy, nodes: tuple[int, int], seconds: dict[int, float], clocks: int
) -> list[tuple[int, TrainingPolicy]]:
    steps = []
    for _ in range(clocks):
        stage = stage_for(policy, *nodes)
        policy, _ = policy.observe(ClockFinished(stage, *nodes, seconds[stage], SUMS))
        steps.append((stage, policy))
    return steps


def test_a_fixed_stage_stays() -> None:
    assert stages_chosen(FixedStage(2), (1, 1), {2: 1.0}, 20) == [2] * 20
    assert stage_for(FixedStage(1), 0, 4) == 3
    assert stage_for(FixedStage(3), 4, 0) == 1


def test_the_stage_by_ratio_is_that_of_the_papers() -> None:
    policy = StageByRatio(Thresholds(1, 15))
    assert [stage_for(policy, 1, transient) for transient in (1, 2, 15, 16)] == [1, 2, 2, 3]
    assert stages_chosen(policy, (1, 4), {2: 9.0}, 5) == [2] * 5


@given(
    st.permutations([1.0, 1.2, 1.5]), st.sampled_from([(2, 1), (1, 1), (1, 4), (1, 20), (3, 50)])
)
def test_the_fastest_neighbor_is_found_and_kept(times: list[float], nodes: tuple[int, int]) -> None:
    seconds = dict(zip((1, 2, 3), times, strict=True))
    stages = stages_chosen(LearnedStage(), nodes, seconds, 60)
    assert len(set(stages[30:])) == 1
    found = stages[-1]
    assert all(
        seconds[found] < seconds[other] for other in (found - 1, found + 1) if other in seconds
    )


def test_each_neighbor_is_tried_once() -> None:
    stages = stages_chosen(LearnedStage(), (1, 4), {1: 1.0, 2: 0.9, 3: 1.1}, 60)
    # In each stage two skipped clocks and three measured ones; the very first clock only shows the
    # stage.
    assert stages == [2] * 6 + [3] * 5 + [2] * 5 + [1] * 5 + [2] * 39


def test_a_marginally_faster_stage_is_not_chosen() -> None:
    assert stages_chosen(LearnedStage(), (1, 4), {1: 1.0, 2: 1.0, 3: 0.98}, 60)[-1] == 2
    assert stages_chosen(LearnedStage(), (1, 4), {1: 1.0, 2: 1.0, 3: 0.9}, 60)[-1] == 3


def test_a_higher_stage_is_not_tried_if_reliable_nodes_have_little_traffic() -> None:
    policy = policy_after(LearnedStage(relief=0.5), (1, 20), {2: 1.0, 3: 1.0, 1: 2.0}, 1)
    assert stages_chosen(policy, (1, 20), {1: 2.0, 2: 1.0, 3: 1.5}, 60)[-1] == 2
    assert ClockFinished(1, 1, 1, 1.0, SUMS).reliable_share == 1.0
    assert ClockFinished(2, 1, 3, 1.0, SUMS).reliable_share == pytest.approx((50 + 50) / 250)
    assert ClockFinished(3, 1, 3, 1.0, SUMS).reliable_share == pytest.approx(50 / 250)
    assert ClockFinished(3, 1, 3, 1.0, ClockSums()).reliable_share == 0.0


def finished(stage: int, seconds: float, computing: float) -> ClockFinished:
    """A clock on one reliable and 63 transient machines; the bytes that a machine sends do not
    depend on the stage.
    """
    sums = ClockSums(pushed=4096, pulled=4096, backup=64, seconds=computing)
    return ClockFinished(stage, 1, 63, seconds, sums, partitions=8)


def test_a_lower_stage_is_not_tried_where_its_traffic_would_take_far_longer() -> None:
    # Eight servers carry 1024 each beside their own work, and one would carry 8192.
    assert finished(2, 9.0, 256.0).seconds_in(1) == pytest.approx(
        4 + 5 * (8192 + 128) / (1024 + 8 + 128)
    )
    assert finished(3, 9.0, 252.0).seconds_in(2) == pytest.approx(9.0, rel=1e-3)
    for computing, expected in ((256.0, {3, 2}), (8.9 * 64, {3, 2, 1})):
        policy: TrainingPolicy = LearnedStage()
        reasons, stages = list[str](), list[int]()
        for _ in range(40):
            stages.append(stage_for(policy, 1, 63))
            policy, (proposal,) = policy.observe(
                finished(stages[-1], {1: 9.0, 2: 9.0, 3: 12.0}[stages[-1]], computing)
            )
            reasons.append(proposal.reason)
        assert set(stages) == expected
        assert stages[-1] == 2
        assert ("and would take 39.9 s in stage 1 by its traffic" in " ".join(reasons)) == (
            1 not in expected
        )


def test_times_of_a_mix_are_remembered() -> None:
    policy = policy_after(LearnedStage(), (1, 4), {1: 1.0, 2: 1.5, 3: 2.0}, 40)
    assert stage_for(policy, 1, 4) == 1
    # Nearly the same ratio on more machines.
    assert stage_for(policy, 3, 11) == 1
    assert stage_for(policy, 1, 20) == 3
    elsewhere = policy_after(policy, (1, 20), {1: 9.0, 2: 1.5, 3: 2.0}, 40)
    assert stage_for(elsewhere, 1, 20) == 2
    assert stages_chosen(elsewhere, (1, 4), {1: 1.0, 2: 1.5, 3: 2.0}, 40)[2:] == [1] * 38


def test_disturbed_clocks_are_not_measured() -> None:
    policy: TrainingPolicy = LearnedStage()
    for _ in range(30):
        policy, _ = policy.observe(ClockFinished(2, 1, 4, 1.0, SUMS, quiet=False))
        policy, _ = policy.observe(ClockFinished(2, 1, 4, 0.0, SUMS))
    assert stage_for(policy, 1, 4) == 2
    assert isinstance(policy, LearnedStage)
    assert policy.known == {}


def test_without_nodes_of_both_kinds_the_stage_is_given() -> None:
    policy = policy_after(LearnedStage(), (1, 4), {1: 1.0, 2: 1.5, 3: 2.0}, 40)
    assert stage_for(policy, 2, 0) == 1
    assert stage_for(policy, 0, 2) == 3
    assert stage_for(policy_after(policy, (2, 0), {1: 1.0}, 20), 2, 0) == 1


def test_reasons_come_with_the_decision() -> None:
    policy: TrainingPolicy = LearnedStage()
    seconds, decisions, stages = {1: 1.0, 2: 0.9, 3: 1.1}, [], []
    for _ in range(60):
        stage = stage_for(policy, 1, 4)
        policy, (proposal,) = policy.observe(ClockFinished(stage, 1, 4, seconds[stage], SUMS))
        stages.append(stage)
        if proposal.reason:
            decisions.append((proposal.stage, proposal.reason))
    assert decisions == [
        (3, "36% of the traffic goes through reliable nodes, which stage 3 may relieve"),
        (2, "an iteration takes 0.9 s in stage 2, 1.1 s in stage 3"),
        (1, "stage 1 has not been tried with 1+4 nodes"),
        (2, "an iteration takes 1 s in stage 1, 0.9 s in stage 2, 1.1 s in stage 3"),
    ]
    assert list(dict.fromkeys(pairwise(stages))) == [
        (2, 2), (2, 3), (3, 3), (3, 2), (2, 1), (1, 1), (1, 2),
    ]  # fmt: skip
    alone = policy_after(LearnedStage(relief=1.0), (1, 1), {1: 1.0, 2: 0.5, 3: 1.0}, 10)
    assert isinstance(alone, LearnedStage)
    assert alone.why == "an iteration takes 1 s in stage 1"


def test_learned_times_survive_a_record() -> None:
    policy = policy_after(LearnedStage(), (1, 4), {1: 1.0, 2: 1.5, 3: 2.0}, 40)
    policy = policy_after(policy, (1, 20), {1: 9.0, 2: 1.5, 3: 2.0}, 40)
    another = LearnedStage().restored(policy.record())
    for nodes in ((1, 4), (1, 20), (1, 9)):
        assert stage_for(another, *nodes) == stage_for(policy, *nodes)
    assert another.record() == policy.record()
    for unlearned in (FixedStage(2), StageByRatio()):
        assert unlearned.restored(unlearned.record()) is unlearned


@dataclass(frozen=True)
class Through:
    """One stage after the other, each for some clocks, and then the last one."""

    stages: tuple[int, ...]
    clocks: int = 4
    done: int = 0

    def observe(self, report: TrainingReport) -> tuple[Through, tuple[UseStage, ...]]:
        after = replace(self, done=self.done + isinstance(report, ClockFinished))
        return after, (UseStage(self.stages[min(after.done // self.clocks, len(self.stages) - 1)]),)

    def record(self) -> list[int]:
        return []

    def restored(self, record: list[int]) -> Through:
        del record
        return self


@pytest.mark.parametrize("stages", [(3, 2, 1), (3, 1), (1, 3, 2), (1, 2)])
def test_a_stage_is_as_fast_after_others_as_from_the_start(stages: tuple[int, ...]) -> None:
    """Shards that were moved for one stage do not slow down the next."""
    nodes, size = (4, 8), 256e6
    alone = trained(FixedStage(stages[-1]), nodes, 8, size)
    after = trained(Through(stages), nodes, 4 * len(stages) + 4, size)
    assert after[-1].stage == stages[-1]
    # The last clock ends without sending what the next one would read.
    assert after[-2].seconds == pytest.approx(alone[-2].seconds, rel=0.01)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("nodes", [(8, 8), (2, 14), (1, 15)])
def test_the_best_stage_is_learned_in_the_network_of_the_paper(nodes: tuple[int, int]) -> None:
    trial = Trial.of(nodes, 60 if nodes == (8, 8) else 30)
    assert trial.seconds[trial.final] <= trial.seconds[trial.best] * 1.03
    assert trial.tried <= 20
    assert "an iteration takes" in trial.decisions[-1]
    assert nodes != (8, 8) or trial.behind <= MAX_BEHIND
