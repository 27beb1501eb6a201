"""`train_local` and `train_simulated`: an elastic pipeline in one call."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agileml.checks import check_whole
from agileml.errors import BadArgument, JobFailed
from agileml.pipeline.elastic.controller import ElasticController, ElasticSettings, EpochRecord
from agileml.pipeline.elastic.layouts import LayoutRules, check_cuts, layouts_of_pieces, over_layers, planned_layout
from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.model.base import PipelineModel, Weights
from agileml.pipeline.model.optimizers import Optimizer
from agileml.pipeline.model.tensor_parts import pieces
from agileml.pipeline.plan.parallel_plan import ParallelPlan
from agileml.pipeline.run.copies import final_weights
from agileml.pipeline.run.local import HANG_SECONDS, AfterBatch, LocalPipeline
from agileml.pipeline.run.node import PipelineTask
from agileml.pipeline.run.sim import PipelineFault, SimulatedPipeline
from agileml.pipeline.schedule.schemes import STASHING, check_scheme


@dataclass(frozen=True)
class PipelinePlan:
    """How a model is trained. `batch` counts microbatches; `layouts` overrides the choice for numbers of nodes."""

    batches: int
    batch: int
    scheme: str = "flush"
    chunks: int = 1
    recompute: bool = False
    every: int = 1
    """Batches between backups."""
    least_stages: int = 1
    most_nodes: int = 8
    layouts: dict[int, PipelineLayout] | None = None
    tensor: int = 1
    """Nodes that compute a split layer together."""


@dataclass(frozen=True)
class TrainedPipeline:
    """Weights of each layer, the loss of each microbatch, and what happened."""

    weights: dict[int, Weights]
    losses: dict[int, float]
    history: tuple[EpochRecord, ...]
    redone: int


class PipelineStopped(JobFailed):
    """The training cannot go on. `trained` has the newest complete copy of its weights, of `update`."""

    def __init__(self, why: str, trained: TrainedPipeline, update: int) -> None:
        super().__init__(why)
        self.trained, self.update = trained, update


def controller_for(model: PipelineModel, plan: PipelinePlan) -> ElasticController:
    """The controller of a plan; without layouts of its own, layers count by their weights."""
    for name in ("batches", "batch", "every", "most_nodes", "least_stages", "chunks", "tensor"):
        check_whole(name, getattr(plan, name), 1)
    check_scheme(plan.scheme, 1, plan.batch, plan.chunks)
    if plan.scheme in STASHING and plan.batch != 1:
        raise BadArgument(f"batch is {plan.batch}: {plan.scheme} updates after every microbatch; set it to 1")
    cuts = pieces_for(model, plan.tensor)
    if plan.least_stages * plan.chunks > len(cuts):
        raise BadArgument(
            f"least_stages is {plan.least_stages} with {plan.chunks} chunks, and the model has {len(cuts)} layers"
        )
    rules = LayoutRules(plan.scheme, plan.batch, plan.chunks, plan.least_stages)
    layouts = plan.layouts or _layouts_by_weight(model, cuts, rules, plan.most_nodes, plan.tensor)
    if not layouts:
        raise BadArgument(
            f"batch is {plan.batch}: no layout of {plan.scheme} with up to {plan.most_nodes} nodes can process it;"
            " use more microbatches or fewer stages"
        )
    for layout in layouts.values():
        check_cuts(layout, cuts)
    return ElasticController(ElasticSettings(plan.scheme, plan.batches, layouts, _weight_bytes(model), plan.every))


def pieces_for(model: PipelineModel, tensor: int) -> list[range]:
    """The pieces of a model. Raises BadArgument if `tensor` nodes cannot compute its split layers together."""
    cuts = pieces(model.layers)
    split = {len(piece) for piece in cuts} - {1}
    if tensor > 1 and (not split or any(parts % tensor for parts in split)):
        has = f"its split layers have {', '.join(map(str, sorted(split)))}" if split else "it has no split layers"
        raise BadArgument(
            f"tensor is {tensor}: the model needs layers of {tensor} parts or a multiple, and {has}; use"
            " split-transformer, or make them with agileml.pipeline.tensor_parts.split_layer"
        )
    return cuts


def _weight_bytes(model: PipelineModel) -> list[float]:
    return [float(sum(array.nbytes for array in model.initial(layer))) for layer in range(len(model.layers))]


def _layouts_by_weight(
    model: PipelineModel, cuts: Sequence[range], rules: LayoutRules, most: int, tensor: int
) -> dict[int, PipelineLayout]:
    sizes = _weight_bytes(model)
    costs = [1.0 + sum(sizes[layer] for layer in piece) for piece in cuts]
    return layouts_of_pieces(costs, cuts, rules, most, tensor)


def _controller_on(nodes: int, model: PipelineModel, plan: PipelinePlan) -> ElasticController:
    controller = controller_for(model, plan)
    least = min(controller.settings.layouts)
    if nodes < least:
        raise BadArgument(f"nodes is {nodes}: {plan.scheme} needs at least {least} with these stages and microbatches")
    return controller


def planned_training(plan: ParallelPlan, model: PipelineModel, batches: int, every: int | None = None) -> PipelinePlan:
    """Trains a model as `plan` splits it; with other numbers of nodes, by the weights of its layers."""
    cuts = pieces_for(model, plan.tensor)
    covered = [layer for stage in plan.stages for layer in range(stage.layers[0], stage.layers[1] + 1)]
    if covered != list(range(len(cuts))):
        raise BadArgument(
            f"the plan of {plan.model} is for {max(covered) + 1} layers, and the model has {len(cuts)}:"
            " profile this model, and plan again"
        )
    layout = planned_layout(plan)
    rules = LayoutRules(plan.scheme, layout.batch, plan.chunks, plan.depth)
    others = _layouts_by_weight(model, cuts, rules, plan.devices, plan.tensor)
    return PipelinePlan(
        batches,
        layout.batch,
        plan.scheme,
        plan.chunks,
        plan.recompute,
        plan.every if every is None else every,
        plan.depth,
        plan.devices,
        {**others, plan.devices: over_layers(layout, cuts, plan.tensor)},
        plan.tensor,
    )


def train_local(
    model: PipelineModel,
    optimizer: Optimizer,
    plan: PipelinePlan,
    nodes: int,
    *,
    after_batch: AfterBatch | None = None,
    checkpoint: Path | None = None,
    hang_timeout: float = HANG_SECONDS,
) -> TrainedPipeline:
    """Trains on processes of this computer. `after_batch` may warn, kill and add nodes.

    A node that neither answers nor computes for `hang_timeout` seconds is killed, and another one takes its place.
    PipelineStopped: the training cannot go on after its first backup.
    """
    check_whole("nodes", nodes, 1)
    controller = _controller_on(nodes, model, plan)
    task = PipelineTask(model, optimizer, plan.scheme, plan.recompute)
    with LocalPipeline(task, controller, checkpoint, hang_timeout) as pipeline:
        for i in range(nodes):
            pipeline.join(f"n{i}")
        try:
            weights = pipeline.run(after_batch)
        except JobFailed as error:
            if not controller.backup:
                raise
            kept = final_weights(model, pipeline.copies, controller.backup)
            raise PipelineStopped(str(error), _result(controller, kept), controller.backup) from error
    return _result(controller, weights)


def train_simulated(
    model: PipelineModel,
    optimizer: Optimizer,
    plan: PipelinePlan,
    nodes: int,
    *,
    faults: Sequence[PipelineFault] = (),
    seed: int = 0,
) -> TrainedPipeline:
    """Trains in this process, with messages in random order and the given faults."""
    check_whole("nodes", nodes, 1)
    controller = _controller_on(nodes, model, plan)
    task = PipelineTask(model, optimizer, plan.scheme, plan.recompute)
    pipeline = SimulatedPipeline(task, controller, [f"n{i}" for i in range(nodes)], faults, seed)
    return _result(controller, pipeline.run())


def save_weights(path: Path, weights: dict[int, Weights]) -> None:
    """Writes the weights of layer i as arrays `i/0`, `i/1` and so on."""
    named = {f"{layer}/{i}": array for layer, arrays in weights.items() for i, array in enumerate(arrays)}
    with path.open("wb") as file:
        np.savez(file, **named)  # type: ignore[arg-type]


def _result(controller: ElasticController, weights: dict[int, Weights]) -> TrainedPipeline:
    return TrainedPipeline(weights, dict(controller.losses), tuple(controller.history), controller.redone)
