"""What the provider asks of Compute Engine, and what it makes of the answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.cloud import compute_v1

from pricing_data.market import Market
from pricing_data.units import MINUTE
from spotctl.errors import BadRequest
from spotctl.machines.base import (
    EndReason,
    Machine,
    MachineState,
    MachineSupplies,
    NoCapacity,
    NotFound,
    NotPermitted,
    Prepares,
    ProviderError,
    QuotaReached,
    Resource,
    Throttled,
    Unanswered,
)
from spotctl.machines.gcp import calls
from spotctl.machines.gcp.calls import GcpCalls
from spotctl.machines.gcp.methods import METHODS, Method
from spotctl.machines.gcp.provider import GcpProvider
from spotctl.machines.gcp.refusals import REFUSALS, GcpRefusal, NameTaken, of_operation
from spotctl.machines.tags import INSTALLATION_TAG, INTENT_TAG, RUN_TAG
from spotctl.wall_clock import wall_us
from tests.cloud.gcp_project import Held
from tests.servers.gcp import refusal
from tests.servers.loopback import Fault
from tests.spotctl.machines.gcp.world import ANYWHERE, BID, N2, RUN, StandIn, World, order, world
from tests.waiting import eventually

A, B = "us-central1-a", "us-central1-b"
STOCKOUT = "ZONE_RESOURCE_POOL_EXHAUSTED"
INSERTS = "/instances"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as one:
        yield one


def body(made: World) -> Any:  # noqa: ANN401  # the SDK's messages are not annotated
    """The machine of the last request to create one, as the SDK's message."""
    sent = [one for one in made.server.http.requests if one.method == "POST" and one.path.endswith(INSERTS)]
    return compute_v1.Instance.from_json(sent[-1].body)


def held(made: World, machine: Machine) -> Held:
    return made.server.project.living(machine.id)


def the(provider: GcpProvider, machine: Machine) -> Machine:
    return next(one for one in provider.list({}) if one.id == machine.id)


def ended(made: World, machine: Machine) -> Machine:
    """A machine as another process lists it once it is gone."""
    provider = made.provider()
    eventually(lambda: the(provider, machine).state is MachineState.GONE)
    return the(provider, machine)


def test_a_spot_machine_is_asked_for_with_all_that_ends_its_bill(made: World) -> None:
    made.provider(labels={"team": "research"}).create(order(machines=1))
    sent = body(made)
    scheduling = sent.scheduling
    assert (scheduling.provisioning_model, scheduling.instance_termination_action) == ("SPOT", "DELETE")
    assert (scheduling.on_host_maintenance, scheduling.automatic_restart) == ("TERMINATE", False)
    assert scheduling.max_run_duration.seconds == 168 * 3600
    (disk,) = sent.disks
    assert (disk.boot, disk.auto_delete, disk.initialize_params.disk_size_gb) == (True, True, 50)
    assert disk.initialize_params.source_image.endswith("ubuntu-2404-lts-amd64")
    assert disk.initialize_params.disk_type.endswith("pd-balanced")
    for labels in (sent.labels, disk.initialize_params.labels):
        assert labels["team"] == "research"
        assert {key: labels[key] for key in (*RUN, INTENT_TAG)} == {**RUN, INTENT_TAG: "1"}
    (account,) = sent.service_accounts
    assert (account.email, list(account.scopes)) == ("default", ["https://www.googleapis.com/auth/cloud-platform"])
    metadata = {item.key: item.value for item in sent.metadata.items}
    assert metadata["user-data"].startswith("#!/bin/sh\necho lease")
    assert metadata["block-project-ssh-keys"] == "TRUE"
    (interface,) = sent.network_interfaces
    assert (interface.network, interface.access_configs[0].type_) == ("global/networks/default", "ONE_TO_ONE_NAT")


