"""The controller of an elastic pipeline: which node holds what, as nodes come and go.

Work proceeds in segments of whole batches. A segment counts once every node has reported its end;
until then each node keeps the state from before the segment. So all nodes can repeat a segment,
whatever is lost in it. After a segment, nodes copy their layers to a neighbor, and now and then to
a store. If the only holder of a layer is gone, all nodes return to the newest batch before which
every layer is at some node, or in the store.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import pairwise

from agileml.core.roll_call import LEFT_BEHIND
from agileml.pipeline.elastic.layouts import (
    ASSUMED_BYTES_PER_SECOND,
    LayoutOption,
    assign,
    best_option,
)
from agileml.pipeline.elastic.seats import (
    INITIAL,
    STORE,
    BatchesDone,
    CopyKept,
    CopyLayers,
    FramesLost,
    HeldLayers,
    NodeInstruction,
    NodeReport,
    PipelineLayout,
    RunBatches,
    TakeSeat,
    work_orders,
)
from agileml.pipeline.schedule.schedules import FLUSHING
from agileml.protocol.messages import Leave, Restored, Saved

Instructions = list[tuple[str, NodeInstruction | Leave]]
"""Pairs of a node and an instruction for it. `Leave` is for a node that is no longer needed."""


class ElasticPhase(Enum):
    """Whether the nodes wait, move layers, run batches, save the result or have finished."""

    WAITING = auto()
    """There are too few nodes."""
    MOVING = auto()
    RUNNING = auto()
    SAVING = auto()
    """The last update is done."""
    FINISHED = auto()


@dataclass(frozen=True)
class ElasticSettings:
    """The settings of a run. `every`: batches between copies; `save_every`: in the store, as often
    if left out.
    """

    scheme: str
    batches: int
    layouts: Mapping[int, PipelineLayout]
    layer_bytes: Sequence[float]
    every: int = 1
    save_every: int | None = None
    relative_seconds: Mapping[int, float] = field(default_factory=dict)
    """The time of an update, by the number of nodes. If left out, more nodes are always faster."""

    @property
    def batch(self) -> int:
        """Microbatches in a batch, the same in all layouts."""
        return next(iter(self.layouts.values())).batch


@dataclass(frozen=True)
class EpochRecord:
    """One plan of the run: when, with which batch and on which nodes it began; training went on at
    `running`.
    """

    epoch: int
    batch: int
    began: float
    nodes: tuple[str, ...]
    layout: PipelineLayout
    running: float | None = None


@dataclass
class ElasticController:
    """Nodes `join`, are warned (`warn`) or lost (`lose`), and `report`; each returns the
    instructions that follow.

    `losses` has the loss of each microbatch that counts.
    """

    settings: ElasticSettings
    batch: int = 0
    backup: int = 0
    """The batch before which all layers are in the store."""
    losses: dict[int, float] = field(default_factory=dict)
    phase: ElasticPhase = ElasticPhase.WAITING
    epoch: int = 0
    history: list[EpochRecord] = field(default_factory=list)
    redone: int = 0
    """Batches that were processed more than once."""

    def __post_init__(self) -> None:
        self.limit = self.settings.batches
        """The number of batches, unless the run is ended earlier."""
        self._leaving: dict[str, bool] = {}
        """All nodes, and whether each was warned."""
        self._held = HeldLayers()
        self._seated: tuple[str, ...] = ()
        self._waiting_for: set[str] = set()
        self._reported: dict[int, float] = {}
        self._changed = False
        self._last = self.batch
        self._copying: tuple[int, frozenset[int]] | None = None
        """The batch and the layers of copies that neighbors have not confirmed."""
        self._saving: tuple[int, frozenset[int]] | None = None
        """As above, for the store."""
        self._update_seconds: float | None = None
        """As measured last, for each unit of an update's relative cost."""
        self._fetched_per_second = ASSUMED_BYTES_PER_SECOND
        """As measured last: bytes."""
        self._began = 0.0
        self._moved_bytes = 0.0

    def join(self, node: str, now: float) -> Instructions:
        """A node has joined."""
        if self.finished:
            return []
        self._leaving[node], self._held[node] = False, {}
        return self._change(now)

    def warn(self, node: str, now: float) -> Instructions:
        """A node will be taken away soon."""
        if self.finished or node not in self._leaving:
            return []
        self._leaving[node] = True
        return self._change(now)

    def lose(self, node: str, now: float) -> Instructions:
        """A node is gone."""
        if self.finished or node not in self._leaving:
            return []
        del self._leaving[node], self._held[node]
        needed = node in self._seated or self.phase is ElasticPhase.MOVING
        if needed or self.phase is ElasticPhase.WAITING:
            return self._plan(now)
        return []

    def report(self, report: NodeReport, now: float) -> Instructions:
        """A node has done something; reports of earlier epochs are dropped."""
        if self.finished or report.epoch != self.epoch:
            return []

        match report:
            case Restored(node):
                return self._ready(node, now)
            case BatchesDone(node, _, losses):
                return self._done(node, losses, now)
            case CopyKept():
                if self._copying is not None and self._copying[0] == report.batch:
                    self._held.add(report.node, report.batch, [report.layer])
                    missing = self._copying[1] - {report.layer}
                    self._copying = (report.batch, missing) if missing else None
            case Saved():
                return self._note_saved(report)
            case FramesLost():
                # Nobody knows which frames are lost, so all nodes start again from the state before
                # this work.
                if self.phase is not ElasticPhase.WAITING:
                    return self._plan(now)

        return []

    def resume(self, batch: int, losses: Mapping[int, float]) -> None:
        """Goes on from a backup of an earlier process."""
        self.batch = self.backup = self._last = batch
        self.losses = dict(losses)
        if batch >= self.limit:
            self.phase = ElasticPhase.FINISHED

    def end_soon(self) -> None:
        """Ends the run after the batches that are in progress."""
        self.limit = min(self.limit, max(self._last, self.batch + 1))

    @property
    def rescuing(self) -> bool:
        """Whether nodes save what would be lost with them, because too few stay."""
        return self.phase is ElasticPhase.WAITING and self._saving is not None

    @property
    def finished(self) -> bool:
        return self.phase is ElasticPhase.FINISHED

    def _change(self, now: float) -> Instructions:
        """Nodes have come, or will go: batches that are running are finished first."""
        self._changed = True
        if self.phase is ElasticPhase.WAITING:
            return self._plan(now)
        return []

    def _ready(self, node: str, now: float) -> Instructions:
        self._waiting_for.discard(node)
        if self.phase is not ElasticPhase.MOVING or self._waiting_for:
            return []

        if self._moved_bytes > 0 and now > self._began:
            self._fetched_per_second = self._moved_bytes / (now - self._began)
        for member in self._leaving.keys() - set(self._seated):
            self._held[member] = {}
        for seat, member in zip(self._layout.seats(), self._seated, strict=True):
            self._held.add(member, self.batch, self._layout.held(seat))
        released: Instructions = []

        for member in [
            member
            for member, leaving in self._leaving.items()
            if leaving and member not in self._seated
        ]:
            del self._leaving[member], self._held[member]
            released.append((member, Leave(LEFT_BEHIND)))

        return released + self._go_on(now)

    def _done(self, node: str, losses: dict[int, float], now: float) -> Instructions:
        self._waiting_for.discard(node)
        self._reported |= losses
        if self._waiting_for:
            return []

        relative = self._relative * (self._last - self.batch)
        if relative > 0:
            self._update_seconds = (now - self._began) / relative
        self.losses |= self._reported
        self.batch = self._last
        for seat, member in zip(self._layout.seats(), self._seated, strict=True):
            self._held.add(member, self.batch, self._layout.held(seat))

        return self._go_on(now)

    def _go_on(self, now: float) -> Instructions:
        """All seated nodes have the state from before `batch`."""
        if self.batch >= self.limit:
            return self._end()
        if self._changed:
            return self._plan(now)

        self.phase = ElasticPhase.RUNNING
        every = self.settings.every
        # The next copies wait for the last ones, so that they never pile up.
        copied = bool(self.batch) and self.batch % every == 0 and self._copying is None

        # A single node has no neighbor.
        save_every = (self.settings.save_every if len(self._seated) > 1 else None) or every
        saved = self.batch > self.backup and self.batch % save_every == 0 and self._saving is None
        copies = self._copies(copied=copied, saved=saved)

        # A flush drains the pipeline anyway, so its segments are single batches. Others run until
        # the next copies.
        length = 1 if self.settings.scheme in FLUSHING else every - self.batch % every
        self._last = min(self.batch + length, self.limit)
        self._reported = {}
        self._waiting_for = set(self._seated)
        self._began = now
        if self.history[-1].running is None:
            self.history[-1] = replace(self.history[-1], running=now)
        orders = work_orders(
            self._layout, self._seated, self.settings.scheme, self.batch, self._last
        )
        keep = self._kept()
        self._held.keep(keep)

        return copies + [
            (node, RunBatches(self.epoch, self.batch, self._last, work, keep))
            for node, work in orders.items()
        ]

    def _end(self) -> Instructions:
        if self.backup >= self.batch:
            self.phase = ElasticPhase.FINISHED
            return [(member, Leave(LEFT_BEHIND)) for member in self._leaving]
        self.phase = ElasticPhase.SAVING
        return self._copies(copied=False, saved=True)

    # -- copies ------------------------------------------------------------------------------------

    def _copies(self, *, copied: bool, saved: bool) -> Instructions:
        copies = dict[str, tuple[tuple[int, str], ...]]()
        if copied and len(self._seated) > 1:
            # To the next node, so that no layer is at a single one.
            for node, to in pairwise((*self._seated, self._seated[0])):
                kept = sorted(self._held[node].get(self.batch, ()))
                alone = (layer for layer in kept if self._held.holders(layer, self.batch) == [node])
                copies[node] = tuple((layer, to) for layer in alone)

        to_save = self._to_save(self._seated) if saved else {}
        pending = frozenset(layer for layers in copies.values() for layer, _ in layers)
        if pending:
            self._copying = self.batch, pending
        return [
            (node, CopyLayers(self.epoch, self.batch, copies.get(node, ()), to_save.get(node, ())))
            for node in self._seated
            if copies.get(node) or to_save.get(node)
        ]

    def _to_save(self, nodes: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """The layers that each of these nodes is to save; each layer once."""
        self._saving = self.batch, frozenset(self._layers)
        savers = {
            layer: next(node for node in nodes if node in self._held.holders(layer, self.batch))
            for layer in self._layers
        }
        return {
            node: tuple(layer for layer, saver in savers.items() if saver == node) for node in nodes
        }

    def _note_saved(self, saved: Saved) -> Instructions:
        if self._saving is None or self._saving[0] != saved.clock:
            return []
        missing = self._saving[1] - {saved.partition}
        self._saving = (saved.clock, missing) if missing else None
        if missing:
            return []
        self.backup = saved.clock
        if self.phase is ElasticPhase.SAVING:
            return self._end()
        return []

    def _kept(self) -> tuple[int, ...]:
        """Batches to which a loss may lead back: the nodes keep the states from before them."""
        safe = self._held.newest(len(self._layers), 2, self.batch)
        kept = {self.batch, safe if safe > self.backup else self.batch}
        kept |= {pending[0] for pending in (self._copying,) if pending is not None}
        return tuple(sorted(kept))

    # -- plans -------------------------------------------------------------------------------------

    @property
    def _layers(self) -> range:
        return range(len(self.settings.layer_bytes))

    def _plan(self, now: float) -> Instructions:
        """A new epoch with the nodes that stay, from the newest state that there is of all
        layers."""
        self.epoch += 1
        self._changed = False
        self._copying = None
        self._saving = None
        self._seated = ()
        staying = [node for node, leaving in self._leaving.items() if not leaving]
        sizes = sorted(count for count in self.settings.layouts if count <= len(staying))
        self.phase = ElasticPhase.MOVING if sizes else ElasticPhase.WAITING

        if not sizes:
            # All nodes, also those that are warned, save what is not in the store.
            if self._held.newest(len(self._layers), 1, self.batch) <= self.backup:
                return []
            self._roll_back()
            to_save = self._to_save(tuple(self._leaving))
            return [
                (node, CopyLayers(self.epoch, self.batch, (), layers))
                for node, layers in to_save.items()
                if layers
            ]

        self._roll_back()
        # The usual number of updates between changes so far, and at most the remaining ones.
        ahead = min(self.limit - self.batch, max(self.batch, 1) / max(len(self.history), 1))
        options = [self._option(size, staying) for size in sizes]
        chosen = best_option(options, self._update_seconds, self._fetched_per_second, ahead)

        self._layout = chosen.layout
        self._seated = chosen.seated
        self._moved_bytes = chosen.moved_bytes

        self._relative = chosen.relative_seconds
        self._began = now
        self._waiting_for = set(self._seated)
        record = EpochRecord(self.epoch, self.batch, now, self._seated, self._layout)
        self.history.append(record)
        return self._seat()

    def _option(self, size: int, staying: Sequence[str]) -> LayoutOption:
        layout = self.settings.layouts[size]
        sizes = self.settings.layer_bytes
        held = self._held.at(self.batch)

        seated = tuple(assign(layout, staying, held, sizes))
        fetched = (
            sum(sizes[layer] for layer in layout.held(seat) if layer not in held[node])
            for seat, node in zip(layout.seats(), seated, strict=True)
        )

        # Before the first update, each node computes its own layers.
        moved = max(fetched) if self.batch else 0.0
        return LayoutOption(
            layout, seated, moved, self.settings.relative_seconds.get(size, 1 / size)
        )

    def _roll_back(self) -> None:
        """Back to the newest batch before which every layer is at a node or in the store."""
        newest = max(self._held.newest(len(self._layers), 1, self.batch), self.backup)
        for states in self._held.values():
            for batch in [batch for batch in states if batch > newest]:
                del states[batch]

        if newest < self.batch:
            self.redone += self.batch - newest
            self.batch = newest
            first = self.batch * self.settings.batch
            self.losses = {k: loss for k, loss in self.losses.items() if k < first}

    def _seat(self) -> Instructions:
        spare = STORE if self.backup == self.batch and self.batch else INITIAL
        gives: dict[str, list[tuple[int, str]]] = {node: [] for node in self._leaving}
        seats: dict[str, dict[int, str]] = {}
        for seat, node in zip(self._layout.seats(), self._seated, strict=True):
            sources = seats[node] = {}
            for layer in self._layout.held(seat):
                holders = self._held.holders(layer, self.batch)
                if node in holders:
                    continue
                sources[layer] = min(holders, key=lambda holder: len(gives[holder]), default=spare)
                if holders:
                    gives[sources[layer]].append((layer, node))

        layers = {
            node: tuple(self._layout.held(seat))
            for seat, node in zip(self._layout.seats(), self._seated, strict=True)
        }
        peers = tuple(sorted(self._leaving))
        keep = self._kept()
        self._held.keep(keep)

        # A node without a seat may still have to hand its layers on.
        return [
            (
                node,
                TakeSeat(
                    self.epoch,
                    self.batch,
                    layers.get(node, ()),
                    seats.get(node, {}),
                    tuple(gives[node]),
                    peers,
                    keep,
                ),
            )
            for node in self._leaving
            if node in seats or gives[node]
        ]
