"""A recorded fleet, played in virtual time: the real controller, and nodes that take as long as their work would."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import floor

from agileml.pipeline.elastic.controller import ElasticController, Instructions
from agileml.pipeline.elastic.messages import (
    BatchesDone,
    CopyKept,
    CopyLayers,
    LayerSaved,
    NodeReady,
    RunBatches,
    TakeSeat,
)
from agileml.pipeline.elastic.seats import PipelineLayout

Step = Callable[[float], Instructions]
"""An event of a replay: it is called with the time and returns what the controller says."""


@dataclass(frozen=True)
class FleetChange:
    """Machines that come or go."""

    at: float
    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class _RunningBatches:
    """Batches `first` to `last` - 1 of an epoch, which the nodes are working on; `several` work orders as one."""

    epoch: int
    first: int
    last: int
    began: float
    end: float
    several: bool


@dataclass
class FleetReplay:
    """Plays what was added with `put`.

    `seconds`: those of a number of batches in a layout; `layer_bytes`: of a layer that moves; `bandwidth`: bytes per
    second into a node; `settle`: seconds that an epoch takes to begin.
    """

    controller: ElasticController
    seconds: Callable[[PipelineLayout, int], float]
    layer_bytes: Sequence[float]
    bandwidth: float
    settle: float = 1.0
    queue: list[tuple[float, int, Step]] = field(default_factory=list)
    aborted: float = 0.0
    curve: list[tuple[float, int]] = field(default_factory=list)
    """Batches done after each number of seconds."""

    def __post_init__(self) -> None:
        self._order = count()
        self._running: _RunningBatches | None = None

    def put(self, at: float, step: Step) -> None:
        """Plays a step at a time, such as a call of the controller."""
        heapq.heappush(self.queue, (at, next(self._order), step))

    def run(self, until: float) -> tuple[int, float]:
        """Batches that count, and batches that were processed again."""
        controller = self.controller
        while self.queue and self.queue[0][0] <= until:
            now, _, step = heapq.heappop(self.queue)
            epoch = controller.epoch
            instructions = step(now)
            if controller.epoch != epoch:
                self._abort(now)
            self._follow(instructions, now, until)
            if not self.curve or controller.batch != self.curve[-1][1]:
                self.curve.append((now, controller.batch))
        return controller.batch, controller.redone + self.aborted

    def _abort(self, now: float) -> None:
        if self._running is not None and self._running.end > now:
            batches = self._running
            self.aborted += (batches.last - batches.first) * (now - batches.began) / (batches.end - batches.began)
        self._running = None

    def _follow(self, instructions: Instructions, now: float, until: float) -> None:
        working: list[tuple[str, RunBatches]] = []
        for node, instruction in instructions:
            match instruction:
                case TakeSeat(epoch=epoch, layers=layers, sources=sources) if layers:
                    sizes = self.layer_bytes
                    moved = sum(sizes[layer] for layer, source in sources.items() if source != "initial")
                    ready = partial(self.controller.report, NodeReady(node, epoch))
                    self.put(now + self.settle + moved / self.bandwidth, ready)
                case CopyLayers(epoch, batch, copies, saved):
                    # Copies take no time.
                    for layer, other in copies:
                        self.controller.report(CopyKept(other, epoch, batch, layer), now)
                    for layer in saved:
                        self.controller.report(LayerSaved(node, epoch, batch, layer), now)
                case RunBatches():
                    working.append((node, instruction))
        if working:
            self._work(working, now, until)

    def _work(self, working: Sequence[tuple[str, RunBatches]], now: float, until: float) -> None:
        """All nodes take as long as the slowest. Work orders that no event can disturb are played as one."""
        order = working[0][1]
        length = self.seconds(self.controller.history[-1].layout, order.last - order.first)
        next_event = min(self.queue[0][0], until) if self.queue else until
        every = self.controller.settings.every
        undisturbed = order.first + floor((next_event - now) / length * (1 - 1e-9)) * (order.last - order.first)
        # Work orders that are played as one end with a backup, where a controller can resume.
        last = max(undisturbed - undisturbed % every, order.last)
        end = now + length * (last - order.first) / (order.last - order.first)
        self._running = _RunningBatches(order.epoch, order.first, last, now, end, last > order.last)
        for node, _ in working:
            self.put(end, partial(self._end_work, BatchesDone(node, order.epoch, {})))

    def _end_work(self, done: BatchesDone, now: float) -> Instructions:
        """Also tells the controller which batches were done in work orders that were played as one."""
        work = self._running
        if work is not None and work.several and work.epoch == done.epoch and work.last > self.controller.batch:
            self.controller.resume(work.last, {})
        return self.controller.report(done, now)


def put_fleet(replay: FleetReplay, fleet: Sequence[FleetChange], warning: float) -> None:
    """Adds a fleet's changes as events; with a `warning`, machines are warned that many seconds before they go."""
    for change in fleet:
        for node in change.removed:
            if warning:
                replay.put(max(change.at - warning, 0.0), partial(replay.controller.warn, node))
            replay.put(change.at, partial(replay.controller.lose, node))
        for node in change.added:
            replay.put(change.at, partial(replay.controller.join, node))


def fleet_sizes(fleet: Sequence[FleetChange], until: float) -> list[tuple[float, float, int, bool]]:
    """Spans with a constant number of machines, and whether each began with a loss."""
    size, spans = 0, []
    ends = [change.at for change in fleet[1:]] + [until]
    for change, end in zip(fleet, ends, strict=True):
        size += len(change.added) - len(change.removed)
        spans.append((change.at, min(end, until), size, bool(change.removed)))
    return [span for span in spans if span[1] > span[0]]
