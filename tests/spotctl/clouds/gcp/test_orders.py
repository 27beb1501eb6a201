"""What the provider asks of Compute Engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from google.cloud import compute_v1

from pricing_data.errors import RequestRejected
from pricing_data.units import MINUTE
from spotctl.clouds.errors import (
    ErrorAction,
    NoCapacity,
    NotFound,
    Refusal,
    TokenTaken,
    Unanswered,
    action_for,
)
from spotctl.clouds.gcp import orders
from spotctl.clouds.gcp.calls import RESERVATION_REFUSALS, of_call, of_operation
from spotctl.clouds.gcp.cloud import GcpMachineSettings
from spotctl.clouds.link import MachineSupplies
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INTENT_TAG, RUN_TAG
from spotctl.home.wall_clock import wall_us
from tests.cloud.gcp_fields import check_instance
from tests.servers.gcp import Refused, refusal
from tests.servers.loopback import Fault
from tests.spotctl.clouds.gcp.world import (
    ANYWHERE,
    INSERTS,
    N2,
    RUN,
    STOCKOUT,
    A,
    B,
    StandIn,
    World,
    body,
    ended,
    held,
    order,
    the,
)


def test_a_spot_machine_is_asked_for_with_all_that_ends_its_bill(made: World) -> None:
    made.provider(labels={"team": "research"}).create(order(machines=1))
    sent = body(made)
    scheduling = sent.scheduling
    assert (scheduling.provisioning_model, scheduling.instance_termination_action) == (
        "SPOT",
        "DELETE",
    )
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
    assert (account.email, list(account.scopes)) == (
        "default",
        ["https://www.googleapis.com/auth/cloud-platform"],
    )
    metadata = {item.key: item.value for item in sent.metadata.items}
    assert metadata["user-data"].startswith("#!/bin/sh\necho lease")
    assert metadata["block-project-ssh-keys"] == "TRUE"
    (interface,) = sent.network_interfaces
    assert (interface.network, interface.access_configs[0].type_) == (
        "global/networks/default",
        "ONE_TO_ONE_NAT",
    )


def test_google_ends_no_machine_before_its_lease(made: World) -> None:
    made.provider().create(order(machines=1, lease_until=wall_us() + 1000 * 60 * MINUTE))
    assert body(made).scheduling.max_run_duration.seconds == pytest.approx(1001 * 3600, abs=60)
    made.provider().create(order("late", 1, lease_until=wall_us() + 9000 * 60 * MINUTE))
    assert body(made).scheduling.max_run_duration.seconds == 120 * 24 * 3600


def test_an_on_demand_machine_is_no_spot_machine(made: World) -> None:
    (machine,) = made.provider().create(order(machines=1, bid=None))
    scheduling = body(made).scheduling
    assert (scheduling.provisioning_model, scheduling.on_host_maintenance) == (
        "STANDARD",
        "MIGRATE",
    )
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
def test_machines_with_gpus_get_an_image_with_drivers(
    made: World, name: str, image: str, attached: int | None
) -> None:
    market = replace(N2, instance_type=name)
    (machine,) = made.provider().create(order(machines=1, market=market, bid=None))
    sent = body(made)
    assert machine.market == the(made.provider(), machine).market == market
    assert sent.disks[0].initialize_params.source_image.endswith(image)
    has_gpus = "nvidia" in image
    assert sent.network_interfaces[0].nic_type == ("GVNIC" if has_gpus else "")
    counts = [one.accelerator_count for one in sent.guest_accelerators]
    assert counts == ([] if attached is None else [attached])
    assert sent.scheduling.on_host_maintenance == (
        "MIGRATE" if name == "n1-standard-4" else "TERMINATE"
    )


@pytest.mark.parametrize(
    ("name", "disk"),
    [
        ("n2-standard-4", "pd-balanced"),
        ("n1-standard-4", "pd-balanced"),
        ("a3-highgpu-8g", "pd-balanced"),
        ("c3-standard-8", "pd-balanced"),
        ("n4-standard-4", "hyperdisk-balanced"),
        ("c4a-standard-4", "hyperdisk-balanced"),
        ("a3-ultragpu-8g", "hyperdisk-balanced"),
        ("c3-standard-192-metal", "hyperdisk-balanced"),
    ],
)
def test_each_series_gets_a_disk_that_it_has(name: str, disk: str) -> None:
    market = replace(N2, instance_type=name)
    request, place = order(machines=1, market=market), (market.zone, "spotctl-0a-1b-2c-0")
    sent = orders.instance(request, GcpMachineSettings(), orders.GcpHardware(name), place, "", 0)
    parsed = compute_v1.Instance(sent)
    check_instance(parsed, market.zone)
    initial = parsed.disks[0].initialize_params
    assert initial.disk_type.endswith(f"/{disk}")
    other = {"pd-balanced": "hyperdisk-balanced", "hyperdisk-balanced": "pd-balanced"}[disk]
    if not name.startswith(("a3-highgpu", "c3-")) or name.endswith("-metal"):  # these have both
        initial.disk_type = initial.disk_type.replace(disk, other)
        with pytest.raises(Refused, match="not compatible"):
            check_instance(parsed, market.zone)


@pytest.mark.parametrize("of", ["own", "family/own"])
def test_a_disk_is_as_large_as_its_image_and_billed_so(made: World, of: str) -> None:
    image = f"projects/tide-pool-7/global/images/{of}"
    made.server.images.add(image)
    made.server.image_gib[image] = 200
    here = made.provider()
    for wanted, ordered in ((70, 200), (300, 300)):
        here.create(order(f"t{wanted}", 1, image=image, disk_gib=wanted))
        assert body(made).disks[0].initialize_params.disk_size_gb == ordered
    billed = partial(here.holdings, N2, spot=True)
    assert billed(disk_gib=70, image=image) == billed(disk_gib=200)
    assert made.provider(image=image).holdings(N2, spot=True, disk_gib=None) == billed(disk_gib=200)
    assert billed(disk_gib=20).disk < billed(disk_gib=None).disk, "as it is ordered"


def test_an_image_that_may_not_be_read_is_ordered_as_before(made: World) -> None:
    image = "projects/tide-pool-7/global/images/own"
    made.server.images.add(image)
    made.server.denied.add("compute.images.get")
    made.provider().create(order("t1", 1, image=image))
    assert body(made).disks[0].initialize_params.disk_size_gb == 50


def test_the_settings_of_a_company_are_kept(made: World) -> None:
    made.server.networks["vpc"] = made.server.networks["inner"] = (
        "projects/host/global/networks/vpc"
    )
    made.server.images.add("projects/tide-pool-7/global/images/own")
    chosen: dict[str, Any] = {
        "subnetwork": "inner",
        "public_ip": False,
        "service_account": "worker@tide-pool-7.iam.gserviceaccount.com",
        "kms_key": "projects/p/locations/l/keyRings/r/cryptoKeys/k",
        "image": "projects/tide-pool-7/global/images/own",
        "disk_gib": 70,
        "longest_hours": 24,
    }
    (machine,) = made.provider(**chosen).create(order(machines=1))
    sent = body(made)
    (interface,) = sent.network_interfaces
    assert (interface.subnetwork, len(interface.access_configs)) == (
        "regions/us-central1/subnetworks/inner",
        0,
    )
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
    assert (list(inside.source_tags), list(inside.target_tags), list(inside.source_ranges)) == (
        [tag],
        [tag],
        [],
    )
    assert (list(ssh.source_ranges), list(ssh.target_tags)) == (["192.0.2.7/32"], [tag])
    assert [(one.I_p_protocol, list(one.ports)) for one in ssh.allowed] == [("tcp", ["22"])]
    other = {**RUN, RUN_TAG: "other-c0ffee", INTENT_TAG: "1"}
    made.provider(ssh_from=()).create(order("other-c0ffee-1", 1, tags=other))
    assert len(made.server.rules()) == 3
    made.provider(network_tags=("ours",)).create(
        order("own-c0ffee-1", 1, tags={**other, RUN_TAG: "own"})
    )
    assert len(made.server.rules()) == 3
    assert list(body(made).tags.items) == ["ours"]


def test_machines_that_no_ssh_could_reach_are_not_bought(made: World) -> None:
    made.server.networks["vpc"] = "global/networks/vpc"
    with pytest.raises(BadRequest, match=r"set ssh_from in \[gcp\]"):
        made.provider(ssh_from=(), network="vpc").create(order())
    assert made.server.resources() == ()
    assert (
        len(made.provider(ssh_from=(), network="vpc", network_tags=("ours",)).create(order())) == 2
    )


def test_some_of_the_machines_are_better_than_none(made: World) -> None:
    made.server.project.refuse(B, STOCKOUT, skip=2)
    machines = made.provider().create(order(machines=3))
    assert len(machines) == 2
    assert {one.id for one in made.provider().create(order(machines=3))} == {
        one.id for one in machines
    }
    assert len(made.server.machines()) == 2
    made.server.http.faults += [
        Fault(INSERTS, refusal(403, "Quota exceeded", "quotaExceeded"), skip=1)
    ]
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


def test_machines_without_a_public_address_are_reached_at_their_own(made: World) -> None:
    agents = StandIn(made.folder)
    (machine,) = made.provider(public_ip=False).create(order(machines=1))
    made.provider(agents).prepare(machine, MachineSupplies())
    assert agents.prepared[0].host == machine.address == held(made, machine).private


class TestCloseMachines:
    """Machines that are placed close together."""

    def test_they_have_one_policy_of_the_run_which_is_removed_with_it(self, made: World) -> None:
        provider = made.provider()
        machines = [
            *provider.create(order(close=True)),
            *made.provider().create(order("other", 1, 2, close=True)),
        ]
        ((region, name),) = made.server.policies.held
        sent = body(made)
        assert list(sent.resource_policies) == [f"regions/{region}/resourcePolicies/{name}"]
        assert sent.scheduling.on_host_maintenance == "TERMINATE"
        (listed,) = [one for one in provider.resources(RUN) if one.kind == "placement policy"]
        assert RUN.items() <= listed.tags.items()
        assert INTENT_TAG not in listed.tags
        with pytest.raises(Unanswered, match="machines that use it are still ending"):
            provider.remove([listed])
        provider.terminate([machine.id for machine in machines])
        for machine in machines:
            ended(made, machine)
        provider.remove(provider.resources(RUN))
        assert not made.server.policies.held
        # Another one of that name is a new one.
        made.provider().create(order("third", 1, 3, close=True))
        assert made.server.policies.held

    def test_a_repeated_order_must_be_as_close(self, made: World) -> None:
        (first,) = made.provider().create(order(machines=1, close=True))
        assert made.provider().create(order(machines=1, close=True))[0].id == first.id
        with pytest.raises(TokenTaken):
            made.provider().create(order(machines=1))

    def test_types_that_cannot_are_refused_by_name_before_anything_is_made(
        self, made: World
    ) -> None:
        e2 = replace(N2, instance_type="e2-standard-2")
        with pytest.raises(NotFound, match="gives no e2-standard-2 a compact placement policy"):
            made.provider().create(order(market=e2, close=True))
        assert made.server.resources() == ()

    def test_other_machines_have_none(self, made: World) -> None:
        made.provider().create(order(machines=1))
        assert not body(made).resource_policies
        assert not made.server.policies.held


class TestReservedMachines:
    """Machines of a reservation that they name."""

    RESERVED: Mapping[str, Any] = {
        "market": replace(N2, reservation="night"),
        "bid": None,
        "reservation": "night",
    }

    def test_they_are_taken_from_the_reservation_and_from_nowhere_else(self, made: World) -> None:
        held_back = made.server.reservations.reserve("night", B, "n2-standard-4", 2)
        made.server.quotas["CPUS"] = 0.0
        provider = made.provider()
        machines = provider.create(order(**self.RESERVED))
        assert (len(machines), made.server.reservations.free(held_back)) == (2, 0)
        affinity = body(made).reservation_affinity
        assert affinity.consume_reservation_type == "SPECIFIC_RESERVATION"
        assert (affinity.key, list(affinity.values)) == (
            "compute.googleapis.com/reservation-name",
            ["night"],
        )
        assert body(made).scheduling.provisioning_model == "STANDARD"
        with pytest.raises(
            NoCapacity, match=r"not have available resources for the request.*are in use"
        ):
            provider.create(order("t2", **self.RESERVED))
        provider.terminate([machine.id for machine in machines])
        for machine in machines:
            ended(made, machine)
        assert made.server.reservations.free(held_back) == 2

    def test_an_order_for_more_gets_what_is_reserved(self, made: World) -> None:
        made.server.reservations.reserve("night", B, "n2-standard-4", 1)
        (first,) = made.provider().create(order(**self.RESERVED))
        assert [one.id for one in made.provider().create(order(**self.RESERVED))] == [first.id]

    def test_one_of_another_project_is_named_by_its_path(self, made: World) -> None:
        made.server.reservations.reserve("night", B, "n2-standard-4", 2, owner="capacity-7")
        with pytest.raises(
            NotFound, match=r"do not exist; correct the id among the job's reservations"
        ):
            made.provider().create(order(**self.RESERVED))
        path = "projects/capacity-7/reservations/night"
        assert (
            len(made.provider().create(order("t2", **{**self.RESERVED, "reservation": path}))) == 2
        )

    @pytest.mark.parametrize(
        ("zone", "kept", "problem"),
        [
            (
                B,
                {"type_": "n2-standard-2"},
                "No available resources in specified reservations.*; its zone, type, GPUs",
            ),
            (A, {}, r"do not exist; correct the id among the job's reservations"),
            (
                B,
                {"min_cpu_platform": "Intel Ice Lake"},
                "No available resources in specified reservations",
            ),
            (
                B,
                {"specific": False},
                "specificReservationRequired is not set.*--require-specific-reservation",
            ),
        ],
        ids=["type", "zone", "platform", "automatic"],
    )
    def test_one_that_does_not_fit_is_left_for_other_machines(
        self, made: World, zone: str, kept: dict[str, Any], problem: str
    ) -> None:
        """The error is one after which a run rents elsewhere."""
        made.server.reservations.reserve(
            "night", zone, **{"type_": "n2-standard-4", "machines": 2, **kept}
        )
        with pytest.raises(NotFound, match=problem) as refused:
            made.provider().create(order(**self.RESERVED))
        assert action_for(refused.value) is ErrorAction.OTHER_MARKET
        assert "\n" not in str(refused.value)
        assert made.server.machines() == ()

    def test_gpus_are_part_of_what_is_reserved(self, made: World) -> None:
        market = replace(N2, instance_type="n1-standard-4+2-nvidia-tesla-t4", reservation="night")
        gpus = [{"accelerator_type": "nvidia-tesla-t4", "accelerator_count": 1}]
        made.server.reservations.reserve("night", B, "n1-standard-4", 2, guest_accelerators=gpus)
        with pytest.raises(NotFound, match="GPUs"):
            made.provider().create(order(market=market, bid=None, reservation="night"))
        gpus[0]["accelerator_count"] = 2
        made.server.reservations.reserve("night", B, "n1-standard-4", 2, guest_accelerators=gpus)
        assert (
            len(made.provider().create(order("t2", market=market, bid=None, reservation="night")))
            == 2
        )

    def test_one_that_is_not_ready_may_be_asked_again(self, made: World) -> None:
        made.server.reservations.reserve("night", B, "n2-standard-4", 2).status = "CREATING"
        with pytest.raises(NoCapacity, match="it is not ready"):
            made.provider().create(order(**self.RESERVED))

    def test_machines_go_on_when_their_reservation_is_deleted(self, made: World) -> None:
        made.server.reservations.reserve("night", B, "n2-standard-4", 2)
        machines = made.provider().create(order(**self.RESERVED))
        made.server.reservations.delete("night", B)
        assert [the(made.provider(), machine).state for machine in machines] == [
            machine.state for machine in machines
        ]

    def test_other_machines_name_none(self, made: World) -> None:
        made.provider().create(order(machines=1, bid=None))
        assert not body(made).reservation_affinity.consume_reservation_type


@pytest.mark.parametrize("refusal", RESERVATION_REFUSALS, ids=lambda one: one.text)
def test_words_about_reservations_decide_and_not_their_codes(refusal: Refusal) -> None:
    words = {
        RESERVATION_REFUSALS[
            0
        ].text: "Reservation night does not have sufficient capacity for the requested resources.",
        RESERVATION_REFUSALS[2].text: "Specified reservation night does not exist.",
        RESERVATION_REFUSALS[
            -1
        ].text: "Invalid value for field 'resource.reservationAffinity': '{}'.",
    }.get(refusal.text, f"It says: {refusal.text}.")
    for error in (
        of_operation("creation", "CONDITION_NOT_MET", words),
        of_call(RequestRejected(words, "", "invalid")),
    ):
        assert type(error) is refusal.kind
        assert str(error).endswith(f"; {refusal.cure}")
    assert refusal.source.startswith("https://")
