"""Where to cut a model into stages, and how often to replicate each: two searches, and the better of both.

`levels` splits within a server first and then over whole servers (Narayanan, section 2.4.1, with the bare term
T^k(i, j, m) that data parallelism needs). `flat` looks at all devices at once: a stage may span servers, and then pays
its slowest link. Both minimize the seconds per input of the slowest stage or link.
"""

from dataclasses import dataclass, replace
from math import ceil, inf

from agileml.pipeline.plan.partition_flat import flat_splits
from agileml.pipeline.plan.partition_levels import level_splits
from agileml.pipeline.plan.splits import ModelSplit, in_flight
from agileml.pipeline.plan.topology import Topology
from agileml.pipeline.profile.costs import CostRules, SpanTables, versioned_bytes
from agileml.pipeline.profile.model_profile import BadProfile, ModelProfile

FEWER_WORKERS = 1.01
"""A split may be this much slower than the best one if it needs fewer workers."""


@dataclass(frozen=True)
class Partition:
    """The split that was chosen, and the best of each kind that was not."""

    chosen: ModelSplit
    reason: str
    rejected: tuple[tuple[str, str], ...]


def partition(profile: ModelProfile, topology: Topology, rules: CostRules) -> Partition:
    """The fastest split that fits into memory; the one with the fewest workers among those within 1% of it."""
    tables, limit = SpanTables.of(profile), rules.memory_bytes
    check_layers_fit(profile, rules)
    candidates = flat_splits(tables, topology, rules)
    refused: list[ModelSplit] = []
    if len(topology.counts) > 1:
        for split in level_splits(tables, topology, replace(rules, memory_bytes=inf)):
            fits = max(split_bytes(split, tables, rules)) <= limit
            (candidates if fits else refused).append(split)
    most = min((split.seconds for split in candidates), default=inf) * FEWER_WORKERS
    # Memory is the same wherever stages are, so if no flat split fits, none does.
    if candidates and any(split.seconds <= most for split in refused):
        candidates += level_splits(tables, topology, rules, most)
    if not candidates:
        raise BadProfile(
            f"no split of {profile.model} over {topology.devices} devices fits into memory of"
            f" {limit:,.0f} bytes: use more devices, smaller microbatches or recomputation"
        )
    best = min(split.seconds for split in candidates)
    near = [split for split in candidates if split.seconds <= best * FEWER_WORKERS]
    chosen = min(near, key=lambda split: (split.workers, split.seconds))
    limits = {id(split): limit_of(split, tables, topology) for split in candidates}
    large = [
        (f"levels {split}", f"a stage needs {max(split_bytes(split, tables, rules)):,.0f} bytes of {limit:,.0f}")
        for split in refused
    ]
    return Partition(chosen, _reason(chosen, best, topology, limits), (*large, *_losers(candidates, chosen, limits)))


def check_layers_fit(profile: ModelProfile, rules: CostRules) -> None:
    """Raises BadProfile for a layer that no device can hold."""
    tables = SpanTables.of(profile)
    for i, layer in enumerate(profile.layers):
        need = float(stage_bytes(tables, i, i, 1, rules))
        if need > rules.memory_bytes:
            raise BadProfile(
                f"layer {layer.name!r} needs {need:,.0f} bytes, and a device has"
                f" {rules.memory_bytes:,.0f}: use smaller microbatches, larger devices or cut the layer"
            )


def stage_bytes(tables: SpanTables, first: int, last: int, flying: int, rules: CostRules) -> float:
    """Bytes of one worker of a stage under weight stashing."""
    span = (slice(first, first + 1), slice(last, last + 1))
    return float(versioned_bytes(tables.weights[span], tables.stash[span], flying, rules.optimizer)[0, 0])


def split_bytes(split: ModelSplit, tables: SpanTables, rules: CostRules) -> list[float]:
    """Bytes of one worker of every stage."""
    flying = in_flight([stage.replicas for stage in split.stages])
    return [
        stage_bytes(tables, stage.first, stage.last, count, rules)
        for stage, count in zip(split.stages, flying, strict=True)
    ]


def noam(split: ModelSplit) -> int:
    """Inputs that each replica of the first stage admits before the pipeline is full."""
    return ceil(split.workers / split.stages[0].replicas)


def limit_of(split: ModelSplit, tables: SpanTables, topology: Topology) -> str:
    """The bottleneck of a split: compute, a link or synchronization."""
    nearly = split.seconds * (1 - 1e-9)
    for s, stage in enumerate(split.stages, 1):
        if tables.seconds[stage.first, stage.last] / stage.replicas >= nearly:
            return f"compute of pipeline stage {s}"
    for s, stage in enumerate(split.stages[:-1], 1):
        if any(2 * tables.outputs[stage.last] / bandwidth >= nearly for bandwidth in topology.bandwidths):
            return f"the link after pipeline stage {s}"
    replicated = [
        (tables.weights[stage.first, stage.last] / stage.replicas, s) for s, stage in enumerate(split.stages, 1)
    ]
    return f"weight synchronization of pipeline stage {max(replicated)[1]}"


def _reason(chosen: ModelSplit, best: float, topology: Topology, limits: dict[int, str]) -> str:
    spare = topology.devices - chosen.workers
    slower = "" if chosen.seconds <= best else f" ({chosen.seconds / best - 1:.1%} slower than the fastest)"
    fewer = f"; {spare} devices are not used: they would gain less than 1%" if spare else ""
    return f"limited by {limits[id(chosen)]}{slower}{fewer}"


def _losers(candidates: list[ModelSplit], chosen: ModelSplit, limits: dict[int, str]) -> list[tuple[str, str]]:
    """The best of each other kind."""
    rest = [split for split in candidates if split.stages != chosen.stages]
    kinds = {
        "levels": [split for split in rest if split.search == "levels"],
        "flat": [split for split in rest if split.search == "flat"],
        "data parallelism": [split for split in rest if len(split.stages) == 1 and split.workers > 1],
        "straight": [split for split in rest if len(split.stages) == split.workers > 1],
    }
    losers: dict[str, str] = {}
    for name, members in kinds.items():
        if best := min(members, key=lambda split: (split.seconds, split.workers), default=None):
            gap = best.seconds / chosen.seconds
            losers[f"{name} {best}"] = (
                f"{gap:.3g}x the time per input on {best.workers} devices; limited by " + limits[id(best)]
            )
    return list(losers.items())
