"""Plays a plan: operations and seconds, the speed that follows, and the peaks of each stage."""

from collections.abc import Sequence
from dataclasses import dataclass

from agileml.pipeline.plan.parallel_plan import ParallelPlan
from agileml.pipeline.schedule.schedules import ScheduleShape, StepOrder, orders, replicated_orders
from agileml.pipeline.schedule.schemes import STASHING
from agileml.pipeline.schedule.simulator import PipelineRun, StageTimes, play
from agileml.pipeline.schedule.weight_versions import peak_in_flight, peak_versions, versions_used

MOST_EXTRA = 2


@dataclass(frozen=True)
class PlayedPlan:
    """A run of a plan, its speed, and the peaks of each stage."""

    run: PipelineRun
    samples_per_second: float
    bubble: float
    peak_in_flight: tuple[int, ...]
    peak_versions: tuple[int, ...]
    extra: int
    """Inputs in flight beyond the depth, where replicas are unequal."""


def simulate(plan: ParallelPlan, batches: int) -> PlayedPlan:
    """Plays `batches` batches of a plan; with stashing, as many inputs as fill the pipeline that many times."""
    times = [
        StageTimes(
            stage.forward_seconds,
            stage.backward_seconds + stage.forward_seconds * plan.recompute,
            stage.send_seconds,
            stage.sync_seconds + stage.update_seconds,
        )
        for stage in plan.stages
    ]
    if plan.scheme in STASHING:
        return _best_extra(plan, times, batches)
    shape = ScheduleShape(plan.scheme, plan.depth, plan.microbatches, batches, plan.chunks)
    run = play([[order] for order in orders(shape)], times)
    samples = plan.microbatch * plan.microbatches * plan.stages[0].replicas
    return _played(plan, run, [[order] for order in orders(shape)], samples, 0)


def _best_extra(plan: ParallelPlan, times: list[StageTimes], batches: int) -> PlayedPlan:
    """Admits more inputs only where that is more than 1% faster: each costs a stash and a weight version."""
    replicas = [stage.replicas for stage in plan.stages]
    rounds = max(replicas) * len(replicas) * max(batches, 3)
    best: PlayedPlan | None = None
    for extra in range(MOST_EXTRA + 1):
        lines = replicated_orders(replicas, rounds, extra)
        played = _played(plan, play(lines, times), lines, plan.microbatch * replicas[0], extra)
        if best is None or played.samples_per_second > best.samples_per_second * 1.01:
            best = played
    assert best is not None
    return best


def _played(
    plan: ParallelPlan, run: PipelineRun, lines: Sequence[Sequence[StepOrder]], samples: int, extra: int
) -> PlayedPlan:
    period = run.period()
    ideal = _ideal_period(plan)
    used = [versions_used(plan.scheme, stage[0], plan.depth, plan.microbatches) for stage in lines]
    return PlayedPlan(
        run,
        samples / period,
        period / ideal - 1,
        tuple(peak_in_flight(stage[0]) for stage in lines),
        tuple(peak_versions(stage[0], versions) for stage, versions in zip(lines, used, strict=True)),
        extra,
    )


def _ideal_period(plan: ParallelPlan) -> float:
    """Seconds between updates if the busiest device never waited."""
    work = [stage.forward_seconds * (1 + plan.recompute) + stage.backward_seconds for stage in plan.stages]
    if plan.scheme in STASHING:
        first = plan.stages[0].replicas
        return max(seconds / stage.replicas for seconds, stage in zip(work, plan.stages, strict=True)) * first
    return max(sum(work[s :: plan.depth]) for s in range(plan.depth)) * plan.microbatches
