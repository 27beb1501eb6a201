"""How machines end, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotctl.clouds.errors import NotFound, PartlyListed, ProviderError, Unanswered
from spotctl.clouds.link import MachineSupplies
from spotctl.clouds.provider import EndReason, MachineState
from spotctl.home.installation import INTENT_TAG, RUN_TAG
from tests.servers.gcp import refusal
from tests.servers.loopback import Fault
from tests.spotctl.clouds.gcp.world import N2, RUN, A, B, StandIn, World, ended, held, order, the
from tests.waiting import eventually


def test_a_machine_whose_deletion_fails_keeps_no_other_running(made: World) -> None:
    provider = made.provider()
    first, second = provider.create(order())
    made.server.http.faults += [
        Fault(f"/instances/{first.id.split(':')[-1]}", refusal(503), times=1000)
    ]
    with pytest.raises(ProviderError):
        provider.terminate([first.id, second.id])
    made.server.http.faults.clear()
    eventually(lambda: the(provider, second).state is MachineState.GONE)
    assert {one.id for one in provider.list(RUN) if one.state is not MachineState.GONE} <= {
        first.id
    }


def test_a_deletion_that_google_accepted_and_that_failed_is_repeated(made: World) -> None:
    """Google answers a known request id with the operation that failed."""
    provider = made.provider()
    (machine,) = provider.create(order(machines=1))
    made.server.project.failing_deletions = 2
    provider.terminate([machine.id])
    eventually(lambda: the(provider, machine).state is MachineState.GONE)
    assert [one.end_reason for one in made.provider().list(RUN)] == [EndReason.RETURNED]
    (other,) = provider.create(order("t2", 1))
    made.server.project.failing_deletions = 1000
    with pytest.raises(ProviderError, match="not ready"):
        provider.terminate([other.id])
    assert len([one for one in made.server.machines() if one.ended is None]) == 1


def test_machines_in_a_zone_that_does_not_answer_are_not_known_to_have_ended(made: World) -> None:
    provider = made.provider()
    (here,) = provider.create(order(machines=1))
    (there,) = provider.create(replace(order("t2", 1), market=replace(N2, zone=A)))
    made.server.unreachable = {B}
    with pytest.raises(PartlyListed, match=f"no answer from {B}") as listed:
        provider.list(RUN)
    assert ([one.id for one in listed.value.listed], listed.value.parts) == (
        [there.id],
        (f"gcp:{B}:",),
    )
    assert here.id.startswith(listed.value.parts)
    with pytest.raises(PartlyListed, match=f"no answer from {B}"):
        provider.resources(RUN)
    with pytest.raises(Unanswered, match=f"no answer from {B}"):
        made.provider().create(order(machines=1))
    made.server.unreachable = set()
    assert {one.id for one in provider.list(RUN)} == {here.id, there.id}
    assert [one.id for one in made.provider().create(order(machines=1))] == [here.id]


@pytest.mark.parametrize("warning", [None, 0.2])
def test_an_evicted_machine_says_so(made: World, warning: float | None) -> None:
    (machine,) = made.provider().create(order(machines=1))
    made.server.evict(machine.id, warning)
    gone = ended(made, machine)
    (rented,) = made.server.machines()
    assert (gone.end_reason, dict(gone.tags)) == (EndReason.EVICTED, {**RUN, INTENT_TAG: "1"})
    assert gone.ended is not None
    assert rented.ended is not None
    assert abs(gone.ended - rented.ended) < 1_000_000
    assert gone.market == N2
    assert made.provider().list({**RUN, INTENT_TAG: "1"}) == (gone,)
    assert made.provider().list({RUN_TAG: "another"}) == ()


def test_who_deleted_a_machine_is_why_it_ended(made: World) -> None:
    provider = made.provider()
    returned, itself, limit, stranger = provider.create(order(machines=4))
    provider.terminate([returned.id])
    deletion = f"projects/tide-pool-7/zones/{B}/instances/"
    token = held(made, itself).metadata.token
    made.deleted_by_hand(deletion + itself.id.split(":")[2], token)
    made.server.project.expire(limit.id)
    made.deleted_by_hand(deletion + stranger.id.split(":")[2], "")
    assert [ended(made, one).end_reason for one in (returned, itself, limit, stranger)] == [
        EndReason.RETURNED,
        EndReason.LEASE_ENDED,
        EndReason.LEASE_ENDED,
        EndReason.FAILED,
    ]


def test_a_machine_that_switched_itself_off_is_gone_and_its_disk_is_left(made: World) -> None:
    (machine,) = made.provider().create(order(machines=1))
    made.records.end(held(made, machine).host_name)
    gone = the(made.provider(), machine)
    assert (gone.state, gone.end_reason) == (MachineState.GONE, EndReason.FAILED)
    assert gone.ended is not None
    provider = made.provider()
    found = [one for one in provider.resources(RUN) if one.kind == "machine"]
    assert [(one.id, one.detail) for one in found] == [(machine.id, "terminated")]
    provider.remove(found)
    eventually(lambda: not [one for one in provider.resources(RUN) if one.kind == "machine"])
    later = the(made.provider(), machine)
    assert (later.started, later.ended, later.end_reason) == (
        gone.started,
        gone.ended,
        gone.end_reason,
    )
    with pytest.raises(NotFound):
        provider.link(machine.id)


def test_a_machine_that_is_listed_late_is_there(made: World) -> None:
    made.server.listed_late_seconds = 1000.0
    machines = made.provider().create(order())
    assert made.provider().list(RUN) == machines
    made.provider().terminate([one.id for one in machines])
    for one in machines:
        assert ended(made, one).end_reason is EndReason.RETURNED


def test_a_link_needs_no_call_and_ends_with_its_machine(made: World) -> None:
    agents = StandIn(made.folder)
    provider = made.provider(agents)
    (machine,) = provider.create(order(machines=1))
    calls = len(made.server.http.requests)
    provider.prepare(machine, MachineSupplies())
    provider.prepare(machine, MachineSupplies())
    assert len(made.server.http.requests) == calls
    remote = agents.prepared[0]
    own = held(made, machine)
    assert (remote.id, remote.index, remote.host, remote.port) == (machine.id, 0, own.public, 22)
    made.records.write_console(own.host_name, "spotctl: ready\n")
    assert remote.console() == "spotctl: ready\n"
    assert not remote.gone()
    provider.terminate([machine.id])
    eventually(remote.gone)
    ended(made, machine)
    provider.list(RUN)
    assert agents.forgotten == [machine.id]
    for id_ in (machine.id, "gcp:us-central1-a:never", "never"):
        with pytest.raises(NotFound):
            provider.prepare(replace(machine, id=id_), MachineSupplies())


def test_commands_run_on_a_machine_over_ssh(made: World) -> None:
    provider = made.provider()
    (machine,) = provider.create(order(machines=1))
    own = held(made, machine)
    with pytest.raises(Unanswered, match="still booting"):
        provider.invocation(machine.id, ["df"])
    made.records.write_console(own.host_name, "spotctl: host key ssh-ed25519 " + "A" * 68 + "\n")
    words = provider.invocation(machine.id, ["df"]).words
    assert any(own.public in word for word in words)
    assert words[-1].endswith("df")