def test_google_ends_no_machine_before_its_lease(made: World) -> None:
    made.provider().create(order(machines=1, lease_until=wall_us() + 1000 * 60 * MINUTE))
    assert body(made).scheduling.max_run_duration.seconds == pytest.approx(1001 * 3600, abs=60)
    made.provider().create(order("late", 1, lease_until=wall_us() + 9000 * 60 * MINUTE))
    assert body(made).scheduling.max_run_duration.seconds == 120 * 24 * 3600


def test_an_on_demand_machine_is_no_spot_machine(made: World) -> None:
    (machine,) = made.provider().create(order(machines=1, bid=None))
    scheduling = body(made).scheduling
    assert (scheduling.provisioning_model, scheduling.on_host_maintenance) == ("STANDARD", "MIGRATE")
    assert scheduling.instance_termination_action == "DELETE"
    assert not held(made, machine).is_spot


@pytest.mark.parametrize(
    ("name", "image", "attached"),
    [
        ("a2-ultragpu-1g", "ubuntu-accelerator-2404-amd64-with-nvidia-580", None),
        ("n1-standard-4+2-nvidia-tesla-t4", "ubuntu-accelerator-2404-amd64-with-nvidia-580", 2),
        ("n1-standard-4", "ubuntu-2404-lts-amd64", None),
    ],
)
def test_machines_with_gpus_get_an_image_with_drivers(made: World, name: str, image: str, attached: int | None) -> None:
    market = replace(N2, instance_type=name)
    (machine,) = made.provider().create(order(machines=1, market=market, bid=None))
    sent = body(made)
    assert machine.market == the(made.provider(), machine).market == market
    assert sent.disks[0].initialize_params.source_image.endswith(image)
    counts = [one.accelerator_count for one in sent.guest_accelerators]
    assert counts == ([] if attached is None else [attached])
    assert sent.scheduling.on_host_maintenance == ("MIGRATE" if name == "n1-standard-4" else "TERMINATE")


def test_the_settings_of_a_company_are_kept(made: World) -> None:
    made.server.networks["vpc"] = made.server.networks["inner"] = "projects/host/global/networks/vpc"
    chosen: dict[str, Any] = {
        "subnetwork": "inner",
        "public_ip": False,
        "service_account": "worker@tide-pool-7.iam.gserviceaccount.com",
        "kms_key": "projects/p/locations/l/keyRings/r/cryptoKeys/k",
        "image": "projects/ubuntu-os-cloud/global/images/own",
        "disk_gib": 70,
        "longest_hours": 24,
    }
    (machine,) = made.provider(**chosen).create(order(machines=1))
    sent = body(made)
    (interface,) = sent.network_interfaces
    assert (interface.subnetwork, len(interface.access_configs)) == ("regions/us-central1/subnetworks/inner", 0)
    assert sent.service_accounts[0].email == chosen["service_account"]
    assert sent.disks[0].disk_encryption_key.kms_key_name == chosen["kms_key"]
    assert sent.disks[0].initialize_params.source_image == chosen["image"]
    assert sent.disks[0].initialize_params.disk_size_gb == 70
    assert sent.scheduling.max_run_duration.seconds == 24 * 3600
    assert {rule.network for rule in made.server.rules()} == {"projects/host/global/networks/vpc"}
    asked = order("t2", 1, identity="job@p.iam.gserviceaccount.com", disk_gib=90, network="vpc")
    made.provider(**chosen).create(asked)
    sent = body(made)
    assert sent.service_accounts[0].email == "job@p.iam.gserviceaccount.com"
    assert (sent.disks[0].initialize_params.disk_size_gb, sent.network_interfaces[0].network) == (
        90,
        "global/networks/vpc",
    )
    assert the(made.provider(**chosen), machine).address.startswith("10.")


