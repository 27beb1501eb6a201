"""Names of strategies."""

from __future__ import annotations

from pathlib import Path

from bidbrain.strategies import names as strategies
from spotctl.files.job import spec
from spotctl.files.job.conversions import STRATEGIES
from spotctl.files.job.reader import loads
from tests.spotctl.files.refused_jobs import TRAINING


def test_every_strategy_of_a_job_may_be_named_and_no_other() -> None:
    drawn = [
        name
        for name in STRATEGIES
        if name not in (spec.AUTO, strategies.DEADLINE, strategies.REGIONS)
    ]
    assert all(strategies.known(name) for name in drawn)
    for name in drawn:
        assert loads(f"{TRAINING}strategy: {name}\n", Path("job.yaml")).strategy == name
