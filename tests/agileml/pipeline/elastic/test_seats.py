"""The order of the work of a node, and of the layers that it holds."""

from __future__ import annotations

import numpy as np

from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.model.base import Weights
from agileml.pipeline.run.local import train_simulated
from agileml.pipeline.run.training import PipelinePlan
from tests.agileml.pipeline.run.test_local import MODEL, MOMENTUM


def test_two_one_one_equals_one_process_with_its_rounds() -> None:
    """Stage 1 on two nodes: input k on node k mod 2, one update per round of 2."""
    spans, counts, inputs = ((0, 2), (3, 3), (4, 5)), (2, 1, 1), 12
    layout = PipelineLayout((spans,), (1,), replicas=counts, extra=1)
    plan = PipelinePlan(inputs, 1, "pipedream", every=inputs, layouts={4: layout})
    result = train_simulated(MODEL, MOMENTUM, plan, 4)
    warm = (2, 2, 0)
    count = len(MODEL.layers)
    stage = [next(s for s, (a, b) in enumerate(spans) if a <= i <= b) for i in range(count)]
    history = [[MODEL.initial(i)] for i in range(count)]
    states = [MOMENTUM.initial(versions[0]) for versions in history]
    rounds: list[list[Weights]] = [[] for _ in range(count)]
    for k in range(inputs):
        used = [history[i][max(k // counts[stage[i]] - warm[stage[i]], 0)] for i in range(count)]
        values, targets = MODEL.data(k)
        stashes = []
        for i, layer in enumerate(MODEL.layers):
            values, stash = layer.forward(used[i], values, (MODEL.seed, k, i))
            stashes.append(stash)
        _, gradient = MODEL.loss(values, targets)
        for i in reversed(range(count)):
            gradient, part = MODEL.layers[i].backward(used[i], stashes[i], gradient)
            rounds[i].append(part)
            if len(rounds[i]) == counts[stage[i]]:
                mean = tuple(np.mean(parts, axis=0) for parts in zip(*rounds[i], strict=True))
                weights, states[i] = MOMENTUM.step(history[i][-1], states[i], mean, len(history[i]))
                history[i].append(weights)
                rounds[i] = []
    for i in range(count):
        for weight, other in zip(result.weights[i], history[i][-1], strict=True):
            np.testing.assert_allclose(weight, other, rtol=0, atol=1e-12)