def test_a_run_gets_rules_that_admit_itself_and_ssh_from_the_settings(made: World) -> None:
    made.provider().create(order(machines=1))
    made.provider().create(order("nightly-c0ffee-2", 1, intent=2))
    (tag,) = body(made).tags.items
    inside, ssh = made.server.rules()
    assert (list(inside.source_tags), list(inside.target_tags), list(inside.source_ranges)) == ([tag], [tag], [])
    assert (list(ssh.source_ranges), list(ssh.target_tags)) == (["192.0.2.7/32"], [tag])
    assert [(one.I_p_protocol, list(one.ports)) for one in ssh.allowed] == [("tcp", ["22"])]
    other = {**RUN, RUN_TAG: "other-c0ffee", INTENT_TAG: "1"}
    made.provider(ssh_from=()).create(order("other-c0ffee-1", 1, tags=other))
    assert len(made.server.rules()) == 3
    made.provider(network_tags=("ours",)).create(order("own-c0ffee-1", 1, tags={**other, RUN_TAG: "own"}))
    assert len(made.server.rules()) == 3
    assert list(body(made).tags.items) == ["ours"]


def test_a_machine_whose_deletion_fails_keeps_no_other_running(made: World) -> None:
    provider = made.provider()
    first, second = provider.create(order())
    made.server.http.faults += [Fault(f"/instances/{first.id.split(':')[-1]}", refusal(503), times=1000)]
    with pytest.raises(ProviderError):
        provider.terminate([first.id, second.id])
    made.server.http.faults.clear()
    eventually(lambda: the(provider, second).state is MachineState.GONE)
    assert {one.id for one in provider.list(RUN) if one.state is not MachineState.GONE} <= {first.id}


def test_a_deletion_that_google_accepted_and_that_failed_is_repeated(made: World) -> None:
    """Google answers a known request id with the operation that failed."""
    provider = made.provider()
    (machine,) = provider.create(order(machines=1))
    made.server.project.failing_deletions = 2
    provider.terminate([machine.id])
    assert [one.state for one in provider.list(RUN)] == [MachineState.GONE]
    assert [one.end_reason for one in made.provider().list(RUN)] == [EndReason.RETURNED]
    (other,) = provider.create(order("t2", 1))
    made.server.project.failing_deletions = 1000
    with pytest.raises(ProviderError, match="not ready"):
        provider.terminate([other.id])
    assert len([one for one in made.server.machines() if one.ended is None]) == 1


def test_machines_that_no_ssh_could_reach_are_not_bought(made: World) -> None:
    made.server.networks["vpc"] = "global/networks/vpc"
    with pytest.raises(BadRequest, match=r"set ssh_from in \[gcp\]"):
        made.provider(ssh_from=(), network="vpc").create(order())
    assert made.server.resources() == ()
    assert len(made.provider(ssh_from=(), network="vpc", network_tags=("ours",)).create(order())) == 2


def test_a_creation_that_takes_long_is_taken_up_again(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "WAIT_SECONDS", 0.0)
    with pytest.raises(Unanswered, match="has not ended"):
        made.provider().create(order())
    monkeypatch.undo()
    machines = made.provider().create(order())
    assert [one.id for one in machines] == [one.id for one in made.server.machines()]


def test_an_answer_that_was_lost_is_asked_for_again(made: World) -> None:
    made.server.http.faults += [Fault(INSERTS, lost=True)]
    machines = made.provider().create(order())
    assert len(made.server.machines()) == len(machines) == 2
    made.server.http.faults += [Fault("/operations/", refusal(503), times=1000)]
    with pytest.raises(Unanswered):
        made.provider().create(order("t2"))
    made.server.http.faults.clear()
    assert len(made.server.machines()) == 4
    again = made.provider().create(order("t2"))
    assert {one.id for one in again} <= {one.id for one in made.server.machines()}
    assert len(made.server.machines()) == 4


def test_a_token_whose_machines_are_gone_is_not_served_again(made: World) -> None:
    machines = made.provider().create(order())
    for one in machines:
        made.server.evict(one.id, None)
        ended(made, one)
    again = made.provider().create(order(lease_until=wall_us() + 60 * MINUTE))
    assert [(one.id, one.state, one.end_reason) for one in again] == [
        (one.id, MachineState.GONE, EndReason.EVICTED) for one in machines
    ]
    assert [one.bid for one in again] == [BID, BID]
    assert len(made.server.machines()) == 2


