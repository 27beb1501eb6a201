"""`python -m bench.pipeline_speed [plans] [speed] [pauses] [splits] [--updates N]`: pipelines on
two processors.

`plans` compares the time of an update that the planner predicts from a profile with the measured
one, for ten plans, and the processor time of all nodes, which means something on a busy computer
too. `speed` compares two pipeline stages with one process, and with torch.distributed.pipelining on
the same blocks. `pauses` measures how long training stands still when a node is warned or killed.
Times are of the wall clock, if nothing else is said: run it on a quiet computer. `splits` measures
the processor time to split models of 200 layers over 8 servers of 8 devices, with and without a
limit on memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from agileml.engines.chaos import Act, RunningMachine
from agileml.errors import torch_module
from agileml.pipeline.builtin import Dense, squared_error
from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.model.base import Array, PipelineLayer, PipelineModel
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.plan.parallel_plan import ParallelPlan, SplitRequest, Topology
from agileml.pipeline.plan.partition import partition
from agileml.pipeline.plan.planner import plan, summary
from agileml.pipeline.profile.model_profile import CostRules, LayerCost, ModelProfile
from agileml.pipeline.run.local import FaultScript, train_local
from agileml.pipeline.run.training import PipelinePlan, planned_training
from agileml.pipeline.schedule.schedules import FLUSHING
from agileml.pipeline.torch_layers import TorchLayer
from spotctl.lab.profiler import profiled

if TYPE_CHECKING:
    from torch import nn

TABLES = ("plans", "speed", "pauses", "splits")
WIDTH, LAYERS, SAMPLES = 512, 8, 64
HIDDEN, HEADS, BLOCKS, SEQUENCE, SENTENCES, MICROBATCHES = 384, 6, 8, 32, 2, 16
"""Sizes of the transformer in `speed`: two stages of four blocks."""

BYTES_PER_SECOND = 1e9
"""Between two processes of this computer."""

WARM = 2
"""Updates before times count."""

COPIED = 10
"""Updates between copies of the layers in `speed` with 2bw, whose pipeline drains for that: as
often as the store has copies."""

ROUNDS = 3
"""How often each row of `speed` is run; the median counts."""

SGD = Optimizer("sgd", 0.001)


@dataclass(frozen=True)
class Noise:
    """Random inputs and targets of one shape."""

    shape: tuple[int, ...]
    kind: str = "float64"

    def __call__(self, number: int) -> tuple[Array, Array]:
        draw = np.random.default_rng(number)
        inputs, targets = (draw.standard_normal(self.shape).astype(self.kind) for _ in range(2))
        return inputs, targets


def dense(samples: int) -> PipelineModel:
    """Layers of numpy that take a few milliseconds each."""
    layers: list[PipelineLayer] = [Dense(WIDTH, WIDTH) for _ in range(LAYERS)]
    return PipelineModel(layers, squared_error, Noise((samples, WIDTH)))


@dataclass(frozen=True)
class Updates:
    """Time of an update: seconds of the clock, the median over segments of a run, and of all nodes'
    processors.
    """

    seconds: float
    processors: float


class Watch(FaultScript):
    """Calls a function after each update."""

    def __init__(self, note: Callable[[int], None]) -> None:
        super().__init__([])
        self._note, self._last = note, 0

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:
        if clock > self._last:
            self._last = clock
            self._note(clock)
        return super().due(clock, seconds, machines)


def processor_seconds() -> float:
    """Processor time of the processes that this one has started, and of those that they have."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()

    def started(process: int) -> bool:
        parent = int(stats[process][1]) if process in stats else 0
        return bool(parent) and (parent == os.getpid() or started(parent))

    used = [
        int(fields[11]) + int(fields[12]) for process, fields in stats.items() if started(process)
    ]
    return sum(used) / os.sysconf("SC_CLK_TCK")


