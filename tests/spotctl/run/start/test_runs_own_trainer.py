"""Trainers of the user's own: each job finds its own code, data, variables and setup, and changes
no other's.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from spotctl.files.job.reader import load
from spotctl.home import config
from spotctl.log.state import RunState
from spotctl.run.following import RunObserver
from spotctl.run.start.runs import launch
from tests.samples import LAUNCH
from tests.spotctl.command_line import spotctl

TRAINER = """
import os
from agileml.apps.mf import MatrixFactorization

class Mine(MatrixFactorization):
    def __init__(self, rank: int) -> None:
        with open(os.environ["DATA_SIZES"]) as file:
            users = int(file.read())
        assert os.environ["COLOUR"] == "red"
        assert os.environ["TOKEN"] == "hush"
        super().__init__(users=users, items=50, ratings=1000, rank=rank, rate=0.2)
"""

JOB = """\
name: mine
kind: agileml
app: {app}
args: {{rank: 4}}
stop: {{clocks: 5}}
setup: test "$COLOUR" = red && echo ready
env: {{COLOUR: red}}
secrets: [TOKEN]
data: {{sizes: sizes.txt}}
resources: {{clouds: [local], types: [c4.2xlarge], machines: 1..1}}
strategy: on-demand
local: {{speed: 600}}
"""


@LAUNCH
@pytest.mark.sampled(1)
@pytest.mark.parametrize("app", ["own_trainer:Mine", "own_trainer.py"])
def test_a_trainer_of_ones_own(tmp_path: Path, app: str) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "own_trainer.py").write_text(TRAINER)
    (folder / "sizes.txt").write_text("100")
    (folder / "job.yaml").write_text(JOB.format(app=app))
    before = dict(os.environ), list(sys.path), Path.cwd()
    ended = spotctl("launch", folder / "job.yaml", "--yes", "--json", TOKEN="hush")
    assert (ended.code, ended.json["message"]) == (0, f"5 clocks, loss {ended.json['loss']:.4g}")
    assert (dict(os.environ), list(sys.path), Path.cwd()) == before, (
        "a job changes nothing of the launcher's process"
    )
    assert "own_trainer" not in sys.modules
    assert spotctl("logs", "mine").out.count(": ready\n") == 2
    log = b"".join(path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert b"hush" not in log, "a secret is written nowhere"


FAILS_LATER = """
from agileml.apps.mf import MatrixFactorization

class Failing(MatrixFactorization):
    def init(self, rng):
        print("in init")
        return super().init(rng)

    def step(self, shard, lo, hi, params, clock, rng):
        if clock == 2:
            raise ValueError("clock 2 is bad")
        super().step(shard, lo, hi, params, clock, rng)
"""


@LAUNCH
def test_what_a_trainer_prints_and_where_it_failed_is_in_the_log_of_the_run(tmp_path: Path) -> None:
    trainer = tmp_path / "failing.py"
    trainer.write_text(FAILS_LATER)
    job = SIDE_BY_SIDE.format(name="noisy", app="failing.py")
    (tmp_path / "job.yaml").write_text(job)
    ended = spotctl("launch", tmp_path / "job.yaml", "--yes", "--json")
    assert ended.json["outcome"] == "failed"
    assert f"ValueError: clock 2 is bad ({trainer}, line 11, in step)" in ended.json["message"]
    logged = [line.partition(": ")[2] for line in spotctl("logs", "noisy").out.splitlines()]
    assert "in init" in logged
    assert f'  File "{trainer}", line 11, in step' in logged
    assert "ValueError: clock 2 is bad" in logged
    assert not [line for line in logged if "agileml" in line and "File" in line], (
        "frames of this package tell nothing"
    )


SIDE_BY_SIDE = """\
name: {name}
kind: agileml
app: {app}
stop: {{clocks: 5}}
env: {{COLOUR: {name}}}
resources: {{clouds: [local], types: [c4.2xlarge], machines: 1..1}}
strategy: on-demand
local: {{speed: 600}}
"""

WITH_HELPER = """
import os
import model
from agileml.apps.mf import MatrixFactorization

def trainer():
    assert os.environ["COLOUR"] == model.COLOUR, (os.environ["COLOUR"], model.COLOUR)
    return MatrixFactorization(users=60, items=50, ratings=1000, rank=model.RANK, rate=0.2)
"""


def job_with_helper(folder: Path, name: str, rank: int, app: str) -> Path:
    """A trainer that imports a `model.py` from its own folder."""
    folder.mkdir()
    (folder / "trainer.py").write_text(WITH_HELPER)
    (folder / "model.py").write_text(f"COLOUR, RANK = {name!r}, {rank}\n")
    path = folder / "job.yaml"
    path.write_text(SIDE_BY_SIDE.format(name=name, app=app))
    return path


@LAUNCH
@pytest.mark.sampled(1)
@pytest.mark.parametrize("app", ["trainer:trainer", "trainer.py"])
def test_two_trainings_side_by_side_each_import_their_own_module(tmp_path: Path, app: str) -> None:
    files = [
        job_with_helper(tmp_path / name, name, rank, app)
        for name, rank in (("red", 4), ("blue", 8))
    ]
    ended = spotctl("launch", *files, "--yes", "--json")
    assert ended.code == 0, ended.err
    assert [run["message"] for run in ended.json] == [
        f"5 clocks, loss {run['loss']:.4g}" for run in ended.json
    ]


@LAUNCH
def test_a_running_training_changes_nothing_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines that another job rents meanwhile start with the process's variables."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = dict(os.environ), list(sys.path), Path.cwd()
    seen = []

    def look(_: RunState) -> None:
        seen.append((dict(os.environ), list(sys.path), Path.cwd()))

    job = load(job_with_helper(tmp_path / "red", "red", 4, "trainer.py"))
    _, ended = launch(job, config.load(os.environ), RunObserver(on_turn=look))
    assert ended.message.startswith("5 clocks, loss ")
    assert all(one == before for one in seen)


FAILING = """\
name: failing
kind: agileml
app: mf
stop: {clocks: 5}
setup: echo "no such package $TOKEN"; exit 9
secrets: [TOKEN]
resources: {clouds: [local], types: [c4.2xlarge], machines: 1..1}
strategy: on-demand
local: {speed: 600}
"""


@LAUNCH
def test_nodes_that_exit_at_once_are_reported_with_the_end_of_their_output(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(FAILING)
    ended = spotctl("launch", tmp_path / "job.yaml", "--yes", "--json", TOKEN="hush")
    assert (ended.code, ended.json["outcome"]) == (1, "failed")
    # Two nodes may run when the first of them fails; the one that is started after it is the last.
    assert re.match("[23] nodes exited unexpectedly; the last was ", ended.json["message"])
    assert ended.json["message"].endswith(" with status 9: no such package ***"), (
        "and secrets are hidden"
    )


def test_a_trainer_that_cannot_be_loaded_fails_the_run_before_anything_is_rented(
    tmp_path: Path,
) -> None:
    path = job_with_helper(tmp_path / "red", "red", 4, "trainer.py")
    (tmp_path / "red" / "model.py").unlink()
    ended = spotctl("launch", path, "--yes", "--json")
    assert (ended.code, ended.json["outcome"]) == (1, "failed")
    assert "trainer.py: ModuleNotFoundError: No module named 'model'" in ended.json["message"]
    assert ended.json["cost_usd"] == 0