def test_some_of_the_machines_are_better_than_none(made: World) -> None:
    made.server.project.refuse(B, STOCKOUT, skip=2)
    machines = made.provider().create(order(machines=3))
    assert len(machines) == 2
    assert {one.id for one in made.provider().create(order(machines=3))} == {one.id for one in machines}
    assert len(made.server.machines()) == 2
    made.server.http.faults += [Fault(INSERTS, refusal(403, "Quota exceeded", "quotaExceeded"), skip=1)]
    assert len(made.provider().create(order("t2", 3))) == 1


def test_a_region_has_several_zones(made: World) -> None:
    asked = order(machines=1, market=ANYWHERE)
    (first,) = made.provider().create(asked)
    zone = first.id.split(":")[1]
    other = {A: B, B: A}[zone]
    assert first.market == the(made.provider(), first).market == ANYWHERE
    made.server.project.refuse(zone, STOCKOUT)
    (second,) = made.provider().create(order("t2", 1, market=ANYWHERE))
    assert second.id.split(":")[1] == other
    again = made.provider().create(order("t2", 1, market=ANYWHERE))
    assert [one.id for one in again] == [second.id]
    for one in (A, B):
        made.server.project.refuse(one, STOCKOUT)
    with pytest.raises(NoCapacity, match=STOCKOUT):
        made.provider().create(order("t3", 1, market=ANYWHERE))
    with pytest.raises(NoCapacity, match=STOCKOUT):
        made.provider().create(order("t3", 1, market=ANYWHERE))
    assert len(made.server.machines()) == 2


@pytest.mark.parametrize(
    "market",
    [
        Market("gcp", "us-central1", "us-central1-b", "n9-standard-4"),
        Market("gcp", "us-central1", "-", "n9-standard-4"),
        Market("gcp", "us-central1", "us-central1-z", "n2-standard-4"),
        Market("gcp", "nowhere-east7", "-", "n2-standard-4"),
        Market("gcp", "us-central1", "us-central1-b", "n2-standard-4", "windows"),
        Market("aws", "us-east-1", "us-east-1a", "c4.xlarge"),
    ],
)
def test_a_market_that_does_not_exist_is_not_found(made: World, market: Market) -> None:
    with pytest.raises(NotFound, match=str(market)):
        made.provider().create(order(market=market))
    assert made.server.resources() == ()


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"image": "projects/nobody/global/images/none"}, {}),
        ({}, {"network": "none"}),
        ({"network": "none"}, {}),
        ({"subnetwork": "none"}, {}),
    ],
)
def test_a_setting_that_google_does_not_know_is_a_bad_request(
    made: World, settings: dict[str, Any], changes: dict[str, Any]
) -> None:
    with pytest.raises(BadRequest, match=r"cannot be found|there is no subnetwork none in us-central1"):
        made.provider(**settings).create(order(**changes))
    assert made.server.machines() == ()


@pytest.mark.parametrize(
    ("status", "reason", "kind", "words"),
    [
        (403, "quotaExceeded", QuotaReached, "quotas"),
        (403, "rateLimitExceeded", Throttled, "Google"),
        (429, "rateLimitExceeded", Throttled, "Google"),
        (403, "forbidden", NotPermitted, "compute.instances.create"),
        (403, "accessNotConfigured", NotPermitted, "enable the API"),
        (412, "conditionNotMet", NotPermitted, "organization policy"),
        (503, "backendError", Unanswered, "Google"),
        (500, "internalError", Unanswered, "Google"),
        (400, "somethingNew", BadRequest, "In Google's words"),
    ],
)
def test_a_refused_call_says_what_to_do(
    made: World, status: int, reason: str, kind: type[Exception], words: str
) -> None:
    message = "In Google's words: Required 'compute.instances.create' permission"
    made.server.http.faults += [Fault(f"{B}/instances", refusal(status, message, reason), times=1000)]
    with pytest.raises(kind, match=words) as caught:
        made.provider().create(order())
    assert "In Google's words" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert made.server.machines() == ()


