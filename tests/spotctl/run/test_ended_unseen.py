"""A command ends on machines that are evicted before anyone asks them how it ended: it is not
started again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.strategies.base import Rent
from bidbrain.strategies.standard import Standard
from pricing_data.units import HOUR
from spotctl.agent.checkpoints.stored import note_ended
from spotctl.agent.container.payload import NodeTask
from spotctl.agent.data.locations import MACHINE
from spotctl.agent.layout import TASK_VARIABLE
from spotctl.clouds.local.replayed import Replayed
from spotctl.planning.facts import OVERHEADS
from spotctl.run.work import command_workload
from tests.servers.loopback import serving
from tests.servers.objects import ObjectStore, S3Dialect, bearer
from tests.spotctl.clouds.fake import FakeProvider
from tests.spotctl.run.gangs import GangRun
from tests.spotctl.run.worlds import OFFERS, PRICES, RULE, START

NODES = 2
BASELINE = Rent(OFFERS[0], NODES, None)
LIMITS = MachineLimits(NODES, NODES, {}, together=True)
DECIDER = Decider(OFFERS, BASELINE, None, 8.0, LIMITS, OVERHEADS, None, Standard(), RULE, HOUR)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "token")
    with serving(S3Dialect("bucket", bearer("token"))) as running:
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", running.url)
        assert isinstance(running.api, ObjectStore)
        yield running.api


@pytest.mark.parametrize("warning", [None, 30.0])
@pytest.mark.parametrize(("ended", "attempts"), [((0, 1), 1), ((1,), 2)])
@pytest.mark.parametrize("kept", ["checkpoint", "outputs", "nothing"])
def test_a_command_is_started_again_unless_it_ended_on_all_nodes(
    tmp_path: Path,
    bucket: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    warning: float | None,
    ended: tuple[int, ...],
    attempts: int,
    kept: str,
) -> None:
    monkeypatch.setattr(command_workload, "PAUSE", 0.0)
    cloud = FakeProvider(Replayed.of(PRICES.values()), START)

    def each_round(run: GangRun) -> None:
        machines = run.working
        if len(run.attempts) == 1 and len(machines) == NODES and cloud.now() - START > HOUR:
            for rank, machine in enumerate(machines):
                task = task_of(cloud, machine.id)
                assert task.rank == rank
                if rank in ended:
                    note_ended(task.marks, task.name, rank)
                cloud.evict(machine.id, warning)
        elif len(run.attempts) > 1:
            for machine in machines:
                cloud.finish(machine.id, 0)

    outputs = {"model": "gs://bucket/model/"} if kept == "outputs" else {}
    run = GangRun(
        cloud,
        tmp_path,
        DECIDER,
        each_round,
        outputs=outputs,
        saves=kept == "checkpoint",
        identity=MACHINE,
    )
    assert run.run().outcome == "done"
    assert len(run.attempts) == attempts
    assert bucket.objects == {}


def task_of(cloud: FakeProvider, machine: str) -> NodeTask:
    payload = cloud.payload(machine)
    assert payload is not None
    return NodeTask.from_json(payload.environment[TASK_VARIABLE])
