"""PyTorch's optimizers in a pipeline: each update has the settings of its number."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from agileml.pipeline.optimizers import TorchOptimizer

torch = pytest.importorskip("torch")

FACTORS = [1.0, 0.5, 0.25]


def moved(rate: object, numbers: list[int]) -> list[float]:
    """How far updates of these numbers move a weight along a gradient of 1."""
    optimizer = TorchOptimizer(
        partial(torch.optim.SGD, lr=rate),
        lambda made: torch.optim.lr_scheduler.LambdaLR(made, FACTORS.__getitem__),
    )
    weights = (np.zeros(2),)
    gradients = (np.ones(2),)
    after = [optimizer.step(weights, (), gradients, number)[0][0] for number in numbers]
    return [-float(array[0]) for array in after]


def test_a_schedule_may_have_as_many_rates_as_there_are_updates() -> None:
    assert moved(1.0, [1, 2, 3]) == FACTORS


def test_a_rate_that_is_a_tensor_follows_the_schedule() -> None:
    """A schedule changes such a rate in place; an update that is done again has its own rate."""
    assert moved(torch.tensor(1.0), [1, 2, 3, 1, 2]) == [1.0, 0.5, 0.25, 1.0, 0.5]
