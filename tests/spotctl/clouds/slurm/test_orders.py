"""Orders on a real cluster: what is refused, what waits, what is sent again, and how jobs end."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from pricing_data.units import HOUR
from spotctl.clouds.errors import (
    NoCapacity,
    NotFound,
    NotHere,
    Unanswered,
)
from spotctl.clouds.order_ledger import OrderLabel
from spotctl.clouds.provider import EndReason, MachineState
from spotctl.clouds.slurm import orders, provider as module
from spotctl.clouds.slurm.orders import BatchJob, check
from spotctl.clouds.slurm.partitions import NodeOffer, offers
from spotctl.clouds.slurm.provider import SlurmProvider
from spotctl.home.errors import BadRequest, SpotctlError
from tests.servers.slurm_cluster import needs_slurm, run, slurm_cluster
from tests.spotctl.clouds.slurm.world import BID, SPOT, World, offer_of, only, order, world
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, needs_slurm]


def test_what_the_cluster_refuses_is_said_with_its_cure(made: World) -> None:
    spot = offer_of(made, "spot")
    assert check(spot, made.settings, "fine") == "fine"
    cases: list[tuple[NodeOffer, type[SpotctlError], str]] = [
        (replace(spot, market=replace(SPOT, zone="gone")), NotHere, "sinfo lists them"),
        (replace(spot, cpus=64, is_whole=False), NotFound, "prices fetch"),
        (replace(spot, gpus=1), NotFound, "prices fetch"),
        (replace(spot, features=("fast",)), NotFound, "prices fetch"),
    ]
    for offer, kind, cure in cases:
        with pytest.raises(kind, match=cure) as refused:
            check(offer, made.settings, "fine")
        assert "\n" not in str(refused.value)
    assert not made.cluster.alive()


def test_a_job_that_waits_for_nodes_is_withdrawn(made: World) -> None:
    made.settings = replace(made.settings, wait_seconds=2.0)
    made.cluster.take(seconds=60)
    with closing(made.provider()) as provider:
        with pytest.raises(NoCapacity, match=r"waits for nodes \(.+\) after 2 s, and was"):
            provider.create(order())
        assert not made.cluster.alive()
        assert provider.list({}) == ()


def test_a_job_that_can_never_start_is_refused(made: World) -> None:
    """Unless administrators enforce limits, Slurm takes a job that is too long for its partition."""
    long = replace(made.settings, hours=3.0, wait_seconds=2.0)
    made.settings = long
    with closing(made.provider()) as provider, pytest.MonkeyPatch.context() as patch:
        real = offers(long)
        patch.setattr(module, "offers", lambda _: [replace(one, minutes=None) for one in real])
        on_demand = order(market=replace(SPOT, zone="owner"), bid=None)
        patch.setattr(provider, "offers", lambda: (on_demand.market,))
        with pytest.raises(BadRequest, match=r"\(PartitionTimeLimit\).* lower hours in"):
            provider.create(on_demand)


def test_an_order_that_the_cluster_cannot_fill_buys_nothing(provider: SlurmProvider) -> None:
    with pytest.raises(NoCapacity, match=r"for \$0.5"):
        provider.create(order(bid=500_000_000))
    with pytest.raises(BadRequest, match="leave image"):
        provider.create(order("b", containers=True))
    with pytest.raises(NotFound, match="the cluster does not have it now"):
        provider.create(order("c", market=replace(SPOT, zone="gone")))
    assert provider.list({}) == ()


@pytest.fixture
def lossy(made: World, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder before others on the PATH, with an `sbatch` whose answers are lost as long as the
    file `lost` is there."""
    folder = made.folder / "bin"
    folder.mkdir()
    real = run("which", "sbatch").strip()
    (folder / "sbatch").write_text(
        f'#!/bin/sh\n{real} "$@" || exit\n'
        f"[ ! -e {folder}/lost ] || {{ echo 'sbatch: error: Socket timed out on send/recv' >&2; exit 1; }}\n"
    )
    (folder / "sbatch").chmod(0o755)
    (folder / "lost").touch()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "lost"


def test_a_lost_answer_buys_nothing_twice(made: World, lossy: Path) -> None:
    with closing(made.provider()) as provider, pytest.raises(Unanswered, match="scontrol ping"):
        provider.create(order(machines=2))
    lossy.unlink()
    with closing(made.provider()) as other:
        machines = other.create(order(machines=2))
    assert len({machine.id for machine in machines}) == 2
    assert len(made.cluster.alive()) == len(set(made.cluster.alive())) == 2


def test_a_lost_answer_to_a_job_that_the_cluster_has_forgotten(made: World, lossy: Path) -> None:
    """Finished jobs leave `squeue` after minutes: then the mark in the machine's folder tells."""
    request = order("forgotten", lease_until=0)
    with closing(made.provider()) as provider, pytest.raises(Unanswered):
        provider.create(request)
    lossy.unlink()
    marks = made.folder / "shared" / "machines"
    eventually(lambda: any((one / "number").is_symlink() for one in marks.iterdir()))
    eventually(lambda: not made.cluster.alive())
    with closing(made.provider(listed_within=0)) as other, pytest.MonkeyPatch.context() as patch:
        patch.setattr(orders, "jobs", lambda *_: {})
        (machine,) = other.create(request)
    assert (machine.state, machine.end_reason) == (MachineState.GONE, EndReason.LEASE_ENDED)
    assert len([name for name in made.cluster.ever() if (marks / name).exists()]) == 1


