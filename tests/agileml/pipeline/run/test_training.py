"""A model of the user that fails: one line says at what, and where in the user's code."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agileml.errors import JobFailed, TrainerFailed
from agileml.pipeline.builtin import Dense, squared_error
from agileml.pipeline.model.base import Array, DrawKey, PipelineModel, Stash, Weights
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.local import train_local, train_simulated
from agileml.pipeline.run.training import PipelinePlan
from spotctl.lab.profiler import profiled
from tests.spotctl.command_line import spotctl

SGD = Optimizer("sgd", 0.01)
HERE = r"test_training\.py, line \d+, in "


@dataclass(frozen=True)
class Odd:
    """Fails in one of its functions, or returns a gradient of another shape."""

    fails: str = ""
    gradient: int = 3

    def initial(self, key: DrawKey) -> Weights:
        del key
        self._may_fail("initial")
        return (np.zeros(3),)

    def forward(self, weights: Weights, inputs: Array, key: DrawKey) -> tuple[Array, Stash]:
        del weights, key
        self._may_fail("forward")
        return inputs, None

    def backward(self, weights: Weights, stash: Stash, gradient: Array) -> tuple[Array, Weights]:
        del weights, stash
        self._may_fail("backward")
        return gradient, (np.zeros(self.gradient),)

    def _may_fail(self, function: str) -> None:
        if self.fails == function:
            raise ValueError("as told")


def numbers(number: int) -> tuple[Array, Array]:
    drawn = np.random.default_rng(number).standard_normal((4, 8))
    return drawn, drawn


def four(number: int) -> tuple[Array, Array]:
    return numbers([0, 1, 2, 3][number])


def inputs_only(number: int) -> Any:  # noqa: ANN401  # what a wrong function returns
    return numbers(number)[0]


# What a wrong function returns.
def no_gradient(outputs: Array, targets: Array) -> Any:  # noqa: ANN401
    return squared_error(outputs, targets)[0]


MODEL = PipelineModel([Dense(8, 8), Odd()], squared_error, numbers)
WRONG = [
    (
        replace(MODEL, layers=[Dense(8, 8), Odd("initial")]),
        rf"layer 1: ValueError: as told \(.*{HERE}_may_fail\)",
    ),
    (
        replace(MODEL, layers=[Dense(8, 8), Odd("forward")]),
        rf"layer 1, forward pass of microbatch 0: ValueError: as told \(.*{HERE}_may_fail\)",
    ),
    (
        replace(MODEL, layers=[Dense(8, 8), Odd("backward")]),
        rf"layer 1, backward pass of microbatch 0: ValueError: as told \(.*{HERE}_may_fail\)",
    ),
    (
        # It could be added to the weights.
        replace(MODEL, layers=[Odd(gradient=1), Dense(8, 8)]),
        re.escape(
            "layer 0, backward pass of microbatch 0: ValueError: the gradients have shapes [(1,)]; "
            "they must be"
        )
        + re.escape(" those of the weights, [(3,)]"),
    ),
    (
        replace(MODEL, layers=[Dense(8, 7), Dense(8, 8)]),
        "layer 1, forward pass of microbatch 0: ValueError: matmul",
    ),
    (
        replace(MODEL, data=four),
        rf"microbatch 4: IndexError: list index out of range \(.*{HERE}four\)",
    ),
    (replace(MODEL, data=inputs_only), "microbatch 0: ValueError: too many values to unpack"),
    (
        replace(MODEL, loss=no_gradient),
        "loss of microbatch 0: TypeError: cannot unpack non-iterable float",
    ),
]


@pytest.mark.parametrize(("model", "message"), WRONG)
def test_a_training_says_what_failed(model: PipelineModel, message: str) -> None:
    with pytest.raises((JobFailed, TrainerFailed), match=message):
        train_simulated(model, SGD, PipelinePlan(3, 2), 1)


@pytest.mark.parametrize("number", [2, 5])
def test_processes_say_it_too_and_print_no_traceback(
    number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    model, message = WRONG[number]
    with pytest.raises(JobFailed, match=message):
        train_local(model, SGD, PipelinePlan(3, 2), 1)
    assert "Traceback" not in capfd.readouterr().err


FILE = """
from tests.agileml.pipeline.run.test_training import MODEL, WRONG

def few(microbatch):
    return WRONG[5][0]

def wrong(microbatch):
    return WRONG[2][0]
"""


def test_a_profile_says_it_and_needs_one_microbatch_only(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(FILE)
    refused = spotctl(
        "lab",
        "parallel",
        "profile",
        f"{tmp_path / 'own.py'}:wrong",
        "--microbatch",
        "4",
        "--repeats",
        "1",
    )
    assert refused.code == 1
    assert re.search(rf"layer 1: ValueError: as told \(.*{HERE}_may_fail\)", refused.error)
    (profile,) = profiled("few", lambda _: WRONG[5][0], [4], repeats=1)
    assert len(profile.layers) == 2
