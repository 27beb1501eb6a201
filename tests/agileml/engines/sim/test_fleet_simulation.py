"""Messages of a simulated training of a sparse model."""

from __future__ import annotations

import numpy as np
import pytest

from agileml.core.events import ControllerSettings
from agileml.engines.sim.fleet import Simulation
from agileml.params.view import ParamCache
from agileml.roles.node import JobSettings
from agileml.roles.server import Server
from tests.agileml.params.test_reads import ReadLog
from tests.agileml.schedules import small
from tests.agileml.toys import Decades, Settled


def quiet(kind: type[Decades], clocks: int = 5) -> Simulation:
    """A job without faults, on one reliable and three transient nodes."""
    simulation = Simulation(
        small(kind), ControllerSettings(1, 3, clocks), JobSettings(partitions=8, deterministic=True)
    )
    for number in range(4):
        simulation.join(reliable=number == 0)
    simulation.run()
    return simulation


@pytest.mark.parametrize(("kind", "misses"), [(Settled, False), (Decades, True)])
def test_constant_rows_are_never_missed(
    kind: type[Decades], misses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ReadLog(monkeypatch)
    quiet(kind)
    assert bool(ledger.missed) == misses
    assert ledger.some > 0


def test_after_the_first_pass_only_wanted_rows_are_sent() -> None:
    simulation = quiet(Settled)
    pulled = [iteration.sums.pulled for iteration in simulation.log]
    whole = sum(simulation.layout.partition_bytes())
    assert pulled[0] == 4 * whole
    assert len(set(pulled[2:])) == 1
    assert 0 < pulled[-1] < pulled[0] / 2


def test_without_sparse_reads_whole_partitions_are_sent_and_no_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Server, "set_reads", None)
    monkeypatch.setattr(ParamCache, "_hold", None)
    monkeypatch.setattr(
        Settled, "step", lambda *given: given[4].update("dense", None, given[4].read("dense"))
    )
    monkeypatch.setattr(Settled, "init", lambda *_: {"dense": np.ones((30, 3), np.float32)})
    quiet(Settled)
