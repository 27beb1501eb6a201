"""The controller of an elastic pipeline: events in, instructions out.

Work proceeds in segments of whole batches. A segment counts once every node has reported its end; until then each node
keeps the state from before the segment. So all nodes can repeat a segment, whatever is lost in it; if the only copy of
a layer is gone, all nodes start from an older backup.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from agileml.errors import JobFailed
from agileml.pipeline.elastic.layouts import assign
from agileml.pipeline.elastic.messages import (
    CONTROLLER,
    INITIAL,
    BatchesDone,
    FramesLost,
    LeavePipeline,
    NodeFailed,
    NodeGone,
    NodeInstruction,
    NodeJoined,
    NodeReady,
    NodeWarned,
    PipelineEvent,
    RunBatches,
    TakeSeat,
)
from agileml.pipeline.elastic.seats import PipelineLayout, work_orders
from agileml.pipeline.schedule.schemes import FLUSHING


class ElasticPhase(Enum):
    """Whether the nodes wait, move layers, run batches or have finished."""

    WAITING = auto()
    """There are too few nodes."""
    MOVING = auto()
    RUNNING = auto()
    FINISHED = auto()


@dataclass(frozen=True)
class ElasticSettings:
    """The settings of a run. `every`: batches between backups."""

    scheme: str
    batches: int
    layouts: Mapping[int, PipelineLayout]
    layer_bytes: Sequence[float]
    every: int = 1

    @property
    def batch(self) -> int:
        """Microbatches in a batch, the same in all layouts."""
        return next(iter(self.layouts.values())).batch


@dataclass(frozen=True)
class EpochRecord:
    """One plan of the run: when, with which batch and on which nodes it began; training went on at `running`."""

    epoch: int
    batch: int
    began: float
    nodes: tuple[str, ...]
    layout: PipelineLayout
    running: float | None = None


@dataclass
class ElasticController:
    """`handle` is the only entry. `losses` has the loss of each microbatch that counts."""

    settings: ElasticSettings
    batch: int = 0
    backup: int = 0
    """The batch before which the controller has a copy of all layers."""
    losses: dict[int, float] = field(default_factory=dict)
    phase: ElasticPhase = ElasticPhase.WAITING
    epoch: int = 0
    history: list[EpochRecord] = field(default_factory=list)
    redone: int = 0
    """Batches that were processed more than once."""

    def __post_init__(self) -> None:
        self._leaving: dict[str, bool] = {}
        """All nodes, and whether each was warned."""
        self._held: dict[str, frozenset[int]] = {}
        """Layers of each node as of `batch`."""
        self._seated: tuple[str, ...] = ()
        self._waiting_for: set[str] = set()
        self._reported: dict[int, float] = {}
        self._changed = False
        self._last = self.batch

    def handle(self, event: PipelineEvent, now: float) -> list[tuple[str, NodeInstruction]]:
        """The instructions that follow from an event, each with its node."""
        match event:
            case _ if self.phase is ElasticPhase.FINISHED:
                pass
            case NodeJoined(node):
                self._leaving[node], self._held[node] = False, frozenset()
                return self._change(now)
            case NodeWarned(node) if node in self._leaving:
                self._leaving[node] = True
                return self._change(now)
            case NodeGone(node) if node in self._leaving:
                return self._gone(node, now)
            case NodeReady(epoch=epoch) | BatchesDone(epoch=epoch) | FramesLost(epoch=epoch) if epoch == self.epoch:
                return self._progress(event, now)
            case NodeFailed(node, message):
                raise JobFailed(f"{node}: {message}")
        return []

    def _progress(self, event: NodeReady | BatchesDone | FramesLost, now: float) -> list[tuple[str, NodeInstruction]]:
        """A report of the current epoch."""
        match event:
            case NodeReady(node):
                return self._ready(node, now)
            case BatchesDone(node, _, losses):
                return self._done(node, losses, now)
            case FramesLost():
                # Nobody knows which frames are lost, so all nodes start again from the state before this work.
                return self._plan(now) if self.phase is not ElasticPhase.WAITING else []

    def resume(self, batch: int, losses: Mapping[int, float]) -> None:
        """Goes on from a backup of an earlier process."""
        self.batch = self.backup = self._last = batch
        self.losses = dict(losses)
        if batch >= self.settings.batches:
            self.phase = ElasticPhase.FINISHED

    @property
    def finished(self) -> bool:
        return self.phase is ElasticPhase.FINISHED

    def _change(self, now: float) -> list[tuple[str, NodeInstruction]]:
        """Nodes have come, or will go: batches that are running are finished first."""
        self._changed = True
        return self._plan(now) if self.phase is ElasticPhase.WAITING else []

    def _gone(self, node: str, now: float) -> list[tuple[str, NodeInstruction]]:
        del self._leaving[node], self._held[node]
        needed = node in self._seated or self.phase is ElasticPhase.MOVING
        return self._plan(now) if needed or self.phase is ElasticPhase.WAITING else []

    def _ready(self, node: str, now: float) -> list[tuple[str, NodeInstruction]]:
        self._waiting_for.discard(node)
        if self.phase is not ElasticPhase.MOVING or self._waiting_for:
            return []
        for member in self._leaving:
            self._held[member] = frozenset()
        for seat, member in zip(self._layout.seats(), self._seated, strict=True):
            self._held[member] = frozenset(self._layout.held(seat))
        released: list[tuple[str, NodeInstruction]] = []
        for member in [member for member, leaving in self._leaving.items() if leaving and member not in self._seated]:
            del self._leaving[member], self._held[member]
            released.append((member, LeavePipeline(self.epoch)))
        return released + (self._plan(now) if self._changed else self._run(now))

    def _done(self, node: str, losses: dict[int, float], now: float) -> list[tuple[str, NodeInstruction]]:
        self._waiting_for.discard(node)
        self._reported |= losses
        if self._waiting_for:
            return []
        self.losses |= self._reported
        self.batch = self._last
        if self._backup_due():
            # Every node sends its copies before it reports.
            self.backup = self.batch
        if self.batch >= self.settings.batches:
            self.phase = ElasticPhase.FINISHED
            return [(member, LeavePipeline(self.epoch)) for member in self._leaving]
        return self._plan(now) if self._changed else self._run(now)

    def _run(self, now: float) -> list[tuple[str, NodeInstruction]]:
        self.phase = ElasticPhase.RUNNING
        every = self.settings.every
        # A flush drains the pipeline anyway, so its segments are single batches. Others run until the next backup.
        length = 1 if self.settings.scheme in FLUSHING else every - self.batch % every
        self._last = min(self.batch + length, self.settings.batches)
        self._reported, self._waiting_for = {}, set(self._seated)
        if self.history[-1].running is None:
            self.history[-1] = EpochRecord(**{**vars(self.history[-1]), "running": now})
        orders = work_orders(self._layout, self._seated, self.settings.scheme, self.batch, self._last)
        due = self._backup_due()
        copied: set[int] = set()
        instructions: list[tuple[str, NodeInstruction]] = []
        for node, work in orders.items():
            own = {layer for span in work.spans for layer in span} - copied if due else set()
            copied |= own
            instructions.append((node, RunBatches(self.epoch, self.batch, self._last, work, tuple(sorted(own)))))
        return instructions

    def _backup_due(self) -> bool:
        return self._last % self.settings.every == 0 or self._last == self.settings.batches

    def _plan(self, now: float) -> list[tuple[str, NodeInstruction]]:
        """A new epoch with the nodes that stay, from the state of the nodes, or from the backup if a layer is lost."""
        self.epoch += 1
        self._changed = False
        self._seated = ()
        staying = [node for node, leaving in self._leaving.items() if not leaving]
        sizes = [count for count in self.settings.layouts if count <= len(staying)]
        self.phase = ElasticPhase.MOVING if sizes else ElasticPhase.WAITING
        if not sizes:
            return []
        layers = range(len(self.settings.layer_bytes))
        held_somewhere = frozenset[int]().union(*self._held.values())
        if any(layer not in held_somewhere for layer in layers):
            self._roll_back()
        self._layout = self.settings.layouts[max(sizes)]
        self._seated = tuple(assign(self._layout, staying, self._held, self.settings.layer_bytes))
        self._waiting_for = set(self._seated)
        self.history.append(EpochRecord(self.epoch, self.batch, now, self._seated, self._layout))
        return self._seat()

    def _roll_back(self) -> None:
        if self.backup < self.batch:
            self._held = dict.fromkeys(self._held, frozenset())
            self.redone += self.batch - self.backup
            self.batch = self.backup
            first = self.batch * self.settings.batch
            self.losses = {k: loss for k, loss in self.losses.items() if k < first}

    def _seat(self) -> list[tuple[str, NodeInstruction]]:
        spare = CONTROLLER if self.backup == self.batch and self.batch else INITIAL
        gives: dict[str, list[tuple[int, str]]] = {node: [] for node in self._leaving}
        seats: dict[str, TakeSeat] = {}
        for seat, node in zip(self._layout.seats(), self._seated, strict=True):
            layers = self._layout.held(seat)
            sources = {}
            for layer in layers:
                if layer in self._held[node]:
                    continue
                holders = [holder for holder, held in self._held.items() if layer in held]
                sources[layer] = min(holders, key=lambda holder: len(gives[holder]), default=spare)
                if holders:
                    gives[sources[layer]].append((layer, node))
            seats[node] = TakeSeat(self.epoch, self.batch, tuple(layers), sources, (), ())
        return [
            (node, self._seat_of(seats.get(node), tuple(gives[node])))
            for node in self._leaving
            if node in seats or gives[node]
        ]

    def _seat_of(self, seat: TakeSeat | None, gives: tuple[tuple[int, str], ...]) -> TakeSeat:
        """A node without a seat may still have to hand its layers on."""
        layers, sources = (seat.layers, seat.sources) if seat else ((), {})
        peers = tuple(sorted(set(self._leaving)))
        return TakeSeat(self.epoch, self.batch, layers, sources, gives, peers)
