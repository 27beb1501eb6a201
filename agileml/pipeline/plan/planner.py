"""Chooses scheme, stages, pipelines, microbatch size and recomputation for a model on given
devices.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd

from agileml.errors import BadArgument, BadInput
from agileml.pipeline.plan.candidates import planned_stage, straight_plans
from agileml.pipeline.plan.parallel_plan import (
    ModelSplit,
    ParallelPlan,
    PlannedStage,
    SpeedBasis,
    SplitRequest,
    in_flight,
    speed_interval,
)
from agileml.pipeline.plan.partition import check_layers_fit, partition, split_bytes
from agileml.pipeline.profile.model_profile import (
    BadProfile,
    ModelProfile,
    SpanTables,
    on_lanes,
    sync_factor,
    tensor_degrees,
    updated_always,
)
from agileml.pipeline.schedule import schedules

SHOWN_PLANS = 8
"""Alternatives of each kind that a plan lists."""


def plan(
    profiles: Sequence[ModelProfile], request: SplitRequest, basis: SpeedBasis = "profiled"
) -> ParallelPlan:
    """The fastest plan that fits; raises BadProfile if none does."""
    fitting: list[ParallelPlan] = []
    refused: list[ParallelPlan] = []
    impossible: dict[str, BadInput] = {}

    # Numbers of devices that can share the parts of all split layers equally.
    parts = {layer.parts for profile in profiles for layer in profile.layers} - {1}
    for tensor in [request.tensor] if request.tensor else [1, *tensor_degrees(gcd(*parts))]:
        try:
            candidates = _with_tensor(tensor, profiles, request, basis)
        except BadInput as error:
            impossible[f"tensor {tensor}"] = error
            continue
        for candidate in candidates:
            (fitting if candidate.memory_bytes <= request.rules.memory_bytes else refused).append(
                candidate
            )

    if not fitting and not refused and impossible:
        raise next(iter(impossible.values()))
    if not fitting:
        raise BadProfile(_no_plan(profiles[0].model, refused, request))

    chosen = max(fitting, key=_rank)
    reasons = tuple((name, str(error)) for name, error in impossible.items())

    # The best losing plan of every scheme and depth, and faster plans that do not fit.
    losers = [loser for loser in _best_of_kinds(fitting) if summary(loser) != summary(chosen)]
    slower = [(summary(loser), _why(loser, chosen)) for loser in _shown(losers)]
    faster = [
        loser
        for loser in _best_of_kinds(refused)
        if loser.samples_per_second > chosen.samples_per_second
    ]

    large = [
        (summary(loser), f"does not fit: {_too_large(loser, request)}") for loser in _shown(faster)
    ]
    return replace(chosen, rejected=(*reasons, *large, *slower, *chosen.rejected))


def _with_tensor(
    tensor: int, profiles: Sequence[ModelProfile], request: SplitRequest, basis: SpeedBasis
) -> list[ParallelPlan]:
    """All plans whose split layers are shared by `tensor` devices. Raises BadInput if there cannot
    be any.
    """
    lanes = profiles
    grouped = request
    if tensor > 1:
        lanes = [on_lanes(profile, tensor, request.topology.bandwidths[0]) for profile in profiles]
        grouped = replace(request, topology=request.topology.grouped(tensor), tensor=1)

    plans: list[ParallelPlan] = []
    for profile in lanes:
        if grouped.stages and grouped.stages > len(profile.layers):
            raise BadArgument(
                f"stages is {grouped.stages}, and {profile.model} has {len(profile.layers)} layers:"
                " use at most that many"
            )
        check_layers_fit(profile, grouped.rules)
        plans += straight_plans(profile, grouped, basis)
        split = _partitioned(profile, grouped, basis)
        # The runtime does not share layers between stages with replicas of their own: these plans
        # must be asked for.
        plans += [
            candidate
            for candidate in split
            if tensor == 1 or request.tensor or candidate.devices == candidate.depth
        ]

    return [replace(candidate, tensor=tensor) for candidate in plans]


def _no_plan(model: str, refused: Sequence[ParallelPlan], request: SplitRequest) -> str:
    if not refused:
        return (
            f"no plan for {model}: batch {request.batch} is not a multiple of any microbatch size "
            "times pipelines, or"
            " the scheme needs more microbatches than stages: use another batch size, scheme or "
            "number of stages"
        )

    least = min(refused, key=lambda candidate: candidate.memory_bytes)
    return (
        f"no plan for {model} fits: {summary(least)} needs the least memory, "
        f"{_too_large(least, request)}: use more or larger devices, or smaller microbatches"
    )


def _too_large(candidate: ParallelPlan, request: SplitRequest) -> str:
    return (
        f"{candidate.memory_bytes / 2**30:.3g} GiB of {request.rules.memory_bytes / 2**30:.3g} GiB "
        "on a device"
    )


def summary(candidate: ParallelPlan) -> str:
    """A plan in a few words."""
    parts = [
        candidate.scheme,
        "-".join(str(stage.replicas) for stage in candidate.stages[: candidate.depth]),
    ]
    parts += [f"microbatch {candidate.microbatch}"]
    parts += [f"{candidate.chunks} chunks"] * (candidate.chunks > 1) + [
        "recomputing"
    ] * candidate.recompute
    parts += [f"tensor {candidate.tensor}"] * (candidate.tensor > 1)

    return ", ".join(parts)


def _rank(candidate: ParallelPlan) -> tuple[float, float, float]:
    """Faster first; among plans within a thousandth fewer devices, then less memory."""
    return (
        float(f"{candidate.samples_per_second:.3g}"),
        -candidate.devices,
        -candidate.memory_bytes,
    )


def _shown(ranked: Sequence[ParallelPlan]) -> list[ParallelPlan]:
    """The first plans, and the best of each degree of tensor parallelism."""
    best = {candidate.tensor: candidate for candidate in reversed(ranked)}
    return [
        candidate
        for i, candidate in enumerate(ranked)
        if i < SHOWN_PLANS or best[candidate.tensor] is candidate
    ]


def _best_of_kinds(plans: Sequence[ParallelPlan]) -> list[ParallelPlan]:
    best: dict[tuple[str, int, bool, int], ParallelPlan] = {}
    for candidate in plans:
        kind = (candidate.scheme, len(candidate.stages), candidate.recompute, candidate.tensor)
        if kind not in best or _rank(candidate) > _rank(best[kind]):
            best[kind] = candidate
    return sorted(best.values(), key=_rank, reverse=True)


def _why(loser: ParallelPlan, chosen: ParallelPlan) -> str:
    speed = loser.samples_per_second / chosen.samples_per_second
    if speed >= 0.999:
        what = "more devices" if loser.devices > chosen.devices else "more memory"
        return f"the same speed with {what}"
    return f"{1 - speed:.1%} slower: limited by {loser.bottleneck}"


def _partitioned(
    profile: ModelProfile, request: SplitRequest, basis: SpeedBasis
) -> Iterator[ParallelPlan]:
    """The split with unequal replicas, for schemes that update after every input."""
    named = request.scheme in schedules.STASHING
    wanted = named or (request.scheme == "auto" and request.allow_delay > 0)
    if not wanted or request.stages or request.recompute:
        return

    profile = updated_always(profile, request.rules.optimizer)
    try:
        split = partition(profile, request.topology, request.rules)
    except BadProfile:
        if named:
            raise
        return

    noam = in_flight([stage.replicas for stage in split.stages])[0]
    if not named and noam - 1 > request.allow_delay:
        return

    held = split_bytes(split, SpanTables.of(profile), request.rules)
    speed = profile.microbatch / split.seconds
    yield ParallelPlan(
        model=profile.model,
        scheme=request.scheme if named else "pipedream",
        stages=tuple(_partitioned_stages(profile, split, held, request)),
        chunks=1,
        noam=noam,
        microbatch=profile.microbatch,
        microbatches=1,
        recompute=False,
        samples_per_second=speed,
        interval=speed_interval(speed, basis),
        idle=1 - profile.seconds / (split.seconds * split.workers),
        bubble=0.0,
        memory_bytes=max(held),
        bottleneck=split.bottleneck,
        basis=basis,
        unpipelined_samples_per_second=profile.microbatch / profile.seconds,
        rejected=split.rejected,
    )


def _partitioned_stages(
    profile: ModelProfile, split: ModelSplit, held: Sequence[float], request: SplitRequest
) -> Iterator[PlannedStage]:
    """The stages with their links. Devices are counted from the end of the pipeline, as the flat
    search does.
    """
    left = split.workers
    following = [*[stage.replicas for stage in split.stages[1:]], 0]
    for stage, bytes_, after in zip(split.stages, held, following, strict=True):
        planned = planned_stage(
            profile, (stage.first, stage.last), stage.replicas, request.rules.optimizer
        )
        across = request.topology.slowest(left - stage.replicas - after, left - 1)
        within = request.topology.slowest(left - stage.replicas, left - 1)
        yield replace(
            planned,
            memory_bytes=bytes_,
            send_seconds=planned.output_bytes / across if after else 0.0,
            sync_seconds=sync_factor(stage.replicas, request.rules.sync)
            * planned.weight_bytes
            / within,
        )
        left -= stage.replicas
