"""Plays a plan on a recorded fleet: batches that count, batches that are repeated, and a bound without any pauses.

A plan has the costs of stages, not of layers: the layers of a stage count as equal, and links as fast as the slowest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, lcm

from agileml.errors import BadArgument
from agileml.pipeline.elastic.controller import ElasticController, ElasticSettings
from agileml.pipeline.elastic.fleet_replay import FleetChange, FleetReplay, fleet_sizes, put_fleet
from agileml.pipeline.elastic.layouts import LayoutRules, layouts, planned_layout
from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.plan.parallel_plan import ParallelPlan
from agileml.pipeline.profile.model_profile import OPTIMIZER_STATE
from agileml.pipeline.schedule.schedules import STASHING, ScheduleShape, orders
from agileml.pipeline.schedule.simulator import StageTimes, play

_BANDWIDTH = 1.25e9
"""Bytes per second where a plan has no links: 10 Gbit/s."""
_PLAYED_BATCHES = 3
"""Batches that are played one operation at a time; later ones take as long as the last."""
_NO_END = 10**12


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
    """Plays a plan on a fleet whose machines are warned `warning` seconds before they go; 0 for no warning."""
    if plan.tensor > 1:
        raise BadArgument(
            f"tensor is {plan.tensor}: fleets are played without tensor parallelism; plan with --tensor 1"
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
    controller = ElasticController(ElasticSettings(plan.scheme, _NO_END, options, layers.bytes, every))
    replay = FleetReplay(controller, seconds, layers.bytes, layers.bandwidth)
    put_fleet(replay, fleet, warning)
    batches, redone = replay.run(until)
    spans = fleet_sizes(fleet, until)
    steps = {
        option: seconds(option, _PLAYED_BATCHES) - seconds(option, _PLAYED_BATCHES - 1) for option in options.values()
    }
    bound = sum((end - began) * samples / steps[best] for began, end, best in _best(spans, options))
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


def _best(
    spans: Sequence[tuple[float, float, int, bool]], options: Mapping[int, PipelineLayout]
) -> list[tuple[float, float, PipelineLayout]]:
    """The layout of each span in which there are enough machines for one."""
    fitting = [(began, end, max((n for n in options if n <= size), default=0)) for began, end, size, _ in spans]
    return [(began, end, options[nodes]) for began, end, nodes in fitting if nodes]


@dataclass(frozen=True, eq=False)
class _Layers:
    """Seconds of a microbatch in each layer, of its output, of an update and its all-reduce; bytes of its state."""

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
        rates = [stage.output_bytes / stage.send_seconds for stage in plan.stages if stage.send_seconds]
        state = 1 + max(OPTIMIZER_STATE.values())
        return cls(
            tuple(stage.forward_seconds / count for stage, count in each),
            tuple((stage.backward_seconds + stage.forward_seconds * plan.recompute) / count for stage, count in each),
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
            step = self.seconds(layout, _PLAYED_BATCHES, scheme) - self.seconds(layout, _PLAYED_BATCHES - 1, scheme)
            return self.seconds(layout, _PLAYED_BATCHES, scheme) + (batches - _PLAYED_BATCHES) * step
        if scheme in STASHING:
            (spans,), replicas = layout.pipelines, layout.replicas or (1,) * len(layout.pipelines[0])
            stages = [times.forward + times.backward + times.sync for times in self._times(spans, max(replicas) > 1)]
            slowest = max(seconds / count for seconds, count in zip(stages, replicas, strict=True))
            return sum(stages) + (batches - 1) * slowest
        several = len(layout.pipelines) > 1
        return max(
            play(
                [[order] for order in orders(ScheduleShape(scheme, layout.depth(q), share, batches, layout.chunks))],
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
