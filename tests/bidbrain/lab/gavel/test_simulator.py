"""The fast simulation of a cluster against a slow one, second by second."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.gavel.baselines import Policy
from bidbrain.gavel.policies import policy_named
from bidbrain.lab.gavel.dispatch import ByShares, DispatchRules
from bidbrain.lab.gavel.engine import simulate
from bidbrain.lab.gavel.workload import ClusterSimulation
from tests.bidbrain.gavel.clusters import (
    Whim,
    play_slowly,
    random_scenario,
)


@pytest.mark.parametrize("sharing", [False, True])
@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), beyond=st.booleans(), periodic=st.booleans())
def test_fast_and_slow_simulation_agree_exactly(
    sharing: bool, seed: int, beyond: bool, periodic: bool
) -> None:
    asked = random_scenario(seed, sharing=sharing)
    agree(asked, Whim(), DispatchRules(beyond, periodic))


@pytest.mark.parametrize("policy", ["max-min-fairness", "makespan", "max-throughput"])
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), agnostic=st.booleans())
def test_fast_and_slow_simulation_agree_exactly_under_policies(
    policy: str, seed: int, agnostic: bool
) -> None:
    agree(
        random_scenario(seed, sharing=False),
        policy_named(policy, agnostic=agnostic),
        DispatchRules(),
    )


def agree(asked: ClusterSimulation, policy: Policy, rules: DispatchRules) -> None:
    fast = simulate(asked, ByShares(asked, policy, rules))
    slow = play_slowly(asked, policy, rules)
    assert (len(fast.round_start), fast.allocations) == (slow.rounds, slow.allocations)
    assert {
        int(m): float(fast.finish[m]) for m in np.flatnonzero(np.isfinite(fast.finish))
    } == slow.finish
    assert {m: int(fast.moves[m]) for m in slow.moves} == slow.moves
    assert fast.busy_worker_seconds.sum() == pytest.approx(slow.busy)
    for (m, j), seconds in slow.held.items():
        assert fast.held_seconds[m, j] == pytest.approx(seconds)
    assert fast.held_seconds.sum() == pytest.approx(sum(slow.held.values()))
