"""The batch script's process on a node."""

from __future__ import annotations

import pytest

from spotctl.clouds.slurm import orders
from spotctl.clouds.slurm.provider import SlurmProvider
from tests.servers.slurm_cluster import needs_slurm
from tests.spotctl.clouds.slurm.world import World, offer_of, order
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, needs_slurm]


def test_an_order_that_was_sent_twice_runs_once(made: World, provider: SlurmProvider) -> None:
    (machine,) = provider.create(order())
    job = provider._job(machine.id)
    place = provider._place(job.label)
    eventually((place / "state.json").exists)
    again = orders.submit(offer_of(made, "spot"), made.settings, job.label, [0], place.parent)
    eventually(lambda: orders.jobs(f"--jobs={again}")[f"{again}_0"].state == "COMPLETED")
    assert provider._job(machine.id).state == "RUNNING"
    assert f"job {machine.id[6:]} runs this machine" in (place / "slurm.out").read_text()
