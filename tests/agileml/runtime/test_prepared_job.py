"""A trainer is loaded in a child process, which answers with the shape of the job or with what went
wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agileml.apps.registry import TrainerSource
from agileml.errors import AgileMLError, BadArgument, TrainerFailed
from agileml.job import Stopping, TrainingJob
from agileml.roles.node import JobSettings
from agileml.runtime.prepared_job import isolated_shape_of, shape_of

TRAINER = """
import os
import sys
import shape_helper
from agileml.apps.mf import MatrixFactorization

print("a trainer may print")

def trainer(fail=""):
    if fail == "raise":
        raise ValueError("no data")
    if fail == "exit":
        print("out of memory", file=sys.stderr, flush=True)
        os._exit(7)
    return MatrixFactorization(users=int(os.environ["USERS"]), items=50, ratings=1000, rank=shape_helper.RANK)
"""


def job(source: TrainerSource) -> TrainingJob:
    return TrainingJob(source, 1, 0, Stopping(clocks=3), JobSettings(partitions=2))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shape_trainer.py").write_text(TRAINER)
    (tmp_path / "shape_helper.py").write_text("RANK = 3\n")
    return tmp_path


@pytest.mark.parametrize("target", ["shape_trainer:trainer", "shape_trainer.py"])
def test_the_shape_without_any_change_of_this_process(folder: Path, target: str) -> None:
    path = str(folder / target) if target.endswith(".py") else target
    before = dict(os.environ), list(sys.path), set(sys.modules)
    shape = isolated_shape_of(job(TrainerSource(path)), folder, {"USERS": "60"})
    assert (dict(os.environ), list(sys.path)) == before[:2]
    assert not {"shape_trainer", "shape_helper"} & (set(sys.modules) - before[2])
    assert {spec.name: spec.shape for spec in shape.layout.specs} == {
        "users": (60, 3),
        "items": (50, 3),
    }


def test_it_is_the_shape_that_this_process_would_find(tmp_path: Path) -> None:
    built_in = job(TrainerSource("mf", {"users": 60, "items": 50, "ratings": 1000}))
    assert isolated_shape_of(built_in, tmp_path, {}) == shape_of(built_in)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (
            TrainerSource("shape_trainer:trainer", {"fail": "raise"}),
            TrainerFailed,
            "trainer: ValueError: no data",
        ),
        (
            TrainerSource("shape_trainer:trainer", {"fail": "exit"}),
            TrainerFailed,
            "ended with status 7: out of memory",
        ),
        (
            TrainerSource("shape_trainer:trainer", {"size": 3}),
            BadArgument,
            "unexpected keyword argument 'size'|size",
        ),
        (TrainerSource("mf", {"rank": 0}), AgileMLError, "rank is 0"),
    ],
)
def test_what_goes_wrong_in_the_child_is_raised_here(
    folder: Path, source: TrainerSource, error: type[AgileMLError], message: str
) -> None:
    with pytest.raises(error, match=message):
        isolated_shape_of(job(source), folder, {"USERS": "60"})


_INTERRUPTED = """\
import os, signal, sys, threading, time
from pathlib import Path
from agileml.apps.registry import TrainerSource
from agileml.engines.local.fleet import Processes
from agileml.job import JobSettings, Stopping, TrainingJob
from agileml.runtime.prepared_job import isolated_shape_of

signal.signal(signal.SIGINT, lambda *_: None)

def interrupt():
    while True:
        os.killpg(0, signal.SIGINT)
        time.sleep(0.01)

threading.Thread(target=interrupt, daemon=True).start()
source = TrainerSource("mf", {"users": 60, "items": 50, "ratings": 1000})
shape = isolated_shape_of(TrainingJob(source, 1, 0, Stopping(clocks=3), JobSettings(partitions=2)), Path.cwd(), {})
processes = Processes()
processes.close()
print(len(shape.layout.specs))
"""


def test_a_ctrl_c_does_not_reach_a_process_that_starts(tmp_path: Path) -> None:
    """Python begins with its own handler: a Ctrl-C ended these processes before they could ignore
    it.
    """
    ended = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED],
        cwd=tmp_path,
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("2\n", "")
