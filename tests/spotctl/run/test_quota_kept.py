"""A run stays within its quota while it replaces machines that were warned."""

from __future__ import annotations

from pathlib import Path

import pytest

from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import CommonQuota, MachineLimits
from bidbrain.strategies.base import Rent
from bidbrain.strategies.standard import Standard
from spotctl.planning.facts import OVERHEADS
from spotctl.run.turn.reconcile import StrategyTerms
from tests.spotctl.run.worlds import LEASE_TIMES, MARKETS, OFFERS, RULE, life

BASELINE = Rent(OFFERS[0], 4, None)


@pytest.mark.parametrize("least", [1, 4])
def test_replacements_wait_until_warned_machines_are_gone(tmp_path: Path, least: int) -> None:
    warned = {21: (MARKETS[0], True), 61: (MARKETS[1], True)}
    one = life(tmp_path, warned, rounds=1000)
    limits = MachineLimits(least, 4, {}, spot=(CommonQuota(16, dict.fromkeys(MARKETS, 4)),))
    one.terms = StrategyTerms(OFFERS, BASELINE, 16.0, 100.0)
    one.strategy = Decider(
        OFFERS,
        BASELINE,
        None,
        16.0,
        limits,
        OVERHEADS,
        None,
        Standard(),
        RULE,
        LEASE_TIMES.committed,
    )
    assert one.run().outcome == "done"
    machines = one.cloud.everything
    assert len(machines) == 12
    for started in {machine.started for machine in machines}:
        running = [
            each
            for each in machines
            if each.started <= started and (each.ended is None or each.ended > started)
        ]
        assert len(running) <= 4
