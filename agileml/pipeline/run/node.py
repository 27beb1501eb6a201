"""A node of a pipeline as a state machine: instructions and frames in, frames and reports out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from agileml.errors import AgileMLError
from agileml.pipeline.elastic.messages import (
    INITIAL,
    STORE,
    BatchesDone,
    CopyKept,
    CopyLayers,
    LayerSaved,
    NodeReady,
    NodeReport,
    RunBatches,
    TakeSeat,
)
from agileml.pipeline.model.base import Array, PipelineModel, UpdateRule
from agileml.pipeline.run.stage_program import StageProgram
from agileml.pipeline.run.stage_state import LayerState, StageState, initial_state
from agileml.pipeline.tensor_parts import Awaiting, FrameKey, Lanes
from agileml.protocol.messages import Broken, Hello

STATE, COPY = "state", "copy"
"""Frames with a layer, its versions and its optimizer's state: to be taken over, or to be kept as a copy."""


@dataclass(frozen=True)
class PipelineTask:
    """The model and settings that all nodes of a job share."""

    model: PipelineModel
    optimizer: UpdateRule
    scheme: str
    recompute: bool = False


@dataclass(frozen=True)
class PipelineFrame:
    """Arrays for another node; those of an older epoch are dropped."""

    epoch: int
    key: FrameKey
    arrays: tuple[Array, ...]
    versions: tuple[int, ...] = ()
    """Numbers of the weight versions, in a frame with the state of a layer."""
    counts: tuple[int, int] = (0, 0)
    """In such a frame: the arrays of a weight version, and the buffers."""


class LayerStore(Protocol):
    """Where layers are saved, in case that no node holds them."""

    def save(self, frame: PipelineFrame, then: Callable[[], None]) -> None:
        """Saves a frame with the state of a layer. `then` is called once that is done; not if it fails."""

    def load(self, layer: int, batch: int) -> PipelineFrame | None:
        """The frame of a layer as it was before a batch; None if it arrives as a message."""


