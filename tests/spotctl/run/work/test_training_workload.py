"""The engine of trainings reads these keys of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.files.job.reader import loads
from spotctl.run.work.training_workload import training_job
from tests.spotctl.files.job.test_spec_consumers import TRAINED, TRAINING


@pytest.mark.parametrize("key", TRAINED)
def test_the_training_engine_reads(key: str) -> None:
    def given(text: str) -> object:
        return training_job(loads(text, Path("job.yaml")))

    assert given(TRAINING) == given(TRAINING)
    assert given(TRAINING) != given(TRAINING.replace(*TRAINED[key]))
