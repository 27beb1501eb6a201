"""Layouts and work orders: which layers a node holds, the order of its work, and the nodes with
which it works.

The messages between the controller of a pipeline and its nodes are at the end.
"""

from collections import UserDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from agileml.errors import BadArgument
from agileml.pipeline.plan.candidates import LayerSpans
from agileml.pipeline.schedule.schedules import (
    Pass,
    PipelineStep,
    ScheduleShape,
    StepOrder,
    orders,
    replicated_orders,
    versions_used,
)
from agileml.protocol.messages import Restored, Saved

Seat = tuple[int, int, int]
"""Pipeline (or replica), stage and lane."""
ALL_LANES = -1


@dataclass(frozen=True)
class PipelineLayout:
    """Pipelines with their own numbers of stages, and the microbatches of a batch that each
    processes.
    """

    pipelines: tuple[LayerSpans, ...]
    """For each pipeline the layers of its virtual stages: chunk c of stage s is number c p + s."""
    shares: tuple[int, ...]
    chunks: int = 1
    replicas: tuple[int, ...] = ()
    """Of each stage of a single pipeline under PipeDream; empty where pipelines are replicated as a
    whole."""
    extra: int = 0
    """With replicas: inputs in flight beyond the depth."""
    lanes: tuple[int, ...] = ()
    """With tensor parallelism, for each layer the lane that computes the layer, or `ALL_LANES`."""

    def __post_init__(self) -> None:
        if self.replicas and (
            len(self.pipelines) > 1 or len(self.replicas) != len(self.pipelines[0])
        ):
            raise BadArgument(
                f"replicas are {self.replicas}: give one number for each stage of a single pipeline"
            )
        if self.replicas and self.tensor > 1:
            raise BadArgument(
                "stages with different numbers of replicas have no tensor parallelism: set tensor "
                "to 1"
            )
        if len(self.pipelines) != len(self.shares) or min(self.shares) < 1:
            raise BadArgument(
                f"shares are {self.shares}: every pipeline needs at least one microbatch of a batch"
            )

    @property
    def batch(self) -> int:
        """Microbatches in a batch."""
        return sum(self.shares)

    def depth(self, pipeline: int) -> int:
        return len(self.pipelines[pipeline]) // self.chunks

    @property
    def tensor(self) -> int:
        """Nodes of a stage, each with other parts of its split layers."""
        return max(self.lanes, default=0) + 1

    def seats(self) -> list[Seat]:
        """All seats, in the order in which nodes take them."""
        if self.replicas:
            return [(r, s, 0) for s, count in enumerate(self.replicas) for r in range(count)]
        stages = [(q, s) for q in range(len(self.pipelines)) for s in range(self.depth(q))]
        return [(q, s, lane) for q, s in stages for lane in range(self.tensor)]

    def chunks_of(self, seat: Seat) -> tuple[tuple[int, ...], ...]:
        """The layers of each chunk of a seat."""
        pipeline, stage, lane = (0 if self.replicas else seat[0]), *seat[1:]
        spans = self.pipelines[pipeline][stage :: self.depth(pipeline)]
        return tuple(
            tuple(
                layer
                for layer in range(a, b + 1)
                if not self.lanes or self.lanes[layer] in (ALL_LANES, lane)
            )
            for a, b in spans
        )

    def held(self, seat: Seat) -> list[int]:
        """The layers of a seat."""
        return [layer for chunk in self.chunks_of(seat) for layer in chunk]


@dataclass(frozen=True)
class WorkOrder:
    """One node's work from batch `first` up to `last`: operations with the weight version of each
    microbatch.
    """

    spans: tuple[tuple[int, ...], ...]
    """The layers of each chunk."""
    depth: int
    stage: int
    order: StepOrder
    versions: dict[int, int]
    """By microbatch."""
    before: tuple[str, ...]
    """Nodes of the previous virtual stage; microbatch k is with number k modulo their count."""
    after: tuple[str, ...]
    chains: dict[int, tuple[str, ...]]
    """For each layer the nodes whose gradients are added up, in this order."""
    divisor: int
    """Microbatches whose mean gradient makes an update."""
    others: tuple[str, ...] = ()
    """The nodes of the stage's other lanes."""


def work_orders(
    layout: PipelineLayout, nodes: Sequence[str], scheme: str, first: int, last: int
) -> dict[str, WorkOrder]:
    """The work of all seats, which `nodes` take in the order of `layout.seats()`, for batches
    `first` to `last` - 1.
    """
    seats = dict(zip(layout.seats(), nodes, strict=True))
    if layout.replicas:
        return _replicated(layout, seats, first, last)

    holders: dict[tuple[int, int], list[str]] = {}
    for seat, node in seats.items():
        for layer in layout.held(seat):
            # Every lane adds up its own gradients: those of a layer that all lanes have are the
            # same in each.
            holders.setdefault((layer, seat[2]), []).append(node)

    starts = [0, *accumulate(layout.shares)]
    work = {}
    for q in range(len(layout.pipelines)):
        p = layout.depth(q)
        share = layout.shares[q]
        shape = ScheduleShape(scheme, p, share, last - first, layout.chunks)
        for s, local in enumerate(orders(shape)):
            steps = []
            for step in local:
                # Numbers of microbatches count all pipelines and all batches from the beginning.
                batch, place = divmod(step.microbatch, share)
                number = (first + batch) * layout.batch + starts[q] + place
                steps.append(PipelineStep(step.kind, number, step.chunk))
            order = tuple(steps)
            versions = versions_used(scheme, order, p, layout.batch, first)
            for lane in range(layout.tensor):
                seat = (q, s, lane)
                chunks = layout.chunks_of(seat)
                before = (seats[q, (s - 1) % p, lane],)
                after = (seats[q, (s + 1) % p, lane],)
                chains = {layer: tuple(holders[layer, lane]) for layer in layout.held(seat)}
                lanes = [other for other in range(layout.tensor) if other != lane]
                others = tuple(seats[q, s, other] for other in lanes)
                size = layout.batch
                work[seats[seat]] = WorkOrder(
                    chunks, p, s, order, versions, before, after, chains, size, others
                )

    return work


