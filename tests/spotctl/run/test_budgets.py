"""No run exceeds its budget, whatever happens; `python -m tests.spotctl.run.budgets` plays thousands."""

from __future__ import annotations

import pytest

from spotctl.runlog.outcomes import BUDGET, DONE
from tests.spotctl.run.budgets import play

SEEDS = range(40)


@pytest.mark.parametrize("seeds", [SEEDS[part::4] for part in range(4)])
def test_no_budget_is_exceeded(seeds: range) -> None:
    ends = {play(seed).outcome for seed in seeds}
    assert ends >= {BUDGET, DONE}, "the runs are too much alike"
