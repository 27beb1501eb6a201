"""How large a job the simulated engine takes."""

from __future__ import annotations

import time

from agileml.core.events import ControllerSettings
from agileml.engines.sim.job import Machines
from agileml.engines.sim.network import Network
from bench.harness import Row, shown, table
from spotctl.lab.papers.agileml import GIGABIT, Flat, simulated

LIMIT_SECONDS = 120.0


def _scale(nodes: int, clocks: int, partitions: int) -> Row:
    machines = Machines(seconds_per_item=1.0, network=Network(GIGABIT))
    settings = ControllerSettings(1, nodes - 1, clocks)
    began, computed = time.perf_counter(), time.process_time()
    simulation = simulated(Flat(nodes, partitions), settings, machines)
    simulation.run()
    took, computing = time.perf_counter() - began, time.process_time() - computed
    return Row(
        f"{nodes} nodes, {clocks} iterations, {partitions} partitions: "
        f"{simulation.messages.delivered} messages,"
        f" {computing / simulation.messages.delivered * 1e6:.0f} us of a core each",
        f"{shown(took)}, {shown(computing)} of them on a core",
        f"{LIMIT_SECONDS:.0f} s allowed",
        f"{took / LIMIT_SECONDS:.2f}",
    )


def run() -> str:
    """Simulates both jobs and returns the section."""
    scales = [_scale(64, 100, 32), _scale(1000, 100, 16)]
    return table(
        "AgileML in virtual time: scale", "On the clock, against the time allowed.", scales
    )
