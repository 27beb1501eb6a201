"""Clusters that are away, and computers that know none."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path

import pytest

from pricing_data.errors import MissingCredentials, NoAnswer
from spotctl.clouds.errors import (
    LoginNeeded,
    Unanswered,
)
from spotctl.clouds.provider import MachineState
from spotctl.clouds.slurm.calls import cancel, configuration
from spotctl.clouds.slurm.provider import SlurmProvider
from tests.servers.slurm_cluster import needs_slurm, run
from tests.spotctl.clouds.slurm.world import World, only, order
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, needs_slurm]


def test_a_cluster_that_is_away(
    made: World, provider: SlurmProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_before = made.provider()
    (machine,) = asked_before.create(order())
    made_before = {one.id for one in asked_before.list({})}
    controller = made.cluster.daemons["slurmctld"]
    configuration_ = made.cluster.folder / "slurm.conf"
    controller.terminate()
    controller.wait(60)
    with pytest.raises(Unanswered, match="is the controller up"):
        provider.list({})
    with pytest.raises(NoAnswer):
        configuration()
    # A call lasts ten seconds, and several turns would ask meanwhile: one waits for a moment.
    waited = list[float]()

    def noted(asked: Sequence[Future[object]], timeout: float) -> None:
        waited.append(timeout)
        wait(asked, timeout)

    monkeypatch.setattr("spotctl.clouds.slurm.provider.wait", noted)
    for _ in range(20):
        asked_before._jobs_at -= 6
        asked_before.list({})
    assert 0 < sum(waited) <= 3 < len(waited)
    # A caller that has asked before goes on with the last answer.
    assert made_before == {one.id for one in asked_before.list({})} == {machine.id}
    asked_before.close()
    again = ["slurmctld", "-D", "-f", str(configuration_)]
    with (made.cluster.folder / "again").open("wb") as output:
        made.cluster.daemons["slurmctld"] = subprocess.Popen(again, stdout=output, stderr=output)

    def is_back() -> bool:
        with suppress(Unanswered):
            return only(provider).state is MachineState.RUNNING
        return False

    eventually(is_back)
    assert only(provider).id == machine.id


@pytest.mark.usefixtures("made")
def test_jobs_end_that_are_no_tasks_of_an_array() -> None:
    words = ("sbatch", "--parsable", "-p", "spot", "-o", "/dev/null", "--wrap", "sleep 1000")
    number, array = (run(*words, *more).strip() for more in ((), ("--array", "0-1")))
    cancel(number, f"{array}_1")
    # One more end of what has ended is no error.
    cancel(number)
    eventually(lambda: run("squeue", "-h", "-r", "-o", "%i").split() == [f"{array}_0"])
    cancel(f"{array}_0")


def test_no_slurm_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingCredentials, match="not installed here; run spotctl on a login node"):
        configuration()


def test_a_computer_that_knows_no_cluster(
    monkeypatch: pytest.MonkeyPatch, provider: SlurmProvider
) -> None:
    """Slurm's programs may be installed all the same: `gc` asks every cloud."""
    with monkeypatch.context() as without:
        without.delenv("SLURM_CONF")
        with pytest.raises(LoginNeeded, match="knows no cluster; run spotctl on a login node"):
            provider.list({})
