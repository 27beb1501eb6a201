"""`agileml.train` in scripts and notebooks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agileml
from agileml import reference, train
from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.chaos import Script
from agileml.errors import AgileMLError, BadArgument, BadTrainer
from agileml.job import Convergence, Listener, Trained, TrainingJob
from agileml.policies.stage import FixedStage, LearnedStage
from agileml.runtime.output import Output
from agileml.training import parse_nodes, source_of
from tests.agileml.toys import Decades, Scripted

SCRIPT = """
import numpy as np
import agileml

class Counts:
    def __init__(self, step):
        self.by = step

    def init(self, rng):
        return {"w": np.zeros((10, 2), np.float32)}

    def shards(self):
        return [range(8)] * 4

    def step(self, shard, lo, hi, params, clock, rng):
        params.update("w", [lo], np.full((1, 2), self.by, np.float32))

    def loss(self, params, sample):
        return float(params.read("w").sum())

trained = agileml.train(Counts(2), nodes="1+2", clocks=3, deterministic=True, heartbeat_timeout=20.0)
print(trained.clocks, trained.counters.lost, trained.model["w"].sum())
"""


def test_a_script_can_train_its_own_class(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    # 3 clocks, 4 shards, 8 chunks of one item, 2 numbers, by 2
    assert done.stdout.split() == ["3", "0", "384.0"]
    assert done.stderr == ""


class Seldom(Decades):
    """Its loss takes long."""

    loss_every = 3


class AtLeisure(Decades):
    """Its loss may take a tenth of the time of training."""

    loss_every = 0


def test_the_loss_is_computed_as_often_as_the_trainer_says() -> None:
    for trainer, clocks in ((Seldom((3,) * 4), [1, 4, 7]), (AtLeisure((6,) * 4), [1, 5])):
        done = agileml.train(trainer, engine="sim", clocks=8, loss_sample=24)
        assert [clock for clock, loss in enumerate(done.history, 1) if loss is not None] == clocks
        assert done.loss is not None


class Told:
    """An engine that only records its arguments."""

    def run(self, job: TrainingJob, script: Script, listener: Listener, output: Output) -> Trained:  # noqa: ARG002
        self.job = job
        raise AgileMLError("looked at")


def job_of(trainer: Any, **options: Any) -> TrainingJob:  # noqa: ANN401
    engine = Told()
    with pytest.raises(AgileMLError, match="looked at"):
        agileml.train(trainer, engine=engine, **options)
    return engine.job


def test_options_reach_their_settings() -> None:
    job = job_of(
        "mf",
        nodes="2+6",
        clocks=7,
        loss=0.5,
        seed=3,
        slack=None,
        heartbeat_timeout=2.0,
        checkpoint_every=4,
    )
    assert (job.reliable, job.transient, job.source) == (2, 6, TrainerSource("mf"))
    assert (job.stopping.clocks, job.stopping.loss, job.stopping.seconds) == (7, 0.5, None)
    assert (job.settings.seed, job.settings.slack, job.settings.deterministic) == (3, None, False)
    assert (job.heartbeat_timeout, job.checkpoint_every) == (2.0, 4)


def test_nodes_receive_a_copy_of_an_object() -> None:
    source = source_of(Decades((3,) * 4, chunk=2))
    copy = source.load()
    assert (
        source.code()
        == source_of(Decades((3,) * 4, chunk=2)).code()
        != source_of(Decades((3,) * 5)).code()
    )
    theirs, ours = reference.run(copy, 2, 0), reference.run(Decades((3,) * 4, chunk=2), 2, 0)
    assert reference.model_digest(theirs) == reference.model_digest(ours)


def test_a_trainer_source_is_passed_on() -> None:
    source = TrainerSource("mlr", {"seed": 1})
    assert source_of(source) is source


@pytest.mark.parametrize(
    ("trainer", "problem"),
    [
        (Decades, r"Decades is a class; pass an object: Decades\(...\)"),
        (object(), r"object lacks init\(\)"),
        (
            Scripted(step=threading.Lock()),
            r"Scripted cannot be copied to the nodes.*TrainerSource\('module:Class'",
        ),
    ],
)
def test_a_trainer_that_cannot_be_copied_is_refused(trainer: Any, problem: str) -> None:  # noqa: ANN401
    with pytest.raises(BadTrainer, match=problem):
        source_of(trainer)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [("1+3", (1, 3)), (" 2 + 0 ", (2, 0)), ("0+3", (0, 3)), ("10+100", (10, 100))],
)
def test_nodes(text: str, nodes: tuple[int, int]) -> None:
    assert parse_nodes(text) == nodes


@pytest.mark.parametrize("text", ["", "3", "0+0", "-1+3", "1+", "1+3+4", "a+b", "1.0+3", "٣+3"])
def test_invalid_nodes_are_refused(text: str) -> None:
    with pytest.raises(BadArgument, match="at least one node"):
        parse_nodes(text)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: agileml.train("mf"), "no stopping criterion"),
        (lambda: agileml.train("mf", clocks=0), "clocks is 0"),
        (
            lambda: agileml.train("mf", clocks=1, engine="cloud"),
            "unknown engine 'cloud'; choose one of local",
        ),
        (
            lambda: agileml.train("mf", clocks=1, sead=1),  # type: ignore[call-arg]
            "unknown option 'sead'; choose from .*seconds",
        ),
    ],
)
def test_invalid_arguments_are_refused(call: Callable[[], Trained], problem: str) -> None:
    with pytest.raises(BadArgument, match=problem):
        call()


def test_the_package_loads_train_lazily() -> None:
    code = "import sys, agileml; assert 'numpy' not in sys.modules; agileml.train; agileml.train"
    subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True,
    )
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        agileml.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"slack": -1}, "slack is -1; it must be a whole number of at least 0"),
        ({"slack": 1.5}, "slack is 1.5"),
        ({"slack": "asp"}, "slack is 'asp'"),
        ({"slack": True}, "slack is True"),
        ({"slack": 1, "deterministic": True}, "deterministic with slack 1"),
        ({"slack": None, "deterministic": True}, "deterministic with slack None"),
        (
            {"heartbeat_timeout": 0},
            r"heartbeat_timeout is 0; it must be a finite number from 0.1 to",
        ),
        ({"heartbeat_timeout": nan}, "heartbeat_timeout is nan"),
        ({"heartbeat_timeout": inf}, "heartbeat_timeout is inf"),
        ({"heartbeat_timeout": "1"}, "heartbeat_timeout is '1'"),
        ({"heartbeat_timeout": None}, "heartbeat_timeout is None"),
        ({"hang_timeout": 0.0}, "hang_timeout is 0.0"),
        ({"startup_timeout": -1}, "startup_timeout is -1"),
        (
            {"checkpoint_every": -1},
            "checkpoint_every is -1; it must be a whole number of at least 0",
        ),
        ({"checkpoint_every": 2.5}, "checkpoint_every is 2.5"),
        ({"chaos": "at clock 20 explode"}, "chaos, character 13"),
        ({"chaos": 7}, "chaos is 7; it must be a text such as"),
        ({"stage": "fast"}, "stage is 'fast'; it must be auto, 1, 2 or 3, or a policy"),
        ({"stage": 4}, "stage is 4"),
        ({"stage": 1.0}, "stage is 1.0"),
        ({"stage": True}, "stage is True"),
        ({"thresholds": (1, 15)}, r"thresholds is \(1, 15\)"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"partitions": 0}, "partitions is 0"),
        (
            {"partitions": 10**7},
            "partitions is 10000000; it must be a whole number from 1 to 100,000",
        ),
        ({"deterministic": "yes"}, "deterministic is 'yes'; it must be True or False"),
        ({"loss_sample": -1}, "loss_sample is -1"),
        ({"keeps": 0}, "keeps is 0"),
        ({"clocks": 0}, "clocks is 0"),
        ({"clocks": -3}, "clocks is -3"),
        ({"clocks": 2.5}, "clocks is 2.5"),
        ({"clocks": "5"}, "clocks is '5'"),
        ({"clocks": True}, "clocks is True"),
        ({"seconds": 0}, "seconds is 0"),
        ({"seconds": inf}, "seconds is inf"),
        ({"seconds": "10"}, "seconds is '10'"),
        ({"loss": nan}, "loss is nan"),
        ({"converged": 2.0}, "converged is 2.0"),
        ({"converged": "soon"}, "converged is 'soon'"),
        ({"nodes": 3}, "nodes is 3; write reliable"),
        ({"nodes": None}, "nodes is None"),
        ({"nodes": "1+99999"}, "the number of transient nodes is 99999"),
        ({"engine": "cloud"}, "unknown engine 'cloud'; choose one of local, ray, sim"),
        ({"engine": None}, "unknown engine None"),
        ({"listener": 5}, "listener is 5"),
    ],
)
def test_an_argument_that_cannot_work_is_refused_with_its_value(options: Any, problem: str) -> None:  # noqa: ANN401
    with pytest.raises(BadArgument, match=problem):
        agileml.train("mf", **{"clocks": 3, "engine": Told(), **options})


@pytest.mark.parametrize(
    ("option", "given", "made"),
    [
        ("stage", "auto", LearnedStage()),
        ("stage", 2, FixedStage(2)),
        ("stage", "3", FixedStage(3)),
        ("stage", FixedStage(1), FixedStage(1)),
        ("heartbeat_timeout", np.float64(2.0), 2.0),
        ("checkpoint_every", np.int64(4), 4),
    ],
)
def test_short_forms_and_numpy_numbers_are_accepted(
    option: str, given: object, made: object
) -> None:
    job = job_of("mf", clocks=3, **{option: given})
    assert getattr(job, option) == made
    assert type(getattr(job, option)) is type(made)


def test_convergence_may_be_given_as_a_number() -> None:
    assert job_of("mf", converged=0.01).stopping.converged == Convergence(0.01)


def test_faults_may_be_given_as_text() -> None:
    log: list[Iteration] = []
    trained = agileml.train(
        "mf", engine="sim", clocks=4, chaos="at clock 2 kill 1", seed=3, listener=log.append
    )
    assert trained.failures == 1
    assert log[-1].transient == 2


def test_the_example_of_a_trainer_of_ones_own_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    trained = train("examples/line_fit.py", nodes="1+2", engine="sim", clocks=100)
    assert trained.model["line"][0] == pytest.approx([2.5, -0.7], abs=0.1)
