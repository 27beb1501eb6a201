"""Nodes that hang, or that are stopped from outside, are replaced, and the result is the same."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from agileml.pipeline.builtin import Dense
from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.model.base import Array, DrawKey, PipelineModel, Stash, Weights
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.local import train_local
from agileml.pipeline.run.training import PipelinePlan
from tests.agileml.pipeline.oracle import WIDTH, same, small_model, trained
from tests.samples import PIPELINE_PROCESSES

SGD = Optimizer("sgd", 0.05)
TWO = {2: PipelineLayout((((0, 2), (3, 5)),), (4,))}


@dataclass(frozen=True)
class Hanging(Dense):
    """In the forward pass of a microbatch, it waits for ever once, or its process is stopped."""

    microbatch: int = 0
    once: str = ""
    stopped: bool = False

    def forward(self, weights: Weights, inputs: Array, key: DrawKey) -> tuple[Array, Stash]:
        if key[1] == self.microbatch and not Path(self.once).exists():
            Path(self.once).touch()
            if self.stopped:
                os.kill(os.getpid(), signal.SIGSTOP)
            threading.Event().wait()
        return super().forward(weights, inputs, key)


@PIPELINE_PROCESSES
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hung_nodes_are_replaced(tmp_path: Path) -> None:
    model = small_model()
    layers = list(model.layers)
    layers[1] = Hanging(WIDTH, WIDTH, microbatch=9, once=str(tmp_path / "waits"))
    layers[3] = Hanging(WIDTH, WIDTH, microbatch=17, once=str(tmp_path / "stopped"), stopped=True)
    hanging = PipelineModel(tuple(layers), model.loss, model.data, model.seed)
    result = train_local(hanging, SGD, PipelinePlan(6, 4, layouts=TWO), 2, hang_timeout=2.0)
    assert same(result.weights, trained(small_model(), SGD, 6, 4, lambda _, t: t)[0])
    assert result.losses.keys() == set(range(24))
    assert {path.name for path in tmp_path.iterdir()} == {"waits", "stopped"}
    assert len({node for epoch in result.history for node in epoch.nodes}) == 4