def measure_updates(model: PipelineModel, steps: PipelinePlan, nodes: int) -> Updates:
    """A run on processes of this computer; all nodes take part from the beginning."""
    assert steps.layouts is not None
    ends: list[tuple[int, float, float]] = []
    # Updates of a segment count, and are reported, together.
    segment = 1 if steps.scheme in FLUSHING else steps.every

    def note(update: int) -> None:
        if update % segment == 0:
            ends.append((update, time.monotonic(), processor_seconds()))

    watch = Watch(note)
    train_local(
        model, SGD, replace(steps, layouts={nodes: steps.layouts[nodes]}), nodes, faults=watch
    )
    counted = ends[WARM - 1 :] if len(ends) > WARM else ends
    first, last = counted[0], counted[-1]
    gone = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(counted)]
    return Updates(median(gone), (last[2] - first[2]) / (last[0] - first[0]))


def predicted_work(chosen: ParallelPlan) -> float:
    """Processor seconds of an update on all devices."""
    passes = sum(
        (1 + chosen.recompute) * stage.forward_seconds + stage.backward_seconds
        for stage in chosen.stages
    )
    updates = sum(stage.update_seconds for stage in chosen.stages)
    return (passes * chosen.microbatches + updates) * chosen.stages[0].replicas


def requests() -> list[SplitRequest]:
    """Ten ways to train on up to two devices, all with eight microbatches or four."""
    pair = Topology((2,), (BYTES_PER_SECOND,))
    single = Topology((1,), (BYTES_PER_SECOND,))
    make = partial(SplitRequest, rules=CostRules(optimizer="sgd"), recompute=False)
    return [
        make(single, 8 * SAMPLES, scheme="flush", stages=1),
        make(single, 4 * SAMPLES, scheme="flush", stages=1),
        make(pair, 8 * SAMPLES, scheme="flush", stages=2),
        make(pair, 4 * SAMPLES, scheme="flush", stages=2),
        replace(make(pair, 8 * SAMPLES, scheme="flush", stages=2), recompute=True),
        make(pair, 8 * SAMPLES, scheme="gpipe", stages=2),
        make(pair, 8 * SAMPLES, scheme="interleaved", stages=2, chunks=2),
        make(pair, 8 * SAMPLES, scheme="interleaved", stages=2, chunks=4),
        make(pair, 8 * SAMPLES, scheme="2bw", stages=2),
        make(pair, 8 * SAMPLES, scheme="flush", stages=1, pipelines=2),
    ]


def plans(updates: int) -> Iterator[str]:
    """Predicted and measured time of an update. Layers are measured in processor time, which others
    do not lengthen.

    For plans with two nodes they are measured in two processes at once, which share this computer's
    memory as they do.
    """
    profiles = {
        n: profiled("dense", dense, [SAMPLES], 20, clock=time.process_time, together=n)
        for n in (1, 2)
    }
    yield f"## An update, {LAYERS} layers of width {WIDTH}, {SAMPLES} samples in a microbatch: predicted / measured ms"
    heads = ("plan", "microbatches", "time", "difference", "processors", "difference")
    yield from ("", f"| {' | '.join(heads)} |", "| --- " + "| ---: " * (len(heads) - 1) + "|")
    errors: list[list[float]] = []
    inside = 0
    for request in requests():
        chosen = plan(profiles[request.topology.devices], request)
        # 2bw drains before each backup; the other schemes need none here.
        every = 4 if chosen.scheme == "2bw" else 10 * updates
        length = 4 * updates if chosen.scheme == "2bw" else updates
        steps = planned_training(chosen, dense(SAMPLES), length, every)
        update = measure_updates(dense(SAMPLES), steps, chosen.devices)
        pairs = (
            (request.batch / chosen.samples_per_second, update.seconds),
            (predicted_work(chosen), update.processors),
        )
        errors.append([abs(a / b - 1) for a, b in pairs])
        slowest, fastest = chosen.interval
        inside += slowest <= request.batch / update.seconds <= fastest
        cells = [f"{a * 1e3:.1f} / {b * 1e3:.1f} | {a / b - 1:+.1%}" for a, b in pairs]
        yield f"| {summary(chosen)} | {request.batch // SAMPLES} | {' | '.join(cells)} |"
    for name, sizes in zip(("time", "processor time"), zip(*errors, strict=True), strict=True):
        yield f"\nMedian difference in {name} {median(sizes):.1%}, largest {max(sizes):.1%}."
    yield f"\n{inside} of {len(errors)} measured times are in the interval that the plan states.\n"


