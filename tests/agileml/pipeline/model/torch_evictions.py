"""`python -m tests.agileml.pipeline.model.torch_evictions [SCHEDULES]`: models of PyTorch through
random evictions.

After each schedule losses, weights and buffers must be those of one node that nothing disturbs, bit
for bit.
"""

from __future__ import annotations

import random
import sys
from functools import cache

import torch

from agileml.pipeline.run.training import PipelinePlan, TrainedPipeline
from tests.agileml.pipeline.model.torch_constructs import CONSTRUCTS, MICROBATCHES, UPDATES
from tests.agileml.pipeline.oracle import same
from tests.agileml.pipeline.run.elastic_schedules import PipelineFault, train_simulated


@cache
def undisturbed(index: int, scheme: str) -> TrainedPipeline:
    construct = CONSTRUCTS[index]
    return train_simulated(
        construct.model(), construct.rule, PipelinePlan(UPDATES, MICROBATCHES, scheme), 1
    )


def drawn_faults(draw: random.Random, nodes: int) -> list[PipelineFault]:
    faults = []
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(180)
        if draw.random() < 0.35:
            faults.append(PipelineFault(at, "join", f"n{nodes}"))
            nodes += 1
        else:
            kind = draw.choice(["warn", "kill", "kill", "cut"])
            faults.append(PipelineFault(at, kind, f"n{draw.randrange(nodes)}"))
    # If all are gone, new ones come.
    return faults + [PipelineFault(10**6 + i, "join", f"m{i}") for i in range(3)]


def problem(seed: int) -> str | None:
    draw = random.Random(seed)
    index, scheme = draw.randrange(len(CONSTRUCTS)), draw.choice(["flush", "gpipe", "2bw"])
    construct = CONSTRUCTS[index]
    plan = PipelinePlan(
        UPDATES,
        MICROBATCHES,
        scheme,
        every=draw.choice([1, 2, 3]),
        least_stages=draw.randint(1, min(3, len(construct.children()))),
        most_nodes=5,
        recompute=draw.random() < 0.3,
    )
    nodes = draw.randint(3, 5)
    faults = drawn_faults(draw, nodes)
    result = train_simulated(
        construct.model(), construct.rule, plan, nodes, faults=faults, seed=seed
    )
    expected = undisturbed(index, "2bw" if scheme == "2bw" else "flush")
    equal = same(result.weights, expected.weights) and same(result.buffers, expected.buffers)
    return (
        None
        if equal and result.losses == expected.losses
        else f"seed {seed}: {construct.name}, {scheme} differs"
    )


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    torch.set_num_threads(1)
    wrong = [line for seed in range(count) if (line := problem(seed))]
    print(
        "\n".join(wrong)
        or f"{count} schedules: losses, weights and buffers as in an undisturbed run"
    )
    sys.exit(bool(wrong))
