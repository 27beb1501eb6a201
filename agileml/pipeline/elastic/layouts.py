"""The layout for every number of nodes, computed before it is needed, and the choice among those
that fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from agileml.errors import BadArgument
from agileml.pipeline.elastic.seats import ALL_LANES, PipelineLayout
from agileml.pipeline.plan.candidates import LayerSpans, balanced_spans
from agileml.pipeline.plan.parallel_plan import ParallelPlan
from agileml.pipeline.profile.model_profile import (
    LayerCost,
    ModelProfile,
    SpanTables,
    tensor_degrees,
)
from agileml.pipeline.schedule.schedules import FLUSHING, STASHING


@dataclass(frozen=True)
class LayoutRules:
    """The rules that all layouts of a job follow, whatever the number of nodes."""

    scheme: str
    batch: int
    """Microbatches in a batch."""
    chunks: int = 1
    least_stages: int = 1
    """Fewer devices cannot hold the model."""
    most_pipelines: float = inf


def layouts(seconds: Sequence[float], rules: LayoutRules, most: int) -> dict[int, PipelineLayout]:
    """The fastest layout for each number of nodes up to `most`. Nodes may stay spare; small numbers
    may be left out.
    """
    layers = tuple(LayerCost(str(i), cost, 0, 0, 0, 0) for i, cost in enumerate(seconds))
    profile = ModelProfile("model", 1, layers)
    tables = SpanTables.of(profile)
    spans = balanced_spans(tables, most * rules.chunks)
    fastest: dict[int, tuple[float, PipelineLayout]] = {}

    for nodes in range(rules.least_stages, most + 1):
        options = [fastest[nodes - 1]] if nodes - 1 in fastest else []
        for pipelines in range(1, int(min(nodes, rules.most_pipelines)) + 1):
            option = _layout(nodes, pipelines, spans, tables, rules)
            if option:
                options.append(option)
        if options:
            fastest[nodes] = min(options, key=lambda option: option[0])

    return {nodes: layout for nodes, (_, layout) in fastest.items()}


def update_seconds(layout: PipelineLayout, seconds: Sequence[float], scheme: str) -> float:
    """The time of an update, from that of a microbatch in each layer; links count as fast."""
    bubble = 1 / layout.chunks if scheme in FLUSHING else 0.0
    times = [0.0]
    for q, spans in enumerate(layout.pipelines):
        replicas = layout.replicas or (1,) * len(spans)
        slowest = max(
            sum(seconds[a : b + 1]) / count for (a, b), count in zip(spans, replicas, strict=True)
        )
        waiting = (layout.depth(q) - 1) * bubble
        microbatches = layout.shares[q] + waiting
        times.append(microbatches * slowest * layout.chunks)

    return max(times) / layout.tensor


def planned_layout(plan: ParallelPlan) -> PipelineLayout:
    """The layout of a plan on all of its devices."""
    spans = tuple(stage.layers for stage in plan.stages)
    replicas = tuple(stage.replicas for stage in plan.stages)
    if plan.scheme in STASHING:
        return PipelineLayout((spans,), (1,), replicas=replicas if max(replicas) > 1 else ())
    return PipelineLayout((spans,) * replicas[0], (plan.microbatches,) * replicas[0], plan.chunks)


def over_layers(layout: PipelineLayout, pieces: Sequence[range], tensor: int) -> PipelineLayout:
    """A layout of pieces as one of layers; each of `tensor` lanes has consecutive parts of a
    piece."""
    pipelines = []
    for spans in layout.pipelines:
        of_layers = tuple((pieces[a][0], pieces[b][-1]) for a, b in spans)
        pipelines.append(of_layers)
    if tensor <= 1:
        return replace(layout, pipelines=tuple(pipelines), lanes=())

    lanes: list[int] = []
    for piece in pieces:
        parts = len(piece)
        if parts > 1:
            lanes += [part * tensor // parts for part in range(parts)]
        else:
            lanes += [ALL_LANES] * parts
    return replace(layout, pipelines=tuple(pipelines), lanes=tuple(lanes))


def check_cuts(layout: PipelineLayout, pieces: Sequence[range]) -> None:
    """Raises BadArgument for a stage that begins or ends between the parts of a layer."""
    firsts = {piece[0] for piece in pieces}
    lasts = {piece[-1] for piece in pieces}
    for span in (span for spans in layout.pipelines for span in spans):
        if span[0] not in firsts or span[1] not in lasts:
            raise BadArgument(
                f"a pipeline stage has layers {span[0]} to {span[1]}, and one of them is a part of "
                "a layer whose other parts are elsewhere: keep the parts of a layer in one stage"
            )


def layouts_of_pieces(
    seconds: Sequence[float], pieces: Sequence[range], rules: LayoutRules, most: int, tensor: int
) -> dict[int, PipelineLayout]:
    """As `layouts`, with `tensor` nodes for each device; where that is too many, with the next
    smaller divisor.
    """
    laid_out = {
        nodes: over_layers(layout, pieces, 1)
        for nodes, layout in layouts(seconds, rules, most).items()
    }

    for degree in tensor_degrees(tensor):
        wide = layouts(seconds, rules, most // degree)
        usable = {nodes: wide[nodes // degree] for nodes in laid_out if nodes // degree in wide}
        laid_out |= {nodes: over_layers(layout, pieces, degree) for nodes, layout in usable.items()}
    return laid_out


def _layout(
    nodes: int,
    pipelines: int,
    spans: Mapping[int, LayerSpans],
    tables: SpanTables,
    rules: LayoutRules,
) -> tuple[float, PipelineLayout] | None:
    """Depths as equal as possible, and microbatches dealt one by one to the pipeline that is done
    first.
    """
    depths = [nodes // pipelines + (q < nodes % pipelines) for q in range(pipelines)]
    if min(depths) < rules.least_stages or max(depths) * rules.chunks not in spans:
        return None
    if rules.scheme in STASHING:
        if pipelines > 1:
            return None
        return _slowest(spans[nodes], tables), PipelineLayout((spans[nodes],), (1,))

    steps = [_slowest(spans[p * rules.chunks], tables) * rules.chunks for p in depths]
    units = [p if rules.scheme == "interleaved" else 1 for p in depths]
    shares = [p if rules.scheme in ("interleaved", "2bw") else 1 for p in depths]
    while sum(shares) < rules.batch:
        fitting = [q for q in range(pipelines) if sum(shares) + units[q] <= rules.batch]
        if not fitting:
            return None
        q = min(fitting, key=lambda q: (shares[q] + units[q] + depths[q] - 1) * steps[q])
        shares[q] += units[q]

    if sum(shares) != rules.batch:
        return None

    bubble = 0.0 if rules.scheme == "2bw" else 1 / rules.chunks
    seconds = max((m + (p - 1) * bubble) * t for m, p, t in zip(shares, depths, steps, strict=True))
    chosen = tuple(spans[p * rules.chunks] for p in depths)
    return seconds, PipelineLayout(chosen, tuple(shares), rules.chunks)


def _slowest(spans: LayerSpans, tables: SpanTables) -> float:
    return max(float(tables.seconds[first, last]) for first, last in spans)


def assign(
    layout: PipelineLayout,
    nodes: Sequence[str],
    held: Mapping[str, frozenset[int]],
    sizes: Sequence[float],
) -> list[str]:
    """A node for every seat, so that the fewest bytes move."""
    from scipy.optimize import linear_sum_assignment

    wanted = [layout.held(seat) for seat in layout.seats()]
    missing = np.array(
        [
            [sum(sizes[layer] for layer in layers if layer not in held[node]) for node in nodes]
            for layers in wanted
        ]
    )

    assert missing.max(initial=0.0) < inf
    _, columns = linear_sum_assignment(missing)
    return [nodes[int(column)] for column in columns]


ASSUMED_BYTES_PER_SECOND = 1.25e8
"""Until layers have moved: 1 Gbit/s."""


@dataclass(frozen=True)
class LayoutOption:
    """A layout with a node for each of its seats."""

    layout: PipelineLayout
    seated: tuple[str, ...]
    moved_bytes: float
    """The size of the layers that its busiest node has to fetch."""
    relative_seconds: float
    """The time of an update, in the unit of the layouts' costs."""


def best_option(
    options: Sequence[LayoutOption], seconds: float | None, bytes_per_second: float, updates: float
) -> LayoutOption:
    """The option that is first to finish `updates` updates; before any was measured, the last one,
    with most nodes.

    `seconds` are those of an update for each unit of its relative cost; a node fetches this many
    bytes per second.
    """
    if seconds is None:
        return options[-1]

    best = options[-1]
    least = inf
    for option in reversed(options):
        moving = option.moved_bytes / bytes_per_second
        needed = moving + updates * seconds * option.relative_seconds
        if needed < least:
            best = option
            least = needed
    return best
