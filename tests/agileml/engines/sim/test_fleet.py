"""The contract of all fleets, kept by the simulated one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agileml.apps.registry import TrainerSource
from agileml.engines.chaos import (
    Script,
)
from agileml.engines.sim import SimulatedEngine
from agileml.engines.sim.job import Machines
from agileml.job import Trained, TrainingJob
from tests.agileml.engines.fleet_suite import LENGTHS, Log, ReplacingFleetSuite

pytestmark = [pytest.mark.usefixtures("left_behind"), pytest.mark.timeout(600)]


class TestSimulated(ReplacingFleetSuite):
    @pytest.fixture
    def source(self) -> TrainerSource:
        # Virtual time needs no pace.
        return TrainerSource("tests.agileml.toys:Decades", {"lengths": LENGTHS})

    @pytest.fixture
    def play(self) -> Callable[[TrainingJob, Script, Log], Trained]:
        machines = Machines(seconds_per_item=0.01, loading=0.1)
        return lambda job, script, log: SimulatedEngine(machines).run(job, script, log.append)
