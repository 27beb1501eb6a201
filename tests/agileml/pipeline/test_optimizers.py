"""Steps of the optimizers that run on arrays, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from agileml.errors import BadArgument
from agileml.pipeline.optimizers import Optimizer

WEIGHTS = (np.array([1.0, 2.0]),)
GRADIENTS = (np.array([0.5, -1.0]),)


def test_a_plain_step_goes_against_the_gradient() -> None:
    rule = Optimizer("sgd", rate=0.1)
    (moved,), state = rule.step(WEIGHTS, rule.initial(WEIGHTS), GRADIENTS, 1)
    assert moved == pytest.approx([0.95, 2.1])
    assert state == ()


def test_momentum_keeps_a_part_of_the_step_before() -> None:
    rule = Optimizer("momentum", rate=0.1, momentum=0.5)
    weights, state = rule.step(WEIGHTS, rule.initial(WEIGHTS), GRADIENTS, 1)
    (moved,), (speed,) = rule.step(weights, state, GRADIENTS, 2)
    assert speed == pytest.approx([0.75, -1.5])
    assert moved == pytest.approx([0.875, 2.25])


def test_the_first_step_of_adam_is_as_long_as_its_rate() -> None:
    rule = Optimizer("adam", rate=0.1)
    (moved,), _ = rule.step(WEIGHTS, rule.initial(WEIGHTS), GRADIENTS, 1)
    assert moved == pytest.approx([0.9, 2.1], abs=1e-6)


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(BadArgument, match="rate is 0"):
        Optimizer("sgd", rate=0)
