"""How a pipeline is trained: the plan, the layouts that follow from it, and the result."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from agileml.errors import BadArgument, check_whole
from agileml.params.layout import Params
from agileml.pipeline.elastic.control import PipelineProgress
from agileml.pipeline.elastic.controller import ElasticSettings, EpochRecord
from agileml.pipeline.elastic.layouts import (
    LayoutRules,
    check_cuts,
    layouts_of_pieces,
    over_layers,
    planned_layout,
    update_seconds,
)
from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.model.base import (
    BufferedLayer,
    PipelineModel,
    Weights,
    arrays_of_layer,
    named_arrays,
    users_code,
)
from agileml.pipeline.plan.parallel_plan import ParallelPlan
from agileml.pipeline.run.stage_state import layer_state
from agileml.pipeline.schedule.schedules import STASHING, check_scheme
from agileml.pipeline.tensor_parts import TensorPart, pieces
from agileml.protocol.messages import Version


@dataclass(frozen=True)
class PipelinePlan:
    """How a model is trained. `batch` counts microbatches; `layouts` overrides the choice for
    numbers of nodes.
    """

    batches: int
    batch: int
    scheme: str = "flush"
    chunks: int = 1
    recompute: bool = False
    every: int = 1
    """Batches between copies of each layer at another node."""
    least_stages: int = 1
    most_nodes: int = 8
    layouts: dict[int, PipelineLayout] | None = None
    tensor: int = 1
    """Nodes that compute a split layer together."""
    save_every: int | None = None
    """Batches between copies in the store; as `every` if left out."""


@dataclass(frozen=True)
class TrainedPipeline:
    """Weights of each layer, the loss of each microbatch, and what happened; buffers of the layers
    that have any.
    """

    weights: dict[int, Weights]
    losses: dict[int, float]
    history: tuple[EpochRecord, ...]
    redone: int
    buffers: dict[int, Weights] = field(default_factory=dict)


def result_of(progress: PipelineProgress, model: Params, updates: int) -> TrainedPipeline:
    """The result of this many updates, after which the pipeline has this model."""
    weights = {}
    buffers = {}
    for layer in range(progress.layers):
        weights[layer], others = arrays_of_layer(model, layer)
        if others:
            buffers[layer] = others
    losses = {k: loss for k, loss in progress.losses.items() if k < updates * progress.batch}
    return TrainedPipeline(weights, losses, tuple(progress.history), progress.redone, buffers)


def model_of_layers(versions: Sequence[Version]) -> Params:
    """The newest weights and the buffers of all layers, by name."""
    states = [layer_state(version.state) for version in versions]
    weights = {layer: state.newest() for layer, state in enumerate(states)}
    return named_arrays(weights, {layer: state.buffers for layer, state in enumerate(states)})


def elastic_settings(
    model: PipelineModel, plan: PipelinePlan, seconds: Sequence[float] | None = None
) -> ElasticSettings:
    """The layouts of a plan for all numbers of nodes, unless it has its own.

    `seconds` are those of a microbatch in each layer; without them, layers count by their weights.
    """
    for name in ("batches", "batch", "every", "most_nodes", "least_stages", "chunks", "tensor"):
        check_whole(name, getattr(plan, name), 1)
    check_scheme(plan.scheme, 1, plan.batch, plan.chunks)
    if plan.scheme in STASHING and plan.batch != 1:
        raise BadArgument(
            f"batch is {plan.batch}: {plan.scheme} updates after every microbatch; set it to 1"
        )

    cuts = pieces_for(model, plan.tensor)
    if plan.least_stages * plan.chunks > len(cuts):
        raise BadArgument(
            f"least_stages is {plan.least_stages} with {plan.chunks} chunks, and the model has "
            f"{len(cuts)} layers"
        )

    moving = _moving_buffers(model)
    most_pipelines = 1 if moving else inf
    rules = LayoutRules(plan.scheme, plan.batch, plan.chunks, plan.least_stages, most_pipelines)
    costs = _costs(model, cuts, seconds)
    layouts = plan.layouts or layouts_of_pieces(costs, cuts, rules, plan.most_nodes, plan.tensor)

    if not layouts:
        raise BadArgument(
            f"batch is {plan.batch}: no layout of {plan.scheme} with up to {plan.most_nodes} nodes "
            "can process it; use more microbatches or fewer stages"
        )

    for layout in layouts.values():
        check_cuts(layout, cuts)
        if moving and max(len(layout.pipelines), *layout.replicas, 1) > 1:
            raise BadArgument(
                f"{moving}, which copies of the layer would change differently: use one pipeline "
                "without replicas, or a layer such as LayerNorm"
            )

    each = [cost / len(piece) for cost, piece in zip(costs, cuts, strict=True) for _ in piece]
    relative = {
        nodes: update_seconds(layout, each, plan.scheme) for nodes, layout in layouts.items()
    }
    return ElasticSettings(
        plan.scheme,
        plan.batches,
        layouts,
        _weight_bytes(model),
        plan.every,
        plan.save_every,
        relative,
    )


def _moving_buffers(model: PipelineModel) -> str:
    """The first layer whose forward pass changes buffers, and their names."""
    for i, layer in enumerate(model.layers):
        with users_code(f"layer {i}"):
            inner = layer.layer if isinstance(layer, TensorPart) else layer
            names = (
                inner.moving_buffers((model.seed, 0, i)) if isinstance(inner, BufferedLayer) else []
            )
        if names and isinstance(layer, TensorPart):
            raise BadArgument(
                f"layer {i} is a part of a split layer and has running statistics "
                f"({', '.join(names)}): use a layer"
                " without them, such as LayerNorm"
            )
        if names:
            return f"layer {i} has running statistics ({', '.join(names)})"
    return ""


def pieces_for(model: PipelineModel, tensor: int) -> list[range]:
    """The pieces of a model. Raises BadArgument if `tensor` nodes cannot compute its split layers
    together.
    """
    cuts = pieces(model.layers)
    split = {len(piece) for piece in cuts} - {1}
    if tensor > 1 and (not split or any(parts % tensor for parts in split)):
        has = (
            f"its split layers have {', '.join(map(str, sorted(split)))}"
            if split
            else "it has no split layers"
        )
        raise BadArgument(
            f"tensor is {tensor}: the model needs layers of {tensor} parts or a multiple, and "
            f"{has}; use"
            " split-transformer, or make them with agileml.pipeline.tensor_parts.split_layer"
        )

    return cuts


def _weight_bytes(model: PipelineModel) -> list[float]:
    return [
        float(sum(array.nbytes for array in model.initial(layer)))
        for layer in range(len(model.layers))
    ]


def _costs(
    model: PipelineModel, cuts: Sequence[range], seconds: Sequence[float] | None = None
) -> Sequence[float]:
    """The costs of pieces."""
    if seconds is None:
        sizes = _weight_bytes(model)
        return [1.0 + sum(sizes[layer] for layer in piece) for piece in cuts]
    if len(seconds) != len(cuts):
        raise BadArgument(
            f"the profile has {len(seconds)} layers, and the model {len(cuts)}: profile this model"
        )
    return seconds


def planned_training(
    plan: ParallelPlan, model: PipelineModel, batches: int, every: int | None = None
) -> PipelinePlan:
    """Trains a model as `plan` splits it; with other numbers of nodes, by the weights of its
    layers.
    """
    cuts = pieces_for(model, plan.tensor)
    covered = [
        layer for stage in plan.stages for layer in range(stage.layers[0], stage.layers[1] + 1)
    ]

    if covered != list(range(len(cuts))):
        raise BadArgument(
            f"the plan of {plan.model} is for {max(covered) + 1} layers, and the model has "
            f"{len(cuts)}: profile this model, and plan again"
        )

    layout = planned_layout(plan)
    most_pipelines = 1 if _moving_buffers(model) else inf
    rules = LayoutRules(plan.scheme, layout.batch, plan.chunks, plan.depth, most_pipelines)
    costs = _costs(model, cuts)
    others = layouts_of_pieces(costs, cuts, rules, plan.devices, plan.tensor)
    planned = {plan.devices: over_layers(layout, cuts, plan.tensor)}

    return PipelinePlan(
        batches,
        layout.batch,
        plan.scheme,
        plan.chunks,
        plan.recompute,
        plan.every if every is None else every,
        plan.depth,
        plan.devices,
        {**others, **planned},
        plan.tensor,
    )
