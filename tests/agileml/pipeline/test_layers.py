"""Layers and losses of arrays."""

from __future__ import annotations

import numpy as np
import pytest

from agileml.errors import JobFailed
from agileml.pipeline.layers import Dense, cross_entropy, squared_error
from agileml.pipeline.model.base import PipelineModel
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.local import train_simulated
from agileml.pipeline.run.training import PipelinePlan
from tests.agileml.pipeline.oracle import Waves


def test_a_diverging_run_names_the_node_and_the_microbatch() -> None:
    model = PipelineModel(
        (Dense(5, 5, squash=False), Dense(5, 1, squash=False)), squared_error, Waves()
    )
    with (
        pytest.raises(JobFailed, match=r"t\d: microbatch \d+: the loss is (inf|nan)"),
        np.errstate(all="ignore"),
    ):
        train_simulated(model, Optimizer("sgd", 1e80), PipelinePlan(20, 2), 2)


def test_cross_entropy_of_known_shares() -> None:
    loss, gradient = cross_entropy(np.log(np.array([[1.0, 3.0]])), np.array([1]))
    assert loss == pytest.approx(-np.log(0.75))
    np.testing.assert_allclose(gradient, [[0.25, -0.25]])
