"""`python -m tests.agileml.pipeline.run.elastic_schedules [FIRST LAST]`: random evictions and
joins, in virtual time.

After each schedule the weights must be those of an undisturbed run, bit for bit (pipedream: of one
process with the same history of plans), and every microbatch must count exactly once.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from agileml.core.events import ControllerSettings
from agileml.engines.sim.job import JobSimulation, Machines
from agileml.engines.sim.network import Network
from agileml.pipeline.elastic.control import PipelineControl, PipelineProgress
from agileml.pipeline.elastic.controller import ElasticSettings
from agileml.pipeline.model.base import PipelineModel, UpdateRule
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.node import PipelineNode, PipelineTask
from agileml.pipeline.run.training import (
    PipelinePlan,
    TrainedPipeline,
    elastic_settings,
    model_of_layers,
    result_of,
)
from tests.agileml.pipeline.oracle import same, small_model, split_model, trained

MODELS = {1: small_model(), 2: split_model(), 4: split_model(4)}
"""By the number of nodes that compute a layer together."""
BATCHES = 6


NOTICE_SECONDS = 1.0
"""Virtual seconds between a warning and the end of a machine; a thousand times as long as a message
travels."""


@dataclass(frozen=True)
class PipelineFault:
    """At a delivered message, nodes join, are warned, are killed, or lose their links to the others
    for a moment.
    """

    at: int
    kind: str
    node: str


class FaultyPipeline(JobSimulation[PipelineNode, PipelineControl]):
    """A pipeline on simulated machines, with messages in any order that links allow."""

    def __init__(
        self, task: PipelineTask, settings: ElasticSettings, nodes: int, seed: int = 0
    ) -> None:
        self._pipeline = settings
        rules = ControllerSettings(0, nodes, settings.batches)
        control = partial(PipelineControl.resumed, settings, rules)
        machines = Machines(loading=0.0, network=Network(jitter=0.001))
        super().__init__(rules, control, lambda name: PipelineNode(name, task), machines, seed)
        for number in range(nodes):
            self.join(reliable=False, name=f"n{number}")

    def train(self, faults: Sequence[PipelineFault] = ()) -> TrainedPipeline:
        """Trains to the end. Faults come early where nothing happens otherwise."""
        left = sorted(faults, key=lambda fault: fault.at, reverse=True)
        while (result := self.result) is None:
            while left:
                # Nothing but the next tick is to come.
                idle = sum(1 for _ in self.time.coming()) <= 1
                if left[-1].at > self.messages.delivered and not idle:
                    break
                self._inject(left.pop())
            self.advance()
        progress = PipelineProgress(self._pipeline)
        for iteration in self.log:
            progress.note(iteration)
        layers = [self.load(layer, result.clock) for layer in range(progress.layers)]
        return result_of(progress, model_of_layers(layers), result.clock)

    def _inject(self, fault: PipelineFault) -> None:
        match fault.kind:
            case "join":
                self.join(reliable=False, name=fault.node)
            case "warn":
                self.warn(fault.node, NOTICE_SECONDS)
            case "kill":
                self.kill(fault.node)
            case "cut" if fault.node in self.nodes:
                for other in [node for node in self.nodes if node != fault.node]:
                    self.cut_link((fault.node, other), lambda _: True)


def train_simulated(
    model: PipelineModel,
    optimizer: UpdateRule,
    plan: PipelinePlan,
    nodes: int,
    *,
    faults: Sequence[PipelineFault] = (),
    seed: int = 0,
) -> TrainedPipeline:
    """Trains in this process, with messages in random order and the given faults."""
    task = PipelineTask(model, optimizer, plan.scheme, plan.recompute)
    return FaultyPipeline(task, elastic_settings(model, plan), nodes, seed).train(faults)


def drawn(seed: int) -> tuple[PipelinePlan, Optimizer, int, list[PipelineFault]]:
    draw = random.Random(seed)
    scheme = draw.choice(["flush", "gpipe", "interleaved", "2bw", "pipedream"])
    batch = 1 if scheme == "pipedream" else draw.choice([4, 6])
    batches = 3 * BATCHES if scheme == "pipedream" else BATCHES
    plan = PipelinePlan(
        batches,
        batch,
        scheme,
        chunks=2 if scheme == "interleaved" else 1,
        recompute=draw.random() < 0.3,
        every=draw.choice([1, 2, 4]),
        least_stages=draw.choice([1, 2, 3]) if scheme != "interleaved" else draw.choice([1, 2]),
        most_nodes=5,
    )
    optimizer = Optimizer(draw.choice(["sgd", "momentum", "adam"]), 0.02)
    nodes = draw.randint(3, 5)
    faults, number = [], nodes
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(180)
        if draw.random() < 0.35:
            faults.append(PipelineFault(at, "join", f"n{number}"))
            number += 1
        else:
            faults.append(
                PipelineFault(
                    at, draw.choice(["warn", "kill", "kill", "cut"]), f"n{draw.randrange(number)}"
                )
            )
            if faults[-1].kind == "warn" and draw.random() < 0.5:
                # The warning may come too late.
                faults.append(PipelineFault(at + draw.randrange(60), "kill", faults[-1].node))
    # If all are gone, new ones come.
    faults += [PipelineFault(10**6 + i, "join", f"m{i}") for i in range(3)]
    if draw.random() < 0.3:
        plan = replace(plan, tensor=draw.choice([2, 4]))
    plan = replace(plan, save_every=draw.choice([None, 3, 100]))
    return plan, optimizer, nodes, faults


def version_in(result: TrainedPipeline, plan: PipelinePlan, layer: int, t: int) -> int:
    """The version of a layer for update t: every plan and every segment began with an empty
    pipeline.
    """
    if plan.scheme == "2bw":
        return max(t - 1, 0)
    if plan.scheme != "pipedream":
        return t
    epoch = [record for record in result.history if record.batch <= t][-1]
    (spans,) = epoch.layout.pipelines
    stage = next(s for s, (a, b) in enumerate(spans, 1) if a <= layer <= b)
    return max(t - len(spans) + stage, epoch.batch, t // plan.every * plan.every)


def problem(seed: int, met: Counter[str] | None = None) -> str | None:
    plan, optimizer, nodes, faults = drawn(seed)
    model = MODELS[plan.tensor]
    result = train_simulated(model, optimizer, plan, nodes, faults=faults, seed=seed)
    weights, losses = trained(
        model, optimizer, plan.batches, plan.batch, lambda i, t: version_in(result, plan, i, t)
    )
    if met is not None:
        plans = f"{len(result.history)} plans" if len(result.history) < 4 else "4 or more plans"
        met.update([plan.scheme, f"tensor {plan.tensor}", plans])
        met.update(["rolled back to a backup"] * (result.redone > 0))
    if result.losses != losses:
        unmatched = sorted(losses.keys() ^ result.losses.keys())
        return f"seed {seed}: {plan.scheme}: microbatches {unmatched} or their losses differ"
    return (
        None if same(result.weights, weights) else f"seed {seed}: {plan.scheme}: the weights differ"
    )


if __name__ == "__main__":
    first, last = (int(word) for word in sys.argv[1:3]) if len(sys.argv) > 2 else (0, 5000)
    met: Counter[str] = Counter()
    wrong = [line for seed in range(first, last) if (line := problem(seed, met))]
    print(
        "\n".join(wrong) or f"{last - first} schedules: weights and losses as in an undisturbed run"
    )
    print(", ".join(f"{name}: {count}" for name, count in sorted(met.items())))
    sys.exit(bool(wrong))