def _replicated(
    layout: PipelineLayout, seats: Mapping[Seat, str], first: int, last: int
) -> dict[str, WorkOrder]:
    """PipeDream with stages of different numbers of replicas: input k goes to replica k mod r of
    each stage.
    """
    (spans,) = layout.pipelines
    for count in layout.replicas:
        if first % count or last % count:
            raise BadArgument(
                f"inputs {first} to {last} are not whole rounds of {count} replicas: use multiples"
            )

    stages = [[seats[r, s, 0] for r in range(count)] for s, count in enumerate(layout.replicas)]
    work = {}
    for s, lines in enumerate(replicated_orders(layout.replicas, last - first, layout.extra)):
        layers = tuple(layout.held((0, s, 0)))
        count = layout.replicas[s]
        before = tuple(stages[s - 1]) if s else ()
        after = tuple(stages[s + 1]) if s + 1 < len(spans) else ()
        chains = {layer: tuple(stages[s]) for layer in layers}
        for node, line in zip(stages[s], lines, strict=True):
            order = tuple(PipelineStep(step.kind, step.microbatch + first) for step in line)
            used = versions_used("pipedream", order, len(spans), 1, first // count)
            work[node] = WorkOrder(
                (layers,), len(spans), s, order, used, before, after, chains, count
            )

    return work


def oldest_needed(order: StepOrder, versions: dict[int, int]) -> list[int]:
    """For each operation the oldest version that this or a later operation uses."""
    oldest = 1 << 62
    needed = []
    for step in reversed(order):
        if step.kind is not Pass.UPDATE:
            oldest = min(oldest, versions[step.microbatch])
        needed.append(oldest)
    return needed[::-1]


class HeldLayers(UserDict[str, dict[int, frozenset[int]]]):
    """By node and batch, the layers that the node holds as they were before that batch."""

    def add(self, node: str, batch: int, layers: Iterable[int]) -> None:
        states = self[node]
        states[batch] = states.get(batch, frozenset()) | frozenset(layers)

    def keep(self, batches: Iterable[int]) -> None:
        """All nodes drop the states of other batches."""
        kept = set(batches)
        self.data = {
            node: {batch: layers for batch, layers in states.items() if batch in kept}
            for node, states in self.items()
        }

    def at(self, batch: int) -> dict[str, frozenset[int]]:
        """The layers of each node."""
        return {node: states.get(batch, frozenset()) for node, states in self.items()}

    def holders(self, layer: int, batch: int) -> list[str]:
        return [node for node, layers in self.at(batch).items() if layer in layers]

    def newest(self, layers: int, count: int, latest: int) -> int:
        """The newest batch up to `latest` for which `count` nodes hold each layer; -1 if there is
        none.
        """
        batches = {batch for states in self.values() for batch in states if batch <= latest}
        safe = (
            batch
            for batch in batches
            if min(len(self.holders(layer, batch)) for layer in range(layers)) >= count
        )
        return max(safe, default=-1)


STORE = "store"
"""The source of a layer that no node holds."""
INITIAL = "initial"
"""The source of a layer before its first update: every node can compute such a layer."""


@dataclass(frozen=True)
class TakeSeat:
    """Take part in an epoch: hold these layers as they were before `batch`."""

    epoch: int
    batch: int
    layers: tuple[int, ...]
    sources: dict[int, str]
    """By layer: a node, `STORE` or `INITIAL`. Layers that are missing here are at the node."""
    gives: tuple[tuple[int, str], ...]
    """Layers to send to other nodes."""
    peers: tuple[str, ...]
    keep: tuple[int, ...] = ()
    """The batches whose states from before them the node keeps, as far as it has them."""


@dataclass(frozen=True)
class RunBatches:
    """Process batches `first` to `last` - 1."""

    epoch: int
    first: int
    last: int
    work: WorkOrder
    keep: tuple[int, ...]
    """As in `TakeSeat`."""


@dataclass(frozen=True)
class CopyLayers:
    """Copy layers as they were before `batch`: to other nodes, and to the store."""

    epoch: int
    batch: int
    copies: tuple[tuple[int, str], ...]
    saved: tuple[int, ...]


@dataclass(frozen=True)
class BatchesDone:
    """The node has finished its work order."""

    node: str
    epoch: int
    losses: dict[int, float]


@dataclass(frozen=True)
class CopyKept:
    """The node has a copy of a layer as it was before `batch`."""

    node: str
    epoch: int
    batch: int
    layer: int


@dataclass(frozen=True)
class FramesLost:
    """The node's link to another node broke and was replaced: frames of this epoch may be lost."""

    node: str
    epoch: int


NodeInstruction = TakeSeat | RunBatches | CopyLayers
NodeReport = Restored | BatchesDone | CopyKept | Saved | FramesLost
"""A node has the layers of its seat, has finished its work, has a copy, has saved a layer, or lacks
frames."""
