"""A small transformer in 4 and in 2 pipeline stages, evicted twice each; the weights are those of
an undisturbed run.

    pip install 'spotctl[torch]'
    python examples/pipeline_through_evictions.py

Each node is a process on this computer; an eviction without warning is SIGKILL.
"""

from __future__ import annotations

import numpy as np
import torch

from agileml.pipeline.builtin import transformer
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.training import (
    PipelineLayout,
    PipelinePlan,
    parse_faults,
    train_local,
    train_simulated,
)

# Layers 0 to 5: an embedding, four blocks, a projection. Four microbatches per update, for any
# number of stages.
STAGES = {
    4: PipelineLayout((((0, 1), (2, 2), (3, 3), (4, 5)),), (4,)),
    3: PipelineLayout((((0, 1), (2, 3), (4, 5)),), (4,)),
    2: PipelineLayout((((0, 2), (3, 5)),), (4,)),
    1: PipelineLayout((((0, 5),),), (4,)),
}
UPDATES = 40
ADAM = Optimizer("adam", 0.003)


def main() -> None:
    torch.set_num_threads(1)
    model = transformer(microbatch=4)
    calm = train_simulated(model, ADAM, PipelinePlan(UPDATES, 4, layouts=STAGES), nodes=2)
    print(
        f"undisturbed: loss {calm.losses[0]:.4f} at first, {calm.losses[4 * UPDATES - 1]:.4f} at "
        "the end"
    )
    for nodes in (4, 2):
        plan = PipelinePlan(
            UPDATES,
            4,
            layouts={count: layout for count, layout in STAGES.items() if count <= nodes},
        )
        # In two stages, another node joins: fewer than two could not go on.
        faults = parse_faults("kill 2, warn 4" if nodes == 4 else "join 1, kill 8, join 9, warn 20")
        trained = train_local(model, ADAM, plan, nodes, faults=faults)
        for change in trained.history:
            if change.running is not None:
                print(
                    f"  from update {change.batch}: nodes {', '.join(change.nodes)}, a stage on "
                    "each"
                )
        pairs = [
            pair
            for layer, own in calm.weights.items()
            for pair in zip(own, trained.weights[layer], strict=True)
        ]
        same = trained.losses == calm.losses and all(np.array_equal(a, b) for a, b in pairs)
        print(
            f"{nodes} stages, evicted twice: "
            f"{'the same weights, bit for bit' if same else 'other weights'}"
        )
        if not same:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
