"""The trainer that `init --trainer` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.files.job.reader import load
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.trials.test_trainer import copied

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.usefixtures("few_windows")]


@pytest.mark.slow
def test_the_command_writes_a_trainer_and_its_job(approved: Approved) -> None:
    copied("features")
    ended = spotctl("init", "features.py", "--trainer")
    assert ended.code == 0, ended.err
    assert "3 steps of features.py and of its trainer" in ended.out
    assert load(Path("job.yaml")).program.app == "features_trainer.py:trainer"  # type: ignore[union-attr]
    assert "stop: {clocks: 640}" in Path("job.yaml").read_text()
    assert spotctl("plan", "job.yaml").code == 0
    Path("job.yaml").unlink()
    approved(spotctl("init", "features.py", "--trainer"))


@pytest.mark.parametrize("name", ["adjusted", "drawn"])
def test_the_command_lists_lines_and_writes_nothing(name: str, approved: Approved) -> None:
    path = copied(name)
    approved(spotctl("init", str(path), "--trainer"))
    assert not Path("job.yaml").exists()
    assert not Path(f"{name}_trainer.py").exists()