def test_preempted_by_owners(made: World, provider: SlurmProvider) -> None:
    (machine,) = provider.create(order())
    eventually(lambda: only(provider).state is MachineState.RUNNING)
    made.cluster.take()
    eventually(lambda: only(provider).state is MachineState.PAUSED)
    provider.terminate([machine.id])
    gone = only(provider)
    assert (gone.state, gone.end_reason) == (MachineState.GONE, EndReason.EVICTED)
    assert run("squeue", "-h", "--states=all", f"--jobs={machine.id[6:]}", "-o", "%T").split() == [
        "PREEMPTED"
    ]


def test_cancelled_by_others(provider: SlurmProvider) -> None:
    (machine,) = provider.create(order())
    run("scancel", machine.id.removeprefix("slurm:"))
    eventually(lambda: only(provider).state is MachineState.PAUSED)
    assert only(provider).failure == "its job was cancelled, and not by spotctl"
    provider.terminate([machine.id])
    assert only(provider).end_reason is EndReason.FAILED


def test_a_node_that_fails(provider: SlurmProvider) -> None:
    """Downed by an administrator, which is what the controller does itself after minutes."""
    (machine,) = provider.create(order())
    node = provider._job(machine.id).node
    run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    eventually(lambda: only(provider).state is MachineState.PAUSED)
    assert only(provider).failure == "its node failed"

    def is_back() -> bool:
        with suppress(subprocess.CalledProcessError):
            run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        return run("sinfo", "-h", "-n", node, "-p", "spot", "-o", "%t").strip() == "idle"

    eventually(is_back)


def test_a_time_limit_is_a_notice(
    made: World, provider: SlurmProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spotctl.clouds.link import MachineSupplies

    (machine,) = provider.create(order())

    def answers() -> bool:
        with suppress(Unanswered):
            return provider.link(machine.id).status() is not None
        provider.prepare(only(provider), MachineSupplies())
        return False

    eventually(answers)
    assert provider.with_status(only(provider)).warned_until is None
    monkeypatch.setattr(module, "LIMIT_NOTICE", 100 * HOUR)
    seen = provider.with_status(only(provider))
    job = provider._job(machine.id)
    assert (seen.state, seen.warned_until) == (MachineState.LEAVING, job.ends)
    notices = provider.link(machine.id).notices()
    assert [(one.kind, one.source) for one in notices] == [("evict", "slurm: time limit")]
    assert not made.cluster.alive()[1:]


def test_a_machine_ends_with_its_time_limit(made: World) -> None:
    made.settings = replace(made.settings, hours=1 / 60)
    with closing(made.provider()) as provider:
        (machine,) = provider.create(order())
        eventually(lambda: only(provider).state is MachineState.GONE)
        assert only(provider).end_reason is EndReason.LEASE_ENDED
    words = ("squeue", "-h", "--states=all", f"--jobs={machine.id[6:]}", "-o", "%T")
    assert run(*words).split() in (["TIMEOUT"], ["COMPLETED"])


def test_a_node_that_is_drained_keeps_its_machine(provider: SlurmProvider) -> None:
    (machine,) = provider.create(order())
    node = provider._job(machine.id).node
    run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    try:
        (other,) = provider.create(order("other"))
        assert provider._job(other.id).node != node
        assert {one.state for one in provider.list({})} == {MachineState.RUNNING}
    finally:
        run("scontrol", "update", f"NodeName={node}", "State=UNDRAIN")


def test_a_node_whose_slurmd_is_killed(tmp_path: Path) -> None:
    with (
        slurm_cluster(nodes=1, more="SlurmdTimeout=20\n") as cluster,
        world(cluster, tmp_path) as made,
        closing(made.provider()) as provider,
    ):
        provider.create(order())
        cluster.daemons["n1"].kill()
        cluster.daemons["n1"].wait()
        eventually(lambda: only(provider).state is MachineState.PAUSED)
        assert only(provider).failure == "its node failed"


def test_a_job_that_used_too_much_memory() -> None:
    """Slurm sees that only with memory cgroups: the row is one of 22.05 with this state, which
    squeue(1) lists."""
    label = OrderLabel("0a", 0, "0b", BID, SPOT, {})
    row = dict.fromkeys(orders.COLUMNS, "N/A") | {"Comment": label.text(500)}
    job = BatchJob.of(row | {"State": "OUT_OF_MEMORY", "ArrayJobID": "7", "ArrayTaskID": "3"})
    assert job is not None
    assert (job.number, job.label.index) == ("7_3", 3)
    assert orders.STATES[job.state][1] == "it used more memory than its job has"