def test_credentials_that_have_expired_are_one_line(made: World) -> None:
    made.server.http.faults += [Fault("", refusal(401, "Invalid credentials", "authError"), times=1000)]
    provider = made.provider()
    for call in (lambda: provider.create(order()), lambda: provider.list({}), lambda: provider.resources({})):
        with pytest.raises(NotPermitted, match="gcloud auth application-default login"):
            call()


@pytest.mark.parametrize("one", [one for one in REFUSALS if one.kind is not NameTaken], ids=lambda one: one.code)
def test_every_code_of_the_table_means_what_it_says(made: World, one: GcpRefusal) -> None:
    made.server.project.refuse(B, one.code)
    with pytest.raises(one.kind, match=one.code):
        made.provider().create(order(machines=1))
    assert one.source.startswith("https://")
    assert [left.kind for left in made.server.resources()] == ["firewall rule"] * 2


def test_a_code_that_nobody_knows_ends_cleanly(made: World) -> None:
    error = of_operation("creation", "BRAND_NEW", "The moon is in the way.")
    assert type(error) is ProviderError
    assert str(error) == "gcp: creation: The moon is in the way. (BRAND_NEW)"
    made.server.project.refuse(B, "BRAND_NEW")
    with pytest.raises(ProviderError, match="BRAND_NEW"):
        made.provider().create(order(machines=1))


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
    assert (later.started, later.ended, later.end_reason) == (gone.started, gone.ended, gone.end_reason)
    with pytest.raises(NotFound):
        provider.link(machine.id)


def test_a_machine_that_is_listed_late_is_there(made: World) -> None:
    made.server.listed_late_seconds = 1000.0
    machines = made.provider().create(order())
    assert made.provider().list(RUN) == machines
    made.provider().terminate([one.id for one in machines])
    for one in machines:
        assert ended(made, one).end_reason is EndReason.RETURNED


def test_what_was_left_is_found_by_its_tags_and_removed(made: World) -> None:
    provider = made.provider(labels={"team": "research"})
    (machine,) = provider.create(order(machines=1))
    labels = dict(body(made).labels)
    made.server.leave_disk(A, "half-made", labels)
    made.server.leave_address("us-central1", "left", labels)
    made.server.leave_disk(A, "strange", {"spotctl-installation": RUN[INSTALLATION_TAG]})
    found = provider.resources(RUN)
    assert [(one.kind, one.tags[RUN_TAG]) for one in found] == [
        (kind, RUN[RUN_TAG]) for kind in ("machine", "disk", "address", "firewall rule", "firewall rule")
    ]
    assert all(one.id.startswith("gcp:") and "team" not in one.tags for one in found)
    assert provider.resources({INSTALLATION_TAG: "another"}) == ()
    provider.remove(found)
    provider.remove(found)
    eventually(lambda: not provider.resources({}))
    assert [left.id for left in made.server.resources()] == ["strange"]
    (gone,) = provider.list(RUN)
    assert (gone.id, gone.end_reason) == (machine.id, EndReason.RETURNED)


def test_a_run_finds_its_machines_whatever_labels_its_job_has(made: World) -> None:
    tags = {**RUN, INTENT_TAG: "7", "team": "R&D Zürich", "stage": ""}
    kept, machine = made.provider().create(order(tags=tags))
    assert kept.tags == the(made.provider(), kept).tags == tags
    made.server.evict(machine.id, None)
    ended(made, machine)
    found = {one.id: one for one in made.provider().list(RUN)}
    assert (found[machine.id].state, found[machine.id].tags) == (MachineState.GONE, tags)
    made.provider().terminate([kept.id])
    ended(made, kept)
    assert [one.tags[INTENT_TAG] for one in made.provider().list(RUN)] == ["7", "7"]
    for key, value in (("Team", "a"), ("team", "x" * 64), ("spotctl-bid", "1")):
        with pytest.raises(BadRequest, match=key):
            made.provider().create(order("t2", tags={**RUN, key: value}))
    assert len(made.server.machines()) == 2


