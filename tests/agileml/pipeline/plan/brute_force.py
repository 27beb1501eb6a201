"""`python -m tests.agileml.pipeline.plan.brute_force [MODELS]`: the planner next to every plan of
random models.

Nothing here is shared with the planner but the formulas of the specification. Every placement is
listed, the memory of each of its workers is checked, and the fastest counts.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import ceil, inf, prod

from agileml.pipeline.plan.parallel_plan import SplitRequest, Topology
from agileml.pipeline.plan.partition import partition
from agileml.pipeline.plan.planner import plan
from agileml.pipeline.profile.model_profile import BadProfile, CostRules, LayerCost, ModelProfile

StageChain = list[tuple[int, int, int]]
"""Stages: first layer, last layer, workers."""
COUNTS = [
    (3,),
    (4,),
    (5,),
    (2, 2),
    (3, 2),
    (2, 3),
    (4, 2),
    (2, 4),
    (2, 2, 2),
    (1, 3, 2),
    (3, 1, 2),
    (2, 2, 3),
]


def chains(first: int, last: int, workers: int) -> Iterator[StageChain]:
    yield [(first, last, workers)]
    for cut in range(first, last):
        for own in range(1, workers):
            for rest in chains(cut + 1, last, workers - own):
                yield [(first, cut, own), *rest]


@dataclass(frozen=True)
class Case:
    """A model, devices and rules."""

    profile: ModelProfile
    topology: Topology
    rules: CostRules

    def bytes_of(self, name: str, first: int, last: int) -> float:
        return sum(float(getattr(layer, name)) for layer in self.profile.layers[first : last + 1])

    def seconds_of(self, compute: float, stage: tuple[int, int, int], bandwidth: float) -> float:
        """Seconds per input of a stage on m workers (or servers) that take `compute` each."""
        first, last, m = stage
        sync = 2 * (m - 1) * self.bytes_of("weight_bytes", first, last) / bandwidth
        sync /= m if self.rules.sync == "ring" else 1
        return (max(compute, sync) + (1 - self.rules.overlap) * min(compute, sync)) / m

    def compute_of(self, first: int, last: int) -> float:
        return sum(layer.seconds for layer in self.profile.layers[first : last + 1])

    def all_fit(self, stages: StageChain) -> bool:
        """Whether each worker holds the weights and stashes of its inputs in flight, and
        gradients."""
        for s, (first, last, m) in enumerate(stages):
            flying = ceil(sum(workers for _, _, workers in stages[s:]) / m)
            held = (flying + 1) * self.bytes_of("weight_bytes", first, last)
            if held + flying * self.bytes_of("stash_bytes", first, last) > self.rules.memory_bytes:
                return False
        return True

    def nested(
        self, level: int, first: int, last: int, parts: int
    ) -> Iterator[tuple[float, StageChain]]:
        """All pipelines over `parts` components of a level, each of them a pipeline too: seconds,
        and stages.
        """
        if level < 0:
            yield self.compute_of(first, last), [(first, last, 1)]
            return
        bandwidth, inner = (
            self.topology.bandwidths[level],
            self.topology.counts[level - 1] if level else 1,
        )
        for chain in chains(first, last, parts):
            links = [2 * self.profile.layers[j].output_bytes / bandwidth for _, j, _ in chain[:-1]]
            built: list[tuple[float, StageChain]] = [(max(links, default=0.0), [])]
            for i, j, m in chain:
                built = [
                    (
                        max(slowest, self.seconds_of(seconds, (i, j, m), bandwidth)),
                        [*before, *((a, b, m * r) for a, b, r in stages)],
                    )
                    for slowest, before in built
                    for seconds, stages in self.nested(level - 1, i, j, inner)
                ]
            yield from built

    def between(self, devices: range) -> float:
        """The slowest link of a group: level k is used if the group does not fit into one component
        of level k - 1.
        """
        counts, rates = self.topology.counts, self.topology.bandwidths
        sizes = [prod(counts[:k]) for k in range(1, len(counts))]
        used = [
            rate
            for size, rate in zip(sizes, rates[1:], strict=True)
            if len({d // size for d in devices}) > 1
        ]
        return min([rates[0], *used])

    def in_a_row(self, workers: int) -> Iterator[tuple[float, StageChain]]:
        """All pipelines over consecutive devices, the last device of the pipeline being number
        0."""
        for chain in chains(0, len(self.profile.layers) - 1, workers):
            times, left = [], workers
            for s, (i, j, m) in enumerate(chain):
                times.append(
                    self.seconds_of(
                        self.compute_of(i, j), (i, j, m), self.between(range(left - m, left))
                    )
                )
                if s + 1 < len(chain):
                    both = range(left - m - chain[s + 1][2], left)
                    times.append(2 * self.profile.layers[j].output_bytes / self.between(both))
                left -= m
            yield max(times), chain

    def best_by_workers(self) -> dict[int, float]:
        """The fastest placement that fits, for each number of workers that has one."""
        counts, top = self.topology.counts, len(self.topology.counts) - 1
        placements = [p for workers in range(1, prod(counts) + 1) for p in self.in_a_row(workers)]
        for parts in range(1, counts[-1] + 1):
            placements += self.nested(top, 0, len(self.profile.layers) - 1, parts)
        best: dict[int, float] = {}
        for seconds, stages in placements:
            workers = sum(m for _, _, m in stages)
            if seconds < best.get(workers, inf) and self.all_fit(stages):
                best[workers] = seconds
        return best


def random_case(seed: int) -> Case:
    """Two of three have a limit between the need of the largest layer and that of the whole
    model."""
    draw = random.Random(seed)
    counts = draw.choice(COUNTS)
    layers = tuple(
        LayerCost(
            f"layer{i}",
            draw.random(),
            draw.random(),
            draw.random() ** 3 * 4,
            draw.random(),
            draw.random() * 3,
        )
        for i in range(draw.randint(1, 6 if prod(counts) < 8 else 4))
    )
    rates = sorted((draw.uniform(0.5, 20) for _ in counts), reverse=True)
    least = max(2 * layer.weight_bytes + layer.stash_bytes for layer in layers)
    whole = sum(3 * layer.weight_bytes + 2 * layer.stash_bytes for layer in layers)
    memory = draw.choice([inf, draw.uniform(least, whole), draw.uniform(least, 2 * least)])
    rules = CostRules(draw.choice(["ring", "shared"]), draw.choice([1.0, 1.0, 0.0, 0.5]), memory)
    return Case(ModelProfile("random", 1, layers), Topology(counts, tuple(rates)), rules)


def mismatch(seed: int) -> str:
    """How the planner's choice differs from that among all placements, if it does."""
    case = random_case(seed)
    best = case.best_by_workers()
    where = f"seed {seed}, {'x'.join(map(str, case.topology.counts))} devices"
    try:
        chosen = partition(case.profile, case.topology, case.rules)
    except BadProfile:
        return f"{where}: the planner found nothing, and {min(best.values())} fits" if best else ""
    if not best:
        return f"{where}: the planner found {chosen}, and nothing fits"
    workers = min(w for w, seconds in best.items() if seconds <= min(best.values()) * 1.01)
    if chosen.workers == workers and abs(chosen.seconds - best[workers]) <= 1e-12 * best[workers]:
        return ""
    times = chosen.seconds / best[workers]
    return (
        f"{where}: {times:.3f} times the fastest; {chosen} on {chosen.workers}, and {workers} "
        "workers suffice"
    )


