"""`agileml.train` in scripts and notebooks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agileml
from agileml import reference
from agileml.apps.registry import TrainerSource
from agileml.engines.chaos import Chaos
from agileml.errors import AgileMLError, BadArgument, BadTrainer
from agileml.job import Listener, Trained, TrainingJob
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


class Told:
    """An engine that only records its arguments."""

    def run(self, job: TrainingJob, chaos: Chaos, listener: Listener) -> Trained:  # noqa: ARG002
        self.job = job
        raise AgileMLError("looked at")


def job_of(trainer: Any, **options: Any) -> TrainingJob:  # noqa: ANN401
    engine = Told()
    with pytest.raises(AgileMLError, match="looked at"):
        agileml.train(trainer, engine=engine, **options)
    return engine.job


def test_options_reach_their_settings() -> None:
    job = job_of("mf", nodes="2+6", clocks=7, loss=0.5, seed=3, slack=None, heartbeat_timeout=2.0, checkpoint_every=4)
    assert (job.reliable, job.transient, job.source) == (2, 6, TrainerSource("mf"))
    assert (job.stopping.clocks, job.stopping.loss, job.stopping.seconds) == (7, 0.5, None)
    assert (job.settings.seed, job.settings.slack, job.settings.deterministic) == (3, None, False)
    assert (job.heartbeat_timeout, job.checkpoint_every) == (2.0, 4)


def test_nodes_receive_a_copy_of_an_object() -> None:
    source = source_of(Decades((3,) * 4, chunk=2))
    copy = source.load()
    assert source.code() == source_of(Decades((3,) * 4, chunk=2)).code() != source_of(Decades((3,) * 5)).code()
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
        (Scripted(step=threading.Lock()), r"Scripted cannot be copied to the nodes.*TrainerSource\('module:Class'"),
    ],
)
def test_a_trainer_that_cannot_be_copied_is_refused(trainer: Any, problem: str) -> None:  # noqa: ANN401
    with pytest.raises(BadTrainer, match=problem):
        source_of(trainer)


@pytest.mark.parametrize(("text", "nodes"), [("1+3", (1, 3)), (" 2 + 0 ", (2, 0)), ("10+100", (10, 100))])
def test_nodes(text: str, nodes: tuple[int, int]) -> None:
    assert parse_nodes(text) == nodes


@pytest.mark.parametrize("text", ["", "3", "0+3", "-1+3", "1+", "1+3+4", "a+b", "1.0+3", "٣+3"])
def test_invalid_nodes_are_refused(text: str) -> None:
    with pytest.raises(BadArgument, match="at least one reliable"):
        parse_nodes(text)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: agileml.train("mf"), "no stopping criterion"),
        (lambda: agileml.train("mf", clocks=0), "clocks is 0"),
        (lambda: agileml.train("mf", clocks=1, engine="cloud"), "unknown engine 'cloud'; choose one of local"),
        (lambda: agileml.train("mf", clocks=1, sead=1), "unknown option 'sead'; choose from seconds"),  # type: ignore[call-arg]
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
