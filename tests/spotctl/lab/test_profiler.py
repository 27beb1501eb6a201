from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from agileml.errors import JobFailed
from agileml.pipeline.model.base import (
    Array,
    DrawKey,
    MicrobatchLoss,
    PipelineModel,
    Stash,
    Weights,
)
from agileml.pipeline.profile.model_profile import OPTIMIZER_STATE, LayerCost
from spotctl.lab import profiler
from spotctl.lab.profiler import scale_to_whole_model


class WorkClock:
    """A clock that only work moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def seconds(self, work: Callable[[], object]) -> float:
        begun = self.now
        work()
        return self.now - begun


@dataclass(frozen=True)
class Timed:
    """A layer that changes nothing and takes time."""

    watch: WorkClock
    forward_takes: float
    backward_takes: float

    def initial(self, key: DrawKey) -> Weights:
        del key
        return (np.zeros(2),)

    def forward(self, weights: Weights, inputs: Array, key: DrawKey) -> tuple[Array, Stash]:
        del weights, key
        self.watch.now += self.forward_takes
        return inputs, inputs

    def backward(self, weights: Weights, stash: Stash, gradient: Array) -> tuple[Array, Weights]:
        del stash
        self.watch.now += self.backward_takes
        return gradient, weights


def timed(watch: WorkClock, loss: MicrobatchLoss) -> PipelineModel:
    layers = [Timed(watch, 3.0, 6.0), Timed(watch, 1.0, 2.0)]
    return PipelineModel(
        layers, loss, lambda number: (np.full((2, 2), float(number)), np.zeros((2, 2)))
    )


def slow_loss(watch: WorkClock, outputs: Array, targets: Array) -> tuple[float, Array]:
    watch.now += 12.0
    return 1.0, outputs - targets


def no_loss(outputs: Array, targets: Array) -> tuple[float, Array]:
    return float("nan"), outputs - targets


def cost(forward: float, backward: float) -> LayerCost:
    return LayerCost(
        "layer",
        forward,
        backward,
        32.0,
        32.0,
        16.0,
        update_seconds=dict.fromkeys(OPTIMIZER_STATE, 1.0),
    )


ALONE = [cost(3.0, 6.0), cost(1.0, 2.0)]


def test_layers_share_what_a_node_takes_for_all_of_them() -> None:
    watch = WorkClock()
    scaled = scale_to_whole_model(timed(watch, partial(slow_loss, watch)), ALONE, watch.seconds)
    # A microbatch takes 12 in its layers, and as long in the loss.
    assert [(cost.forward_seconds, cost.backward_seconds) for cost in scaled] == [
        (6.0, 12.0),
        (2.0, 4.0),
    ]
    # By this clock an update takes no time: the figure of the single layers stays.
    assert [cost.update_seconds for cost in scaled] == [cost.update_seconds for cost in ALONE]


def test_a_model_that_memory_does_not_hold_keeps_the_times_of_its_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = WorkClock()
    monkeypatch.setattr(profiler, "_free_memory", lambda: 2 * (5 * 16.0 + 32.0) - 1)
    assert (
        scale_to_whole_model(timed(watch, partial(slow_loss, watch)), ALONE, watch.seconds) == ALONE
    )
    monkeypatch.setattr(profiler, "_free_memory", lambda: 3 * (5 * 16.0 + 32.0))
    assert (
        scale_to_whole_model(timed(watch, partial(slow_loss, watch)), ALONE, watch.seconds) != ALONE
    )
    # Two processes need it twice.
    assert (
        scale_to_whole_model(timed(watch, partial(slow_loss, watch)), ALONE, watch.seconds, 2)
        == ALONE
    )


def test_a_model_that_cannot_be_trained_is_refused_with_its_reason() -> None:
    watch = WorkClock()
    with pytest.raises(
        JobFailed, match="microbatch 0: the loss is nan: use a smaller rate or check the data"
    ):
        scale_to_whole_model(timed(watch, no_loss), ALONE, watch.seconds)