def best_straight(
    profile: ModelProfile, scheme: str, stages: int, memory: float, *, recompute: bool
) -> float:
    """Seconds of the slowest stage, of all cuts into stages that fit; four microbatches in a
    batch."""
    layers, best = profile.layers, inf
    for cuts in combinations(range(1, len(layers)), stages - 1):
        times = []
        for s, (a, b) in enumerate(pairwise((0, *cuts, len(layers))), 1):
            flying = {"gpipe": 4, "flush": min(4, stages - s + 1), "2bw": stages - s + 1}[scheme]
            versions, stashes = 2 if scheme == "2bw" else 1, 1 if recompute else flying
            given = layers[a - 1].output_bytes if a else profile.input_bytes
            held = (versions + 1) * sum(layer.weight_bytes for layer in layers[a:b])
            held += stashes * sum(layer.stash_bytes for layer in layers[a:b]) + flying * given
            times.append(sum(layer.seconds for layer in layers[a:b]) if held <= memory else inf)
        best = min(best, max(times))
    return best


def straight_mismatch(seed: int) -> str:
    """How the cuts of a straight pipeline differ from the best of all cuts, if they do."""
    draw = random.Random(seed)
    profile = random_case(seed).profile
    stages, recompute = draw.randint(1, min(4, len(profile.layers))), draw.random() < 0.5
    scheme = draw.choice(["gpipe", "flush", "2bw"] if stages > 1 else ["gpipe", "flush"])
    memory = (
        draw.uniform(1, 4)
        * sum(layer.weight_bytes + layer.stash_bytes for layer in profile.layers)
        / stages
    )
    best = best_straight(profile, scheme, stages, memory, recompute=recompute)
    where = f"seed {seed}, {scheme} in {stages} stages"
    far, rules = Topology((stages,), (1e12,)), CostRules(memory_bytes=memory)
    request = SplitRequest(far, 4, rules, scheme, 9, stages, 1, 1, recompute)
    try:
        planned = plan([profile], request).stages
    except BadProfile:
        return (
            f"{where}: the planner found nothing, and a slowest stage of {best} fits"
            if best < inf
            else ""
        )
    slowest = max(stage.forward_seconds + stage.backward_seconds for stage in planned)
    return (
        f"{where}: {slowest} in the slowest stage, and {best} fits"
        if abs(slowest - best) > 1e-12 * best
        else ""
    )


def main(count: int) -> int:
    """Prints each difference and their number."""
    kinds = {"plans on one to three levels": mismatch, "straight pipelines": straight_mismatch}
    wrong = dict.fromkeys(kinds, 0)
    for kind, compared in kinds.items():
        for seed in range(count):
            if line := compared(seed):
                wrong[kind] += 1
                print(line, flush=True)
            if sys.stderr.isatty():
                print(f"\r{seed + 1} of {count}", end="", file=sys.stderr)
        print(f"{kind}: {count - wrong[kind]} of {count} equal brute force", flush=True)
    return any(wrong.values())


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
