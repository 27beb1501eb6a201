"""A node of a pipeline as a state machine: instructions and frames in, actions out."""

from collections.abc import Iterator
from dataclasses import dataclass

from agileml.errors import AgileMLError
from agileml.pipeline.elastic.seats import (
    INITIAL,
    STORE,
    BatchesDone,
    CopyKept,
    CopyLayers,
    FramesLost,
    RunBatches,
    TakeSeat,
)
from agileml.pipeline.model.base import Array, PipelineModel, UpdateRule
from agileml.pipeline.run.stage_program import StageProgram
from agileml.pipeline.run.stage_state import LayerState, StageState, initial_state, layer_state
from agileml.pipeline.tensor_parts import FrameKey, PipelineFrame
from agileml.protocol.actions import CONTROLLER, Action, Exit, Fetch, Save, Send
from agileml.protocol.messages import Broken, Hello, Leave, Restored, Saved, Tally, Version

STATE, COPY = "state", "copy"
"""Frames with a layer, its versions and its optimizer's state: to be taken over, or to be kept as a
copy."""


@dataclass(frozen=True)
class PipelineTask:
    """The model and settings that all nodes of a job share."""

    model: PipelineModel
    optimizer: UpdateRule
    scheme: str
    recompute: bool = False


@dataclass
class PipelineNode:
    """Runs work orders. It computes while its actions are taken from it: others need not wait for
    its frames.
    """

    name: str
    task: PipelineTask
    epoch: int = 0

    def __post_init__(self) -> None:
        self._snapshots: dict[int, dict[int, LayerState]] = {}
        """States by the batch that comes next, of own layers and of those of a neighbor."""
        self._keep: tuple[int, ...] = ()
        """The batches whose states may still be needed."""
        self._frames: dict[tuple[int, FrameKey], tuple[Array, ...]] = {}
        self._seat: TakeSeat | None = None
        self._run: tuple[RunBatches, StageProgram] | None = None

    def hello(self, reliable: bool, code: str) -> Hello:
        """Introduces this node, also to a restarted controller."""
        return Hello(self.name, reliable, code)

    # Any node's frames.
    def handle(self, message: object, sender: str | None = None) -> Iterator[Action]:  # noqa: ARG002
        """Follows an instruction of the controller, or takes a frame of another node."""
        match message:
            case TakeSeat():
                yield from self._take(message)
            case CopyLayers():
                epoch = message.epoch
                batch = message.batch
                states = self._snapshots[message.batch]
                for layer, node in message.copies:
                    frame = PipelineFrame(
                        epoch, (COPY, layer, batch), tuple(states[layer].arrays())
                    )
                    yield Send(node, frame)
                for layer in message.saved:
                    # In a job, each layer is a partition.
                    version = Version(batch, Tally(0, 0), states[layer].arrays())
                    yield Save(epoch, layer, version)
            case RunBatches() if message.epoch == self.epoch:
                yield from self._start(message)
            case PipelineFrame():
                yield from self._receive(message)
            case Leave():
                yield Exit(message.reason)

    def lose_link(self) -> Iterator[Action]:
        """The link to another node broke and was replaced."""
        yield Send(CONTROLLER, FramesLost(self.name, self.epoch))

    def take_version(self, epoch: int, layer: int, version: Version) -> Iterator[Action]:
        """Takes a layer of its seat from the store."""
        if epoch == self.epoch:
            yield from self._receive(
                PipelineFrame(epoch, (STATE, layer, version.clock), tuple(version.state))
            )

    def confirm_saved(self, epoch: int, layer: int, batch: int) -> Iterator[Action]:
        """A layer is in the store as it was before a batch."""
        yield Send(CONTROLLER, Saved(self.name, epoch, layer, batch))

    def _receive(self, frame: PipelineFrame) -> Iterator[Action]:
        """Takes a frame of this epoch or a later one."""
        kind, layer, batch = frame.key
        if kind == COPY:
            # The work order that says to keep the copy may come later.
            if frame.epoch == self.epoch and (
                batch in self._keep or batch > max(self._keep, default=0)
            ):
                self._snapshots.setdefault(batch, {})[layer] = layer_state(frame.arrays)
                yield Send(CONTROLLER, CopyKept(self.name, self.epoch, batch, layer))
        elif frame.epoch >= self.epoch:
            self._frames[frame.epoch, frame.key] = frame.arrays
            yield from self._continue()

    def _take(self, seat: TakeSeat) -> Iterator[Action]:
        self.epoch = seat.epoch
        self._seat = seat
        self._run = None
        self._frames = {key: arrays for key, arrays in self._frames.items() if key[0] >= seat.epoch}
        mine = self._snapshots.setdefault(seat.batch, {})
        for layer, node in seat.gives:
            frame = PipelineFrame(
                seat.epoch, (STATE, layer, seat.batch), tuple(mine[layer].arrays())
            )
            yield Send(node, frame)

        for layer, source in seat.sources.items():
            if source == INITIAL:
                mine[layer] = initial_state(self.task.model, self.task.optimizer, layer)

        # Layers that others take over stay until work begins: the move may be interrupted and
        # planned again.
        self._drop_but((*seat.keep, seat.batch))
        yield from self._continue()
        for layer, source in seat.sources.items():
            if source == STORE:
                yield Fetch(seat.epoch, layer, seat.batch)

    def _drop_but(self, keep: tuple[int, ...]) -> None:
        self._keep = keep
        self._snapshots = {
            batch: states for batch, states in self._snapshots.items() if batch in keep
        }

    def _continue(self) -> Iterator[Action]:
        """Takes layers of its seat that have arrived, and reports once all are there; goes on with
        its work.
        """
        seat = self._seat
        if seat is not None:
            mine = self._snapshots[seat.batch]
            for layer in seat.layers:
                arrays = self._frames.pop((self.epoch, (STATE, layer, seat.batch)), None)
                if arrays is not None:
                    mine[layer] = layer_state(arrays)
            if mine.keys() >= set(seat.layers):
                self._seat = None
                if seat.layers:
                    yield Send(CONTROLLER, Restored(self.name, self.epoch))

        if self._run is not None:
            yield from self._advance(*self._run)

    def _start(self, order: RunBatches) -> Iterator[Action]:
        held = self._snapshots[order.first]
        base = {layer: held[layer] for span in order.work.spans for layer in span}
        self._drop_but((*order.keep, order.first))
        summed = {layer for layer, chain in order.work.chains.items() if chain[0] == self.name}
        state = StageState(
            self.task.model,
            self.task.optimizer,
            base,
            self.task.recompute,
            order.epoch,
            order.work.others,
            summed,
        )

        program = StageProgram(self.name, order.work, state, 1 if self.task.scheme == "2bw" else 0)
        self._run = order, program
        yield from self._advance(order, program)

    def _advance(self, order: RunBatches, program: StageProgram) -> Iterator[Action]:
        """Goes on until a frame is missing or the work is done."""
        try:
            while True:
                if program.needs is None:
                    step = next(program.steps)
                elif (arrays := self._frames.pop((self.epoch, program.needs), None)) is not None:
                    step = program.steps.send(arrays)
                else:
                    return
                program.needs = None if isinstance(step, Send) else step
                if isinstance(step, Send):
                    yield step
        except StopIteration:
            self._run = None
            self._snapshots[order.last] = program.state.layers
            yield Send(CONTROLLER, BatchesDone(self.name, self.epoch, program.losses))
        except AgileMLError as error:
            self._run = None
            broken = Broken(self.name, f"{self.name}: {error}")
            yield Send(CONTROLLER, broken)
