"""`python -m tests.agileml.pipeline.run.fleet_jobs [FIRST LAST]`: random faults of pipelines on
real processes.

Nodes are killed and warned, the controller is killed, and connections are cut; losses and weights
must be those of one process, bit for bit.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agileml.core.events import Iteration
from agileml.engines.chaos import Act, Evict, KillController, RunningMachine, Script
from agileml.engines.local import LocalEngine
from agileml.errors import AgileMLError
from agileml.job import Stopping, Trained, TrainingJob
from agileml.pipeline.builtin import Dense
from agileml.pipeline.model.base import Array, DrawKey, PipelineModel, Stash, Weights
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.fleet_job import (
    ModelSource,
    PreparedPipeline,
    copied_source,
    prepare_pipeline,
)
from agileml.pipeline.run.training import PipelinePlan
from tests.agileml.cut_links import MAX_CUTS, cut_one, own_name
from tests.agileml.pipeline.oracle import WIDTH, small_model, trained

MOMENTUM = Optimizer("momentum", 0.05)
BATCH = 4
NODES = 4


def prepared(
    updates: int,
    scheme: str = "flush",
    save_every: int = 5,
    model: PipelineModel | None = None,
    **options: Any,  # noqa: ANN401  # settings of any job
) -> PreparedPipeline:
    job = TrainingJob(
        copied_source(model or small_model()), NODES, 0, Stopping(clocks=updates), **options
    )
    plan = PipelinePlan(1, BATCH, scheme, save_every=save_every, most_nodes=NODES)
    return prepare_pipeline(job, ModelSource(MOMENTUM, scheme, BATCH), plan)


def check(result: Trained, iterations: Sequence[Iteration], updates: int, late: int = 0) -> None:
    """Weights and losses are those of one process, bit for bit."""
    weights, losses = trained(
        small_model(), MOMENTUM, updates, BATCH, lambda _, t: max(t - late, 0)
    )
    assert same(result, weights)
    means = [
        sum(losses[k] for k in range(BATCH * t, BATCH * (t + 1))) / BATCH for t in range(updates)
    ]
    assert [iteration.loss for iteration in iterations] == means
    assert result.loss == means[-1]
    assert result.counters.applied == updates * BATCH


def same(result: Trained, weights: dict[int, Weights]) -> bool:
    return all(
        np.array_equal(result.model[f"{layer}/{i}"], array)
        for layer, arrays in weights.items()
        for i, array in enumerate(arrays)
    )


class Faults:
    """Faults by update: kill or warn the first machine, or kill the controller."""

    def __init__(self, faults: dict[int, str]) -> None:
        self.left = faults

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:  # noqa: ARG002
        now = [at for at in self.left if at <= clock and machines]
        return [self._act(self.left.pop(at), machines) for at in now]

    def _act(self, kind: str, machines: Sequence[RunningMachine]) -> Act:
        if kind == "controller":
            return KillController()
        if kind == "warn":
            return Evict((machines[0].name,), 60.0)
        return Evict(
            tuple(machine.name for machine in (machines if kind == "all" else machines[:1])), None
        )


def run(plan: PreparedPipeline, script: Script) -> tuple[Trained, list[Iteration]]:
    iterations: list[Iteration] = []
    result = LocalEngine().run(plan, script, iterations.append)
    return result, iterations


_CUT: list[int] = []
"""Microbatches in which this process has cut a connection."""


@dataclass(frozen=True)
class Cutting(Dense):
    """Now and then, a forward pass begins with a broken connection of its process."""

    seed: int = 0

    def forward(self, weights: Weights, inputs: Array, key: DrawKey) -> tuple[Array, Stash]:
        name = own_name()
        chance = random.Random(f"{self.seed} {name} {key[1]}")
        # Only a node of this computer listens at a file: a process that runs tests must keep its
        # connections.
        if name.endswith(".sock") and len(_CUT) < MAX_CUTS and chance.random() < 0.03:
            _CUT.append(key[1])
            cut_one(chance)
        return super().forward(weights, inputs, key)


def with_cuts(seed: int) -> PipelineModel:
    """Two of its layers cut connections."""
    model = small_model()
    layers = [
        Cutting(WIDTH, WIDTH, seed=seed) if i in (1, 3) else layer
        for i, layer in enumerate(model.layers)
    ]
    return PipelineModel(tuple(layers), model.loss, model.data, model.seed)


def problem(seed: int) -> str | None:
    """What is wrong after a run with random faults; None if nothing is."""
    draw = random.Random(seed)
    updates, scheme = 14, draw.choice(["flush", "2bw"])
    kinds = ["kill", "kill", "warn", "controller", "all"]
    script = Faults(
        {draw.randrange(1, updates): draw.choice(kinds) for _ in range(draw.randint(1, 4))}
    )
    plan = prepared(
        updates, scheme, draw.choice([2, 5, 100]), with_cuts(seed), heartbeat_timeout=5.0
    )
    try:
        result, iterations = run(plan, script)
        check(result, iterations, updates, late=int(scheme == "2bw"))
    except (AssertionError, AgileMLError) as error:
        return f"seed {seed}: {scheme}: {type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    first, last = (int(word) for word in sys.argv[1:3]) if len(sys.argv) > 2 else (0, 50)
    wrong = []
    for seed in range(first, last):
        if line := problem(seed):
            wrong.append(line)
            print(line, flush=True)
        elif seed % 10 == 9:
            print(f"{seed + 1 - first} runs", flush=True)
    print(f"{last - first} runs on processes: {len(wrong)} differ from one process")
    sys.exit(bool(wrong))
