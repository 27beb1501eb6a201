"""Four local machines, five evictions one at a time, three of them without a warning: the losses of
plain PyTorch.

    python examples/pipelines/evictions.py small_transformer

`transformer`, `resnet18` and `small_resnet` are the other models; the large ones take minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice

from compare import plain_losses
from models import MODELS

from agileml.core.events import Iteration
from agileml.engines.chaos import Act, Evict, RunningMachine
from agileml.engines.local import LocalEngine
from agileml.job import Stopping, TrainingJob
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.fleet_job import ModelSource, copied_source, prepare_pipeline
from agileml.pipeline.training import PipelinePlan

UPDATES, MICROBATCHES, SAMPLES = 24, 4, 2


class Evictions:
    """By update: machines that are killed, or warned and taken away later. Each is replaced."""

    def __init__(self) -> None:
        self.left = {4: "kill", 8: "warn", 12: "kill", 16: "warn", 20: "kill"}

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:  # noqa: ARG002
        due = [at for at in self.left if at <= clock and machines]
        name = machines[0].name if machines else ""
        return [Evict((name,), None if self.left.pop(at) == "kill" else 60.0) for at in due[:1]]


def main(name: str) -> None:
    model = MODELS[name](SAMPLES)
    job = TrainingJob(copied_source(model), 4, 0, Stopping(clocks=UPDATES), heartbeat_timeout=5.0)
    task = ModelSource(Optimizer(), "flush", MICROBATCHES)
    plan = PipelinePlan(UPDATES, MICROBATCHES, least_stages=2, most_nodes=4, save_every=10)
    iterations: list[Iteration] = []

    def show(iteration: Iteration) -> None:
        iterations.append(iteration)
        for event in iteration.events:
            print(f"  update {iteration.clock}: {event}")

    result = LocalEngine().run(prepare_pipeline(job, task, plan), Evictions(), show)
    print(
        f"{result.evictions} warned and {result.failures} unwarned evictions in {result.clocks} "
        "updates"
    )
    plain = islice(plain_losses(model, name, MICROBATCHES), UPDATES)
    equal = sum(iteration.loss == loss for iteration, loss in zip(iterations, plain, strict=True))
    print(f"{equal} of {UPDATES} losses are those of plain PyTorch, bit for bit")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "small_transformer")
