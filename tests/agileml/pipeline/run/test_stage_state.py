"""The state that a node holds of its layers."""

from __future__ import annotations

import numpy as np

from agileml.pipeline.builtin import squared_error
from agileml.pipeline.model.base import Array, DrawKey, PipelineModel, Stash, Weights
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.stage_state import StageState, initial_state


class Keeping:
    """A layer that returns the same array as its gradient each time."""

    def __init__(self) -> None:
        self.gradient = np.array([1.0, 2.0])

    def initial(self, key: DrawKey) -> Weights:
        del key
        return (np.zeros(2),)

    def forward(self, weights: Weights, inputs: Array, key: DrawKey) -> tuple[Array, Stash]:
        del weights, key
        return inputs, None

    def backward(self, weights: Weights, stash: Stash, gradient: Array) -> tuple[Array, Weights]:
        del weights, stash
        return gradient, (self.gradient,)


def test_gradients_are_added_up_in_memory_that_no_layer_uses() -> None:
    layer, rule = Keeping(), Optimizer("sgd")
    model = PipelineModel([layer], squared_error, lambda _: (np.ones(2), np.ones(2)))
    state = StageState(model, rule, {0: initial_state(model, rule, 0)}, summed={0})
    for batch in range(2):
        for microbatch in range(4 * batch, 4 * batch + 4):
            assert not list(state.forward([0], microbatch, 0, np.ones(2)))
            assert not list(state.backward([0], microbatch, 0, np.ones(2)))
        ((_, (total,)),) = state.parts(0)
        assert total.tolist() == [4.0, 8.0]
        assert layer.gradient.tolist() == [1.0, 2.0]
