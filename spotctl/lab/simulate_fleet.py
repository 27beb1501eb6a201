"""Plays a plan on a recorded fleet: batches that count, batches that are repeated, and a bound
without any pauses.

A plan has the costs of stages, not of layers: the layers of a stage count as equal, and links as
fast as the slowest.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count
from math import ceil, floor, lcm

from agileml.errors import BadArgument
from agileml.pipeline.elastic.controller import ElasticController, ElasticSettings, Instructions
from agileml.pipeline.elastic.layouts import LayoutRules, layouts, planned_layout
from agileml.pipeline.elastic.seats import (
    BatchesDone,
    CopyKept,
    CopyLayers,
    PipelineLayout,
    RunBatches,
    TakeSeat,
)
from agileml.pipeline.plan.parallel_plan import ParallelPlan
from agileml.pipeline.profile.model_profile import OPTIMIZER_STATE
from agileml.pipeline.schedule.schedules import STASHING, ScheduleShape, orders
from agileml.pipeline.schedule.simulator import StageTimes, play
from agileml.protocol.messages import Restored, Saved

_BANDWIDTH = 1.25e9
"""Bytes per second where a plan has no links: 10 Gbit/s."""


_PLAYED_BATCHES = 3
"""Batches that are played one operation at a time; later ones take as long as the last."""


_NO_END = 10**12


@dataclass(frozen=True)
class FleetChange:
    """Machines that come or go."""

    at: float
    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class FleetResult:
    """The work that a plan gets done on a fleet."""

    seconds: float
    """Length of the record."""
    machine_seconds: float
    """Time of all machines together."""
    batches: int
    """Updates that count."""
    samples: float
    """Samples of these updates."""
    samples_per_second: float
    """Mean speed over the record."""
    bound_samples: float
    """Samples if the layout changed at once, and nothing was done twice."""
    redone_samples: float
    """Samples that were processed again after a loss."""
    layouts: int
    """Times that the model was laid out over the machines."""
    idle: float
    """Share of machine time in which nothing was computed that counts or was redone."""


def simulate_fleet(plan: ParallelPlan, fleet: Sequence[FleetChange], warning: float) -> FleetResult:
    """Plays a plan on a fleet whose machines are warned `warning` seconds before they go; 0 for no
    warning.
    """
    if plan.tensor > 1:
        raise BadArgument(
            f"tensor is {plan.tensor}: fleets are played without tensor parallelism; plan with "
            "--tensor 1"
        )

    layers = _Layers.of(plan)
    own = planned_layout(plan)
    rules = LayoutRules(plan.scheme, own.batch, plan.chunks, plan.depth)
    options = {**layouts(layers.compute, rules, plan.devices), plan.devices: own}
    samples = plan.microbatch * own.batch
    seconds = cache(lambda layout, batches: layers.seconds(layout, batches, plan.scheme))
    until = fleet[-1].at

    # Unequal replicas work in rounds, and copies are made between two of them.
    rounds = lcm(*own.replicas)
    every = ceil(plan.every / rounds) * rounds
    controller = ElasticController(
        ElasticSettings(plan.scheme, _NO_END, options, layers.bytes, every)
    )
    replay = FleetReplay(controller, seconds, layers.bytes, layers.bandwidth)
    put_fleet(replay, fleet, warning)
    batches, redone = replay.run(until)
    spans = fleet_sizes(fleet, until)
    steps = {
        option: seconds(option, _PLAYED_BATCHES) - seconds(option, _PLAYED_BATCHES - 1)
        for option in options.values()
    }
    bound = 0.0
    for began, end, size, _ in spans:
        fitting = max((nodes for nodes in options if nodes <= size), default=0)
        if fitting:
            bound += (end - began) * samples / steps[options[fitting]]

    machine_seconds = sum((end - began) * size for began, end, size, _ in spans)
    work = sum(layers.compute) * (batches + redone) * samples / plan.microbatch
    return FleetResult(
        until,
        machine_seconds,
        batches,
        batches * samples,
        batches * samples / until,
        bound,
        redone * samples,
        len(controller.history),
        1 - work / machine_seconds if machine_seconds else 1.0,
    )


@dataclass(frozen=True, eq=False)
class _Layers:
    """Seconds of a microbatch in each layer, of its output, of an update and its all-reduce; bytes
    of its state.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    update: tuple[float, ...]
    sync: tuple[float, ...]
    bytes: tuple[float, ...]
    send: float
    bandwidth: float

    @classmethod
    def of(cls, plan: ParallelPlan) -> "_Layers":
        """Each layer as the mean of its stage."""
        stages = [(stage, stage.layers[1] - stage.layers[0] + 1) for stage in plan.stages]
        each = [(stage, count) for stage, count in stages for _ in range(count)]
        rates = [
            stage.output_bytes / stage.send_seconds for stage in plan.stages if stage.send_seconds
        ]
        state = 1 + max(OPTIMIZER_STATE.values())

        return cls(
            tuple(stage.forward_seconds / count for stage, count in each),
            tuple(
                (stage.backward_seconds + stage.forward_seconds * plan.recompute) / count
                for stage, count in each
            ),
            tuple(stage.update_seconds / count for stage, count in each),
            tuple(stage.sync_seconds / count for stage, count in each),
            tuple(stage.weight_bytes * state / count for stage, count in each),
            max(stage.send_seconds for stage in plan.stages),
            min(rates, default=_BANDWIDTH),
        )

    @property
    def compute(self) -> list[float]:
        """Seconds of a microbatch, forward and backward."""
        return [a + b for a, b in zip(self.forward, self.backward, strict=True)]

    def seconds(self, layout: PipelineLayout, batches: int, scheme: str) -> float:
        """Seconds of batches in a row, with filling and draining."""
        if batches > _PLAYED_BATCHES:
            step = self.seconds(layout, _PLAYED_BATCHES, scheme) - self.seconds(
                layout, _PLAYED_BATCHES - 1, scheme
            )
            return (
                self.seconds(layout, _PLAYED_BATCHES, scheme) + (batches - _PLAYED_BATCHES) * step
            )
        if scheme in STASHING:
            (spans,) = layout.pipelines
            replicas = layout.replicas or (1,) * len(layout.pipelines[0])
            stages = [
                times.forward + times.backward + times.sync
                for times in self._times(spans, max(replicas) > 1)
            ]
            slowest = max(seconds / count for seconds, count in zip(stages, replicas, strict=True))
            return sum(stages) + (batches - 1) * slowest

        several = len(layout.pipelines) > 1
        return max(
            play(
                [
                    [order]
                    for order in orders(
                        ScheduleShape(scheme, layout.depth(q), share, batches, layout.chunks)
                    )
                ],
                self._times(layout.pipelines[q], several),
            ).seconds
            for q, share in enumerate(layout.shares)
        )

    def _times(self, spans: Sequence[tuple[int, int]], several: bool) -> list[StageTimes]:
        times = []
        for first, last in spans:
            part = slice(first, last + 1)
            times.append(
                StageTimes(
                    sum(self.forward[part]),
                    sum(self.backward[part]),
                    self.send,
                    sum(self.update[part]) + several * sum(self.sync[part]),
                )
            )

        return times