def _block() -> nn.Module:
    from agileml.pipeline.model.torch_blocks import CausalBlock

    return CausalBlock(HIDDEN, HEADS)


def blocks() -> PipelineModel:
    """The transformer's blocks."""
    layers = [TorchLayer(_block) for _ in range(BLOCKS)]
    return PipelineModel(layers, squared_error, Noise((SENTENCES, SEQUENCE, HIDDEN), "float32"))


def layout(stages: int) -> dict[int, PipelineLayout]:
    """Equal stages of blocks."""
    each = BLOCKS // stages
    spans = tuple((each * s, each * (s + 1) - 1) for s in range(stages))
    return {stages: PipelineLayout((spans,), (MICROBATCHES,))}


def _torch_rank(rank: int, address: str, updates: int, answers: object) -> None:
    """One of two processes of torch.distributed.pipelining."""
    import torch
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    modules = [_block() for _ in range(BLOCKS // 2)]
    stage = PipelineStage(torch.nn.Sequential(*modules), rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=torch.nn.functional.mse_loss)
    rule = torch.optim.SGD(stage.submod.parameters(), lr=SGD.rate)
    inputs, targets = (torch.randn(MICROBATCHES * SENTENCES, SEQUENCE, HIDDEN) for _ in range(2))
    seconds = []
    for update in range(updates):
        if update == WARM:
            used = time.process_time()
        began = time.monotonic()
        rule.zero_grad()
        schedule.step(inputs) if rank == 0 else schedule.step(target=targets)
        rule.step()
        torch.distributed.barrier()
        seconds.append(time.monotonic() - began)
    answers.put((median(seconds[WARM:]), (time.process_time() - used) / (updates - WARM)))  # type: ignore[attr-defined]
    torch.distributed.destroy_process_group()


def torch_updates(updates: int) -> Updates:
    """An update with torch.distributed.pipelining."""
    from torch.multiprocessing.spawn import spawn

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    answers = multiprocessing.get_context("spawn").SimpleQueue()
    spawn(_torch_rank, (f"tcp://127.0.0.1:{port}", updates, answers), nprocs=2)  # type: ignore[no-untyped-call]
    ranks = [answers.get() for _ in range(2)]
    return Updates(ranks[0][0], sum(used for _, used in ranks))


def speed(updates: int) -> Iterator[str]:
    """Two stages next to one process and to PyTorch's own pipeline."""
    torch_module()
    once = PipelinePlan(updates, MICROBATCHES, every=10 * updates, layouts=layout(1))
    twice = replace(
        once,
        batches=-(-4 * updates // COPIED) * COPIED,
        scheme="2bw",
        every=COPIED,
        layouts=layout(2),
    )
    rows: dict[str, Callable[[], Updates]] = {
        "one process": lambda: measure_updates(blocks(), once, 1),
        "two processes, each with a model of its own, for two updates": lambda: _side_by_side(once),
        "two stages, flush": lambda: measure_updates(blocks(), replace(once, layouts=layout(2)), 2),
        "two stages, 2bw": lambda: measure_updates(blocks(), twice, 2),
        "torch.distributed.pipelining, 1F1B": lambda: torch_updates(updates),
    }
    yield f"## {BLOCKS} blocks of width {HIDDEN}, {MICROBATCHES} microbatches of {SENTENCES} x {SEQUENCE} tokens"
    yield from (
        "",
        "| | ms per update | x one process | processor ms |",
        "| --- | ---: | ---: | ---: |",
    )
    # In turn, so that what else the computer does meets all of them.
    rounds = [[run() for run in rows.values()] for _ in range(ROUNDS)]
    # Ratios are those within a round, in which the computer was as busy for all rows.
    for i, name in enumerate(rows):
        seconds, used = (
            median(values)
            for values in zip(*((run[i].seconds, run[i].processors) for run in rounds), strict=True)
        )
        faster = median(run[0].seconds / run[i].seconds for run in rounds)
        yield f"| {name} | {seconds * 1e3:.1f} | {faster:.2f} | {used * 1e3:.1f} |"
    yield f"\nA flush can reach {2 * MICROBATCHES / (MICROBATCHES + 1):.2f} with two processors, 2bw 2: less if two"
    yield "processes slow each other down, as the second row shows.\n"


def _side_by_side(steps: PipelinePlan) -> Updates:
    """Half of an update while another process trains as well; they wait for nothing of each
    other."""
    with ThreadPoolExecutor(2) as threads:
        runs = [
            run.result()
            for run in [threads.submit(measure_updates, blocks(), steps, 1) for _ in range(2)]
        ]
    # Both count the processor time of all.
    return Updates(sum(run.seconds for run in runs) / 4, max(run.processors for run in runs) / 2)


FAULTS = {"warned": "warn", "killed": "kill"}


def pause(fault: str, updates: int) -> tuple[float, float]:
    """Seconds from a fault until training goes on with a spare node, and from the new plan on; the
    last are idle.
    """
    struck: list[float] = []
    watch = Watch(lambda update: struck.append(time.monotonic()) if update == updates else None)
    watch.faults.append((updates, fault))
    spans = ((0, LAYERS // 2 - 1), (LAYERS // 2, LAYERS - 1))
    steps = PipelinePlan(3 * updates, 8, layouts={2: PipelineLayout((spans,), (8,))})
    trained = train_local(dense(SAMPLES), SGD, steps, 3, faults=watch)
    last = trained.history[-1]
    assert last.running is not None
    return last.running - struck[0], last.running - last.began


def pauses(updates: int) -> Iterator[str]:
    """How long it takes until a spare node has the place of one of two, which is warned or
    killed."""
    yield "## Pause of an eviction: two stages and a spare node, copies of all layers after each update"
    yield from (
        "",
        "| the node is | ms from the fault to the next update | idle |",
        "| --- | ---: | ---: |",
    )
    for name, fault in FAULTS.items():
        whole, idle = pause(fault, updates)
        yield f"| {name} | {whole * 1e3:.0f} | {idle * 1e3:.0f} |"
    yield ""


def random_profile(seed: int) -> ModelProfile:
    """A model of 200 layers of a few milliseconds and megabytes."""
    draw = random.Random(seed)

    def layer(number: int) -> LayerCost:
        forward, backward = draw.uniform(0.5e-3, 1.5e-3), draw.uniform(1e-3, 3e-3)
        output, stash, weights = (
            draw.uniform(*ends) for ends in ((0.2e6, 4e6), (0.5e6, 4e6), (0.1e6, 6e6))
        )
        return LayerCost(str(number), forward, backward, output, stash, weights)

    return ModelProfile("random", 8, tuple(map(layer, range(200))))


def splits(models: int) -> Iterator[str]:
    """The largest processor time over some models, by the memory of a device and the links."""
    yield f"## {models} models of 200 layers on 8 x 8 devices: processor seconds of the slowest search"
    links = {
        "10 and 1.25 GB/s": (10e9, 1.25e9),
        "1 GB/s and 125 MB/s": (1e9, 125e6),
        "100 GB/s and 100 MB/s": (1e11, 1e8),
    }
    yield from ("", f"| memory | {' | '.join(links)} |", "| --- " + "| ---: " * len(links) + "|")
    for memory in (inf, 1e9, 5e8, 3e8):
        slowest = []
        for bandwidths in links.values():
            began = [time.process_time()]
            for seed in range(models):
                partition(
                    random_profile(seed),
                    Topology((8, 8), bandwidths),
                    CostRules(memory_bytes=memory),
                )
                began.append(time.process_time())
            slowest.append(max(after - before for before, after in pairwise(began)))
        named = "any" if memory == inf else f"{memory / 1e6:.0f} MB"
        yield f"| {named} | {' | '.join(f'{seconds:.2f}' for seconds in slowest)} |"
    yield ""


def main(words: Sequence[str] | None = None) -> None:
    """Prints the tables that were asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_speed", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"tables to print: {', '.join(TABLES)}"
    )
    parser.add_argument("--updates", type=int, default=20, help="updates of each run")
    chosen = parser.parse_args(words)
    if unknown := set(chosen.names) - set(TABLES):
        parser.error(f"unknown table {min(unknown)!r}: choose from {', '.join(TABLES)}")
    tables = {"plans": plans, "speed": speed, "pauses": pauses, "splits": splits}
    for name in chosen.names or TABLES:
        for line in tables[name](max(chosen.updates, WARM + 2)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