@dataclass
class PipelineNode:
    """Runs work orders. `send` takes a frame for a node, `report` a message for the controller."""

    name: str
    task: PipelineTask
    send: Callable[[str, PipelineFrame], None]
    report: Callable[[NodeReport | Broken], None]
    store: LayerStore | None = None
    """None for a node whose layers are never in a store."""
    epoch: int = 0

    def __post_init__(self) -> None:
        self._snapshots: dict[int, dict[int, LayerState]] = {}
        """States by the batch that comes next, of own layers and of those of a neighbor."""
        self._keep: tuple[int, ...] = ()
        """The batches whose states may still be needed."""
        self._frames: dict[tuple[int, FrameKey], PipelineFrame] = {}
        self._seat: TakeSeat | None = None
        self._run: _OrderInProgress | None = None

    def hello(self, reliable: bool, code: str) -> Hello:
        """Introduces this node, also to a restarted controller."""
        return Hello(self.name, reliable, code)

    def handle(self, message: object) -> None:
        """Follows an instruction of the controller, or takes a frame of another node."""
        match message:
            case TakeSeat():
                self._take(message)
            case CopyLayers():
                self._copy(message)
            case RunBatches() if message.epoch == self.epoch:
                self._start(message)
            case PipelineFrame():
                self._receive(message)

    def _receive(self, frame: PipelineFrame) -> None:
        """Takes a frame of this epoch or a later one."""
        kind, layer, batch = frame.key
        if kind == COPY:
            # The work order that says to keep the copy may come later.
            if frame.epoch == self.epoch and (batch in self._keep or batch > max(self._keep, default=0)):
                self._snapshots.setdefault(batch, {})[layer] = layer_state(frame)
                self.report(CopyKept(self.name, self.epoch, batch, layer))
        elif frame.epoch >= self.epoch:
            self._frames[frame.epoch, frame.key] = frame
            self._continue()

    def _take(self, seat: TakeSeat) -> None:
        self.epoch, self._seat, self._run = seat.epoch, seat, None
        self._frames = {key: frame for key, frame in self._frames.items() if key[0] >= seat.epoch}
        mine = self._snapshots.setdefault(seat.batch, {})
        for layer, node in seat.gives:
            self.send(node, state_frame(STATE, seat.epoch, seat.batch, layer, mine[layer]))
        for layer, source in seat.sources.items():
            if source == INITIAL:
                mine[layer] = initial_state(self.task.model, self.task.optimizer, layer)
            elif source == STORE and self.store and (frame := self.store.load(layer, seat.batch)) is not None:
                mine[layer] = layer_state(frame)
        # Layers that others take over stay until work begins: the move may be interrupted and planned again.
        self._drop_but((*seat.keep, seat.batch))
        self._continue()

    def _drop_but(self, keep: tuple[int, ...]) -> None:
        self._keep = keep
        self._snapshots = {batch: states for batch, states in self._snapshots.items() if batch in keep}

    def _copy(self, order: CopyLayers) -> None:
        states = self._snapshots[order.batch]
        for layer, node in order.copies:
            self.send(node, state_frame(COPY, order.epoch, order.batch, layer, states[layer]))
        for layer in order.saved if self.store else ():
            assert self.store is not None
            frame = state_frame(STATE, order.epoch, order.batch, layer, states[layer])
            self.store.save(frame, partial(self.report, LayerSaved(self.name, order.epoch, order.batch, layer)))

    def _continue(self) -> None:
        if self._seat is not None:
            self._gather(self._seat)
        if self._run is not None:
            self._advance(self._run)

    def _gather(self, seat: TakeSeat) -> None:
        """Takes layers that have arrived; reports once all are there."""
        mine = self._snapshots[seat.batch]
        for layer in seat.layers:
            frame = self._frames.pop((self.epoch, (STATE, layer, seat.batch)), None)
            if frame is not None:
                mine[layer] = layer_state(frame)
        if mine.keys() >= set(seat.layers):
            self._seat = None
            if seat.layers:
                self.report(NodeReady(self.name, self.epoch))

    def _start(self, order: RunBatches) -> None:
        held = self._snapshots[order.first]
        base = {layer: held[layer] for span in order.work.spans for layer in span}
        self._drop_but((*order.keep, order.first))

        def send(node: str, key: FrameKey, arrays: tuple[Array, ...]) -> None:
            self.send(node, PipelineFrame(order.epoch, key, arrays))

        lanes = Lanes(order.work.others, send)
        summed = {layer for layer, chain in order.work.chains.items() if chain[0] == self.name}
        state = StageState(self.task.model, self.task.optimizer, dict(base), self.task.recompute, lanes, summed)
        program = StageProgram(self.name, order.work, state, send, 1 if self.task.scheme == "2bw" else 0)
        self._run = _OrderInProgress(order, program, program.run())
        self._advance(self._run)

    def _advance(self, run: "_OrderInProgress") -> None:
        """Goes on until a frame is missing or the work is done."""
        try:
            while True:
                if run.needs is None:
                    run.needs = next(run.steps)
                frame = self._frames.pop((self.epoch, run.needs), None)
                if frame is None:
                    return
                run.needs = None
                run.needs = run.steps.send(frame.arrays)
        except StopIteration:
            self._run = None
            self._snapshots[run.order.last] = run.program.state.layers
            self.report(BatchesDone(self.name, self.epoch, run.program.losses))
        except AgileMLError as error:
            self._run = None
            self.report(Broken(self.name, f"{self.name}: {error}"))


@dataclass
class _OrderInProgress:
    order: RunBatches
    program: StageProgram
    steps: Awaiting[None]
    needs: FrameKey | None = field(default=None)


def state_frame(kind: str, epoch: int, batch: int, layer: int, state: LayerState) -> PipelineFrame:
    """A layer as a frame: its versions, the newest last, its buffers, and its optimizer's state."""
    versions = tuple(sorted(state.versions))
    arrays = [array for version in versions for array in state.versions[version]]
    counts = len(state.newest()), len(state.buffers)
    return PipelineFrame(epoch, (kind, layer, batch), (*arrays, *state.buffers, *state.optimizer), versions, counts)


def layer_state(frame: PipelineFrame) -> LayerState:
    """The layer in a frame."""
    count, buffers = frame.counts
    versions = {version: frame.arrays[i * count : (i + 1) * count] for i, version in enumerate(frame.versions)}
    rest = frame.arrays[len(versions) * count :]
    return LayerState(frame.versions[-1], versions, rest[buffers:], rest[:buffers])