Step = Callable[[float], Instructions]
"""An event of a replay: it is called with the time and returns what the controller says."""


@dataclass
class FleetReplay:
    """Plays what was added with `put`.

    `seconds`: those of a number of batches in a layout; `layer_bytes`: of a layer that moves;
    `bandwidth`: bytes per second into a node; `settle`: seconds that an epoch takes to begin.
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
        self._running = 0
        self._began = 0.0
        self._end = 0.0
        """The number of batches of the latest work, and its beginning and end; 0 before the first
        work, and if it is lost."""

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
                if self._running and self._end > now:
                    self.aborted += self._running * (now - self._began) / (self._end - self._began)
                self._running = 0
            self._follow(instructions, now, until)
            if not self.curve or controller.batch != self.curve[-1][1]:
                self.curve.append((now, controller.batch))

        return controller.batch, controller.redone + self.aborted

    def _follow(self, instructions: Instructions, now: float, until: float) -> None:
        working: list[tuple[str, RunBatches]] = []
        for node, instruction in instructions:
            match instruction:
                case TakeSeat(epoch=epoch, layers=layers, sources=sources) if layers:
                    sizes = self.layer_bytes
                    moved = sum(
                        sizes[layer] for layer, source in sources.items() if source != "initial"
                    )
                    ready = partial(self.controller.report, Restored(node, epoch))
                    self.put(now + self.settle + moved / self.bandwidth, ready)
                case CopyLayers(epoch, batch, copies, saved):
                    # Copies take no time.
                    for layer, other in copies:
                        self.controller.report(CopyKept(other, epoch, batch, layer), now)
                    for layer in saved:
                        self.controller.report(Saved(node, epoch, layer, batch), now)
                case RunBatches():
                    working.append((node, instruction))

        if working:
            self._work(working, now, until)

    def _work(self, working: Sequence[tuple[str, RunBatches]], now: float, until: float) -> None:
        """All nodes take as long as the slowest. Work orders that no event can disturb are played
        as one.
        """
        order = working[0][1]
        length = self.seconds(self.controller.history[-1].layout, order.last - order.first)
        next_event = min(self.queue[0][0], until) if self.queue else until
        every = self.controller.settings.every
        undisturbed = order.first + floor((next_event - now) / length * (1 - 1e-9)) * (
            order.last - order.first
        )

        # Work orders that are played as one end with a backup, where a controller can resume.
        last = max(undisturbed - undisturbed % every, order.last)

        end = now + length * (last - order.first) / (order.last - order.first)
        self._running = last - order.first
        self._began = now
        self._end = end
        together = last if last > order.last else None
        for node, _ in working:
            self.put(end, partial(self._end_work, BatchesDone(node, order.epoch, {}), together))

    def _end_work(self, done: BatchesDone, together: int | None, now: float) -> Instructions:
        """Also tells the controller up to which batch work orders were played `together` as one, if
        they were.
        """
        if (
            together is not None
            and done.epoch == self.controller.epoch
            and together > self.controller.batch
        ):
            self.controller.resume(together, {})
        return self.controller.report(done, now)


def put_fleet(replay: FleetReplay, fleet: Sequence[FleetChange], warning: float) -> None:
    """Adds a fleet's changes as events; with a `warning`, machines are warned that many seconds
    before they go.
    """
    for change in fleet:
        for node in change.removed:
            if warning:
                replay.put(max(change.at - warning, 0.0), partial(replay.controller.warn, node))
            replay.put(change.at, partial(replay.controller.lose, node))
        for node in change.added:
            replay.put(change.at, partial(replay.controller.join, node))


def fleet_sizes(fleet: Sequence[FleetChange], until: float) -> list[tuple[float, float, int, bool]]:
    """Spans with a constant number of machines, and whether each began with a loss."""
    size = 0
    spans = []
    ends = [change.at for change in fleet[1:]] + [until]
    for change, end in zip(fleet, ends, strict=True):
        size += len(change.added) - len(change.removed)
        spans.append((change.at, min(end, until), size, bool(change.removed)))
    return [span for span in spans if span[1] > span[0]]
