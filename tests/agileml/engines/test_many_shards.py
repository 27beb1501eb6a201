"""A job's effort grows in proportion to its shards, also while they change hands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType

import numpy as np
import pytest

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.sim import SimulatedEngine
from agileml.engines.sim.job import Machines
from agileml.job import Stopping, TrainingJob
from agileml.params.layout import Params
from agileml.roles.node import JobSettings
from agileml.trainer import ParamReader, ParamView, Sample
from tests.agileml.engines.jobs import Choice, Timetable, evict, join, kill

ROWS = 64


class OneItemEach:
    """As many shards as one likes, with one item each."""

    name = "one-item-each"

    def __init__(self, count: int) -> None:
        self.count = count

    def init(self, rng: np.random.Generator) -> Params:
        return {"w": rng.standard_normal((ROWS, 2)).astype(np.float32)}

    def shards(self) -> Sequence[range]:
        return [range(number, number + 1) for number in range(self.count)]

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        del hi, rng
        rows = np.array([shard[lo] % ROWS])
        params.update(
            "w", rows, np.float32(1e-3) * np.cos(params.read("w", rows) + np.float32(clock))
        )

    def loss(self, params: ParamReader, sample: Sample) -> float:
        return float(np.abs(params.read("w")).mean()) + 0 * len(sample)


FAULTS: dict[str, Choice] = {
    "t3 ready": join(1),
    "warned": evict(slice(1), 100.0),
    "lost": kill(slice(1)),
}
"""By the event that says that it happened."""


def operations(work: Callable[[], None]) -> int:
    """Calls of functions and resumptions of generators, of Python's and of C's: the same in every
    run.
    """
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:  # noqa: ARG001
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.sampled(1)
@pytest.mark.parametrize("event", FAULTS)
def test_four_times_the_shards_take_about_four_times_the_operations(event: str) -> None:
    def job(shards: int) -> None:
        source = TrainerSource(f"{__name__}:OneItemEach", {"count": shards})
        planned = TrainingJob(source, 1, 2, Stopping(clocks=6), JobSettings(partitions=2))
        machines = Machines(seconds_per_item=0.1 / shards, loading=0.01)
        log: list[Iteration] = []
        SimulatedEngine(machines).run(planned, Timetable({2: [FAULTS[event]]}), log.append)
        assert any(event in line for iteration in log[2:] for line in iteration.events)

    few, many = operations(lambda: job(200)), operations(lambda: job(800))
    assert many / few < 4.5