def test_what_another_made_is_never_deleted(made: World) -> None:
    made.server.leave_disk(A, "theirs", {"owner": "somebody"})
    provider = made.provider()
    provider.terminate([f"gcp:{A}:database", "aws:us-east-1:i-0", "never"])
    assert not made.called("DELETE", "instances")
    assert provider.resources({}) == ()


def test_a_link_needs_no_call_and_ends_with_its_machine(made: World) -> None:
    agents = StandIn(made.folder)
    provider = made.provider(agents)
    (machine,) = provider.create(order(machines=1))
    calls = len(made.server.http.requests)
    assert isinstance(provider, Prepares)
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


def test_machines_without_a_public_address_are_reached_at_their_own(made: World) -> None:
    agents = StandIn(made.folder)
    (machine,) = made.provider(public_ip=False).create(order(machines=1))
    made.provider(agents).prepare(machine, MachineSupplies())
    assert agents.prepared[0].host == machine.address == held(made, machine).private


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.service}.{method.name}")
def test_a_missing_permission_is_named(made: World, method: Method) -> None:
    """The permissions that `doctor --policy` prints are those without which the calls fail."""
    provider = made.provider(subnetwork="inner")
    made.server.denied = {method.permissions[0]}
    with pytest.raises(NotPermitted, match=method.permissions[0]):
        everything(made, provider)


def everything(made: World, provider: GcpProvider) -> None:
    """Every call that the provider knows."""
    agents = StandIn(made.folder)
    made.server.networks["inner"] = "global/networks/default"
    (machine,) = provider.create(order(machines=1, market=ANYWHERE))
    made.provider(agents).prepare(machine, MachineSupplies())
    agents.prepared[-1].console()
    provider.list(RUN)
    labels = dict(body(made).labels)
    made.server.leave_disk(A, "half-made", labels)
    made.server.leave_address("us-central1", "left", labels)
    provider.remove(provider.resources(RUN))


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_process_that_is_killed_at_any_call_buys_nothing_twice(
    tmp_path: Path, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process repeats the request: each machine exists once and is listed with its intent."""
    real, calls = GcpCalls.call, 0

    def until(number: int) -> Callable[..., Any]:
        def call(self: GcpCalls, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # whatever the method takes
            nonlocal calls
            calls += 1
            if calls == number and not after:
                raise Killed
            answer = real(self, *arguments, **named)
            if calls == number:
                raise Killed
            return answer

        return call

    number, finished = 0, False
    while not finished:
        number, calls = number + 1, 0
        with world(tmp_path / str(number)) as made:
            with monkeypatch.context() as patch:
                patch.setattr(GcpCalls, "call", until(number))
                try:
                    made.provider().create(order())
                    finished = True
                except Killed:
                    pass
            machines = made.provider().create(order(lease_until=wall_us() + 11 * MINUTE))
            rented = {one.id for one in made.server.machines()}
            assert {one.id for one in machines} == rented
            assert 1 <= len(rented) <= 2
            listed = made.provider().list(RUN)
            assert [(one.id, one.tags[INTENT_TAG]) for one in listed] == [(one.id, "1") for one in machines]
            made.provider().remove([one for one in made.provider().resources(RUN) if one.kind != "machine"])
    assert number > 8


def test_resources_are_described_in_json_that_people_can_read(made: World) -> None:
    made.provider().create(order(machines=1))
    assert json.loads(made.server.rules()[0].description) == RUN
    strange = Resource("firewall rule", "gcp:global:never", RUN)
    made.provider().remove([strange])
