"""A command ends on machines that are evicted before anyone asks them how it ended: it is not started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.strategies.base import Rent
from bidbrain.strategies.standard import Standard
from pricing_data.units import HOUR
from spotctl.agent.stored_checkpoints import note_ended
from spotctl.machines.fake import FakeProvider
from spotctl.machines.replayed import Replayed
from spotctl.planning.regimes import OVERHEADS
from spotctl.run import command_workload
from tests.spotctl.run.gangs import GangRun
from tests.spotctl.run.worlds import OFFERS, PRICES, RULE, RUN, START

NODES = 2
BASELINE = Rent(OFFERS[0], NODES, None)
LIMITS = MachineLimits(NODES, NODES, {}, together=True)
DECIDER = Decider(OFFERS, BASELINE, None, 8.0, LIMITS, OVERHEADS, None, Standard(), RULE)


@pytest.mark.parametrize("warning", [None, 30.0])
@pytest.mark.parametrize(("ended", "attempts"), [((0, 1), 1), ((1,), 2)])
def test_a_command_is_started_again_unless_it_ended_on_all_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warning: float | None, ended: tuple[int, ...], attempts: int
) -> None:
    monkeypatch.setattr(command_workload, "PAUSE", 0.0)
    cloud = FakeProvider(Replayed.of(PRICES.values()), START)

    def each_round(run: GangRun) -> None:
        machines = run.working
        if len(run.attempts) == 1 and len(machines) == NODES and cloud.now() - START > HOUR:
            for rank in ended:
                note_ended(str(tmp_path / "kept"), f"{RUN}.1", rank)
            for machine in machines:
                cloud.evict(machine.id, warning)
        elif len(run.attempts) > 1:
            for machine in machines:
                cloud.finish(machine.id, 0)

    run = GangRun(cloud, tmp_path, DECIDER, each_round)
    assert run.run().outcome == "done"
    assert len(run.attempts) == attempts
