"""`python -m tests.agileml.pipeline.plan.brute_force [MODELS]`: both searches and all splits of random models.

Nothing here is shared with the searches but the formulas of the specification: every composition of stages is listed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from functools import cache
from math import ceil, inf, prod

from agileml.pipeline.plan.partition_flat import flat_splits
from agileml.pipeline.plan.partition_levels import level_splits
from agileml.pipeline.plan.topology import Topology
from agileml.pipeline.profile.costs import CostRules, SpanTables
from agileml.pipeline.profile.model_profile import LayerCost, ModelProfile

StageChain = list[tuple[int, int, int]]
"""Stages: first layer, last layer, workers."""


def chains(first: int, last: int, workers: int) -> Iterator[StageChain]:
    yield [(first, last, workers)]
    for cut in range(first, last):
        for own in range(1, workers):
            for rest in chains(cut + 1, last, workers - own):
                yield [(first, cut, own), *rest]


def sync_seconds(profile: ModelProfile, stage: tuple[int, int, int], bandwidth: float, rules: CostRules) -> float:
    first, last, m = stage
    weights = sum(layer.weight_bytes for layer in profile.layers[first : last + 1])
    return 2 * (m - 1) * weights / bandwidth / (m if rules.sync == "ring" else 1)


def joined(compute: float, sync: float, rules: CostRules) -> float:
    return max(compute, sync) + (1 - rules.overlap) * min(compute, sync)


def best_levels(profile: ModelProfile, topology: Topology, rules: CostRules) -> float:
    @cache
    def best(level: int, first: int, last: int, workers: int) -> float:
        if level < 0:
            weights = sum(layer.weight_bytes for layer in profile.layers[first : last + 1])
            stash = sum(layer.stash_bytes for layer in profile.layers[first : last + 1])
            fits = 2 * weights + stash <= rules.memory_bytes
            return sum(layer.seconds for layer in profile.layers[first : last + 1]) if fits else inf
        bandwidth = topology.bandwidths[level]
        inner = topology.counts[level - 1] if level else 1
        least = inf
        for chain in chains(first, last, workers):
            times = [
                joined(best(level - 1, i, j, inner), sync_seconds(profile, (i, j, m), bandwidth, rules), rules) / m
                for i, j, m in chain
            ]
            times += [2 * profile.layers[j].output_bytes / bandwidth for _, j, _ in chain[:-1]]
            least = min(least, max(times))
        return least

    return best(len(topology.counts) - 1, 0, len(profile.layers) - 1, topology.counts[-1])


def best_flat(profile: ModelProfile, topology: Topology, rules: CostRules) -> float:
    servers = [prod(topology.counts[: k + 1]) for k in range(len(topology.counts))]

    def between(devices: list[int]) -> float:
        """The slowest link of a group: level k is used if the group does not fit into one component of level k - 1."""
        used = [topology.bandwidths[0]]
        used += [
            topology.bandwidths[k]
            for k in range(1, len(servers))
            if len({device // servers[k - 1] for device in devices}) > 1
        ]
        return min(used)

    least = inf
    for chain in chains(0, len(profile.layers) - 1, topology.devices):
        times, left = [], topology.devices
        for s, (i, j, m) in enumerate(chain):
            # The last device of the pipeline has number 0.
            own = list(range(left - m, left))
            weights = sum(layer.weight_bytes for layer in profile.layers[i : j + 1])
            stash = sum(layer.stash_bytes for layer in profile.layers[i : j + 1])
            flying = ceil(left / m)
            if (flying + 1) * weights + flying * stash > rules.memory_bytes:
                times.append(inf)
            compute = sum(layer.seconds for layer in profile.layers[i : j + 1])
            times.append(joined(compute, sync_seconds(profile, (i, j, m), between(own), rules), rules) / m)
            left -= m
            if s + 1 < len(chain):
                following = range(left - chain[s + 1][2], left)
                times.append(2 * profile.layers[j].output_bytes / between([*own, *following]))
        least = min(least, max(times))
    return least


def random_case(seed: int) -> tuple[ModelProfile, Topology, CostRules]:
    draw = random.Random(seed)
    layers = tuple(
        LayerCost(f"layer{i}", draw.random(), draw.random(), draw.random() ** 3 * 4, draw.random(), draw.random() * 3)
        for i in range(draw.randint(1, 6))
    )
    counts = draw.choice([(3,), (5,), (2, 2), (3, 2), (2, 3), (2, 2, 2)] if len(layers) < 6 else [(4,), (2, 2)])
    rates = sorted((draw.uniform(0.5, 20) for _ in counts), reverse=True)
    memory = draw.choice([inf, inf, draw.uniform(4, 40)])
    rules = CostRules(draw.choice(["ring", "shared"]), draw.choice([1.0, 1.0, 0.0, 0.5]), memory)
    return ModelProfile("random", 1, layers), Topology(counts, tuple(rates)), rules


def mismatches(seed: int) -> list[str]:
    profile, topology, rules = random_case(seed)
    tables = SpanTables.of(profile)
    wrong = []
    for name, search, brute in (("levels", level_splits, best_levels), ("flat", flat_splits, best_flat)):
        expected = brute(profile, topology, rules)
        splits = [split for split in search(tables, topology, rules) if split.workers == topology.devices]
        got = splits[0].seconds if splits else inf
        if got != expected and abs(got - expected) > 1e-12 * expected:
            wrong.append(f"seed {seed}: {name} found {got}, all splits {expected}")
    return wrong


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    wrong = [line for seed in range(count) for line in mismatches(seed)]
    print("\n".join(wrong) or f"{count} random models: both searches equal brute force")
    sys.exit(bool(wrong))
