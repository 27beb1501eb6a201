"""Plays a plan on a recorded fleet: batches that count, batches that are repeated, and a bound
without any pauses.

A plan has the costs of stages, not of layers: the layers of a stage count as equal, and links as
fast as the slowest.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    settings = ElasticSettings(plan.scheme, _NO_END, options, layers.bytes, every)
    controller = ElasticController(settings)
    replay = FleetReplay(controller, seconds, layers.bytes, layers.bandwidth)
    put_fleet(replay, fleet, warning)
    batches, redone = replay.run(until)

    spans, bound = fleet_sizes(fleet, until), 0.0
    for began, end, size, _ in spans:
        fitting = max((nodes for nodes in options if nodes <= size), default=0)
        if fitting:
            option = options[fitting]
            step = seconds(option, _PLAYED_BATCHES) - seconds(option, _PLAYED_BATCHES - 1)
            bound += (end - began) * samples / step

    idle, machine_seconds = 1.0, sum((end - began) * size for began, end, size, _ in spans)
    if machine_seconds:
        work = sum(layers.compute) * (batches + redone) * samples / plan.microbatch
        idle = 1 - work / machine_seconds
    done = batches * samples
    return FleetResult(
        until,
        machine_seconds,
        batches,
        done,
        done / until,
        bound,
        redone * samples,
        len(controller.history),
        idle,
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
        forward, backward, update = list[float](), list[float](), list[float]()
        sync, state_bytes, rates = list[float](), list[float](), list[float]()
        state = 1 + max(OPTIMIZER_STATE.values())
        for stage in plan.stages:
            first, last = stage.layers
            count = last - first + 1
            recomputed = stage.forward_seconds * plan.recompute
            forward += [stage.forward_seconds / count] * count
            backward += [(stage.backward_seconds + recomputed) / count] * count
            update += [stage.update_seconds / count] * count
            sync += [stage.sync_seconds / count] * count
            state_bytes += [stage.weight_bytes * state / count] * count
            if stage.send_seconds:
                rates.append(stage.output_bytes / stage.send_seconds)

        slowest = max(stage.send_seconds for stage in plan.stages)
        return cls(
            tuple(forward),
            tuple(backward),
            tuple(update),
            tuple(sync),
            tuple(state_bytes),
            slowest,
            min(rates, default=_BANDWIDTH),
        )

    @property
    def compute(self) -> list[float]:
        """Seconds of a microbatch, forward and backward."""
        return [a + b for a, b in zip(self.forward, self.backward, strict=True)]

    def seconds(self, layout: PipelineLayout, batches: int, scheme: str) -> float:
        """Seconds of batches in a row, with filling and draining."""
        if batches > _PLAYED_BATCHES:
            played = self.seconds(layout, _PLAYED_BATCHES, scheme)
            step = played - self.seconds(layout, _PLAYED_BATCHES - 1, scheme)
            return played + (batches - _PLAYED_BATCHES) * step
        if scheme in STASHING:
            (spans,) = layout.pipelines
            replicas = layout.replicas or (1,) * len(spans)
            stages, slowest = list[float](), 0.0
            for times, count in zip(self._times(spans, max(replicas) > 1), replicas, strict=True):
                stage = times.forward + times.backward + times.sync
                stages.append(stage)
                slowest = max(slowest, stage / count)
            return sum(stages) + (batches - 1) * slowest

        several, longest = len(layout.pipelines) > 1, 0.0
        for q, share in enumerate(layout.shares):
            shape = ScheduleShape(scheme, layout.depth(q), share, batches, layout.chunks)
            each_alone = [[order] for order in orders(shape)]
            run = play(each_alone, self._times(layout.pipelines[q], several))
            longest = max(longest, run.seconds)
        return longest

    def _times(self, spans: Sequence[tuple[int, int]], several: bool) -> list[StageTimes]:
        times = list[StageTimes]()
        for first, last in spans:
            part = slice(first, last + 1)
            forward, backward = sum(self.forward[part]), sum(self.backward[part])
            ending, sync = sum(self.update[part]), sum(self.sync[part])
            if several:
                ending += sync
            times.append(StageTimes(forward, backward, self.send, ending))

        return times


Step = Callable[[float], Instructions]
"""An event of a replay: it is called with the time and returns what the controller says."""


class FleetReplay:
    """Plays what was added with `put`.

    `seconds`: those of a number of batches in a layout; `layer_bytes`: of a layer that moves;
    `bandwidth`: bytes per second into a node; `settle`: seconds that an epoch takes to begin.
    """

    def __init__(
        self,
        controller: ElasticController,
        seconds: Callable[[PipelineLayout, int], float],
        layer_bytes: Sequence[float],
        bandwidth: float,
        settle: float = 1.0,
    ) -> None:
        self.controller = controller
        self.seconds = seconds
        self.layer_bytes = layer_bytes
        self.bandwidth = bandwidth
        self.settle = settle
        self.queue: list[tuple[float, int, Step]] = []
        self.aborted = 0.0
        self.curve: list[tuple[float, int]] = []
        """Batches done after each number of seconds."""
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
        _, order = working[0]
        batches = order.last - order.first
        length = self.seconds(self.controller.history[-1].layout, batches)
        next_event = until
        if self.queue:
            next_event = min(self.queue[0][0], until)
        every = self.controller.settings.every
        orders_before = floor((next_event - now) / length * (1 - 1e-9))
        undisturbed = order.first + orders_before * batches

        # Work orders that are played as one end with a backup, where a controller can resume.
        last = max(undisturbed - undisturbed % every, order.last)

        self._running = last - order.first
        end = now + length * self._running / batches
        self._began = now
        self._end = end
        together = last if last > order.last else None
        for node, _ in working:
            done = BatchesDone(node, order.epoch, {})
            self.put(end, partial(self._end_work, done, together))

    def _end_work(self, done: BatchesDone, together: int | None, now: float) -> Instructions:
        """Also tells the controller up to which batch work orders were played `together` as one, if
        they were.
        """
        controller = self.controller
        is_current = done.epoch == controller.epoch
        if together is not None and is_current and together > controller.batch:
            controller.resume(together, {})
        return controller.report(done, now)


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
    size, spans = 0, list[tuple[float, float, int, bool]]()
    ends = [*(change.at for change in fleet[1:]), until]
    for change, next_change in zip(fleet, ends, strict=True):
        size += len(change.added) - len(change.removed)
        end = min(next_change, until)
        if end > change.at:
            spans.append((change.at, end, size, bool(change.removed)))
    return spans
