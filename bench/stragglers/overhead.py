"""The cost of all measures against stragglers where no worker is slow: messages, processor time and
virtual time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np

from agileml import train
from agileml.core.events import Iteration
from agileml.engines.sim import SimulatedEngine
from agileml.engines.sim.job import Machines
from agileml.engines.sim.network import Messages
from agileml.policies.stragglers import Stragglers
from agileml.trainer import ParamView
from spotctl.lab.papers.stragglers import CHUNK_SECONDS, CHUNKS, Light

WORK_SECONDS = 0.001
"""Processor time of a chunk, a tenth of its virtual time, as real training would use it."""

REPEATS = 3
"""Jobs of each kind, in turns; the one with the least processor time counts."""

MOST = 0.02


class Busy(Light):
    """Really computes."""

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """Keeps the processor busy, then updates as `Light` does."""
        until = time.thread_time() + WORK_SECONDS
        while time.thread_time() < until:
            pass
        super().step(shard, lo, hi, params, clock, rng)


@dataclass(frozen=True)
class Cost:
    """Of one job."""

    messages: int
    processor: float
    virtual: float


def played(stragglers: Stragglers, workers: int, clocks: int) -> Cost:
    """One job with a slack of 0, as backup workers need it."""
    log: list[Iteration] = []
    arrived = 0
    arrive = Messages.arrive

    def counted(messages: Messages, sender: str, receiver: str, message: object) -> None:
        nonlocal arrived
        arrived += 1
        arrive(messages, sender, receiver, message)

    began = time.process_time()
    with patch.object(Messages, "arrive", counted):
        train(
            Busy(workers),
            f"1+{workers - 1}",
            SimulatedEngine(Machines(seconds_per_item=CHUNK_SECONDS)),
            clocks=clocks,
            listener=log.append,
            stage=1,
            stragglers=stragglers,
            loss_sample=0,
            checkpoint_every=0,
        )
    return Cost(arrived, time.process_time() - began, sum(iteration.seconds for iteration in log))


def run(workers: int, clocks: int) -> str:
    """The costs next to each other, and how much more all three measures take."""
    repeated: list[tuple[Stragglers, list[Cost]]] = [
        (Stragglers(), []),
        (Stragglers(True, True, True), []),
    ]
    for _ in range(REPEATS):
        for stragglers, costs in repeated:
            costs.append(played(stragglers, workers, clocks))
    none, three = (min(costs, key=lambda cost: cost.processor) for _, costs in repeated)
    lines = ["## All measures, and no slow worker", ""]
    lines += [
        f"{workers} workers, {clocks} clocks of {CHUNKS} chunks, {WORK_SECONDS * 1000:g} ms of "
        "work in each",
        "",
    ]
    lines += [
        "| | none | all three | more | per chunk of work |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    chunks = workers * clocks * CHUNKS
    for name, without, measured in (
        ("messages", none.messages, three.messages),
        ("processor seconds", none.processor, three.processor),
        ("virtual seconds", none.virtual, three.virtual),
    ):
        lines.append(
            f"| {name} | {without:.6g} | {measured:.6g} | {measured / without - 1:.2%} |"
            f" {(measured - without) / chunks:.2g} |"
        )
    return "\n".join([*lines, "", f"To reach: less than {MOST:.0%} more."]) + "\n"
