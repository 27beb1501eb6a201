"""Measures a model as a node works on it: all layers in turn, with everything that a node does around their passes.

A layer that is measured alone, again and again, finds its weights in the processor's cache and its results in memory
that is warm. So the times of single layers say how they compare; how long they take together is measured here.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from agileml.errors import JobFailed
from agileml.pipeline.elastic.messages import INITIAL, NodeFailed, NodeReport, RunBatches, TakeSeat
from agileml.pipeline.elastic.seats import PipelineLayout, work_orders
from agileml.pipeline.model.arrays import BFLOAT16
from agileml.pipeline.model.base import PipelineModel, UpdateRule
from agileml.pipeline.model.optimizers import Optimizer
from agileml.pipeline.model.torch_optimizers import TorchOptimizer
from agileml.pipeline.profile.costs import OPTIMIZER_STATE
from agileml.pipeline.profile.model_profile import LayerCost
from agileml.pipeline.run.node import PipelineFrame, PipelineNode, PipelineTask

FEW, MANY = 2, 6
"""Microbatches of the two kinds of batches that tell the passes from the update."""

_RATE = 1e-12
_WEIGHT_COPIES = 5
"""Arrays as large as the weights, at most: two versions, gradients, their sum and their mean."""


def scale_to_whole_model(
    model: PipelineModel, costs: list[LayerCost], seconds: Callable[[Callable[[], object]], float], together: int = 1
) -> list[LayerCost]:
    """The costs of layers, scaled to what all take together; unscaled if memory does not hold the whole model.

    `seconds` measures a piece of work. As many processes measure `together`, and share the memory.
    """
    needed = sum(_WEIGHT_COPIES * layer.weight_bytes + layer.stash_bytes for layer in costs)
    if needed * together > _free_memory():
        return costs
    few, many = (seconds(_training(model, number)) for number in (FEW, MANY))
    passes = (many - few) / (MANY - FEW)
    updates = few - FEW * passes
    alone, alone_updates = (
        sum(layer.seconds for layer in costs),
        sum(layer.update_seconds["sgd"] for layer in costs),
    )
    return [_scaled(layer, _ratio(passes, alone), _ratio(updates, alone_updates)) for layer in costs]


def _ratio(whole: float, alone: float) -> float:
    """1 if either time is too short to be measured."""
    return whole / alone if min(whole, alone) > 0 else 1.0


def _scaled(cost: LayerCost, passes: float, updates: float) -> LayerCost:
    return replace(
        cost,
        forward_seconds=cost.forward_seconds * passes,
        backward_seconds=cost.backward_seconds * passes,
        update_seconds={kind: cost.update_seconds[kind] * updates for kind in OPTIMIZER_STATE},
    )


def _training(model: PipelineModel, microbatches: int) -> Callable[[], None]:
    """Trains a batch with each call, as a node without peers."""
    last, name, epoch = len(model.layers) - 1, "one", 1
    layout = PipelineLayout((((0, last),),), (microbatches,))
    numbers = count()

    def report(message: NodeReport) -> None:
        if isinstance(message, NodeFailed):
            raise JobFailed(message.message)

    def send(node: str, frame: PipelineFrame) -> None:
        raise AssertionError(f"one node has all layers, and sends {frame.key} to {node}")

    # The profile is of the first microbatch; the data may not have many.
    first_only = replace(model, data=lambda _: model.data(0))
    node = PipelineNode(name, PipelineTask(first_only, _rule(model), "flush"), send, report)
    layers = tuple(range(len(model.layers)))
    node.instruct(TakeSeat(epoch, 0, layers, dict.fromkeys(layers, INITIAL), (), ()))

    def train() -> None:
        first = next(numbers)
        work = work_orders(layout, [name], "flush", first, first + 1)[name]
        node.instruct(RunBatches(epoch, first, first + 1, work, ()))

    return train


def _rule(model: PipelineModel) -> UpdateRule:
    """Steps that change nothing; PyTorch's for weights on which numpy cannot compute."""
    weights = (array for layer in range(len(model.layers)) for array in model.initial(layer))
    if all(array.dtype != BFLOAT16 for array in weights):
        return Optimizer("sgd", _RATE)
    from torch.optim import SGD

    return TorchOptimizer(partial(SGD, lr=_RATE))


def _free_memory() -> float:
    """Bytes of memory that are available; on systems without /proc/meminfo, all memory."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
