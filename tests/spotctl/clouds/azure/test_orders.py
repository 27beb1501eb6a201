"""What Azure is asked for when machines are bought."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pricing_data.market import Market
from spotctl.clouds.azure.orders import machine_name, placement_name
from spotctl.clouds.errors import (
    ErrorAction,
    NoCapacity,
    NotFound,
    NotPermitted,
    QuotaReached,
    TokenTaken,
    action_for,
)
from spotctl.home.errors import BadRequest
from tests.cloud.azure_reservations import DEPLOY, GROUP, READ
from tests.cloud.azure_state import Refused
from tests.servers.azure import SUBSCRIPTION
from tests.spotctl.clouds.azure.world import BID, ELSEWHERE, MARKET, World, order
from tests.waiting import eventually

COMPANY = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/company/providers"
SUBNET = f"{COMPANY}/Microsoft.Network/virtualNetworks/office/subnets/training"
RULES = f"{COMPANY}/Microsoft.Network/networkSecurityGroups/office"


def sent(world: World, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - of settings
    """The body of the first machine of an order."""
    request = order(
        machines=1,
        **{name: changes.pop(name) for name in ("bid", "disk_gib", "network") if name in changes},
    )
    world.provider(**changes).create(request)
    return world.bought(machine_name(request.token, 0))


def interface_of(machine: dict[str, Any]) -> dict[str, Any]:
    (interface,) = machine["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    properties: dict[str, Any] = interface["properties"]
    return properties


def test_spot_machines_are_deleted_by_an_eviction_with_all_that_was_made_with_them(
    world: World,
) -> None:
    properties = sent(world)["properties"]
    assert (properties["priority"], properties["evictionPolicy"]) == ("Spot", "Delete")
    assert properties["billingProfile"] == {"maxPrice": BID / 1e9}
    assert properties["storageProfile"]["osDisk"]["deleteOption"] == "Delete"
    interface = interface_of({"properties": properties})
    address = interface["ipConfigurations"][0]["properties"]["publicIPAddressConfiguration"]
    assert (interface["deleteOption"], address["properties"]["deleteOption"]) == (
        "Delete",
        "Delete",
    )
    world.server.evict(machine_name("t1", 0), None)
    kinds = {one.kind.rpartition("/")[2] for one in world.server.resources()}
    assert kinds == {"resourceGroups", "virtualNetworks", "networkSecurityGroups"}


def test_on_demand_machines_have_no_maximum_price(world: World) -> None:
    properties = sent(world, bid=None)["properties"]
    assert properties["priority"] == "Regular"
    assert not {"evictionPolicy", "billingProfile"} & set(properties)


def test_a_maximum_price_never_exceeds_the_bid(world: World) -> None:
    assert sent(world, bid=20_019_999)["properties"]["billingProfile"] == {"maxPrice": 0.02001}
    with pytest.raises(BadRequest, match=r"0\.00001 USD"):
        world.provider().create(order("t2", bid=9_999))


def test_everything_is_tagged(world: World) -> None:
    world.provider(tags={"cost-center": "[42]"}).create(order())
    for one in world.server.resources():
        if one.kind.rpartition("/")[2] in ("virtualMachines", "resourceGroups", "virtualNetworks"):
            wanted = {
                "spotctl-installation": "home",
                "spotctl-run": "night-1",
                "cost-center": "[42]",
            }
            assert wanted.items() <= one.tags.items(), one
    (first, _) = world.server.machines()
    assert first.tags["spotctl-intent"] == "1"
    (machine, _) = world.provider().list({})
    assert dict(machine.tags) == dict(order().tags)


def test_tags_that_azure_refuses_are_refused_before_anything_is_made(world: World) -> None:
    with pytest.raises(BadRequest, match="the value of tag team is too long"):
        world.provider(tags={"team": "x" * 257}).create(order())
    with pytest.raises(BadRequest, match="tags are too many"):
        world.provider(tags={f"tag-{number}": "x" for number in range(50)}).create(order())
    assert world.server.resources() == ()


def test_the_start_up_script_is_sent_and_secrets_are_not(world: World) -> None:
    request = order(secrets={"HF_TOKEN": "hf_planted"})
    world.provider().create(request)
    script = base64.b64decode(
        world.bought(machine_name("t1", 1))["properties"]["osProfile"]["customData"]
    )
    assert script.decode() == world.agents.start_up(request, "azure")
    assert all(b"hf_planted" not in one.body for one in world.server.server.requests)


def test_the_account_that_azure_insists_on_has_no_password_and_a_new_key(world: World) -> None:
    keys = []
    for token in ("t1", "t2"):
        world.provider().create(order(token, machines=1))
        system = world.bought(machine_name(token, 0))["properties"]["osProfile"]
        assert system["linuxConfiguration"]["disablePasswordAuthentication"] is True
        assert "adminPassword" not in system
        keys.append(system["linuxConfiguration"]["ssh"]["publicKeys"][0]["keyData"])
    assert keys[0] != keys[1]


def test_without_a_subnet_a_run_gets_one_that_admits_only_ssh_from_the_settings(
    world: World,
) -> None:
    world.provider(ssh_from=("203.0.113.7/32", "198.51.100.0/24")).create(order())
    (deployment,) = [
        one
        for one in world.server.server.requests
        if one.method == "PUT" and b"template" in one.body
    ]
    resources = json.loads(deployment.body)["properties"]["template"]["resources"]
    (rules,) = [one for one in resources if one["type"].endswith("networkSecurityGroups")]
    (rule,) = rules["properties"]["securityRules"]
    assert rule["properties"]["sourceAddressPrefixes"] == ["203.0.113.7/32", "198.51.100.0/24"]
    assert (rule["properties"]["destinationPortRange"], rule["properties"]["direction"]) == (
        "22",
        "Inbound",
    )
    (network,) = [one for one in resources if one["type"].endswith("virtualNetworks")]
    assert network["properties"]["subnets"][0]["properties"]["networkSecurityGroup"]["id"].endswith(
        "spotctl-eastus"
    )


def test_one_run_has_one_group_and_a_network_in_each_region(world: World) -> None:
    provider = world.provider()
    ids = [
        provider.create(order(token, machines=1, market=market))[0].id
        for token, market in (("t1", MARKET), ("t2", MARKET), ("t3", ELSEWHERE))
    ]
    assert [one.split(":")[1] for one in ids] == ["eastus", "eastus", "westus2"]
    assert len({one.split(":")[2].partition("/")[0] for one in ids}) == 1
    kinds = [one.kind.rpartition("/")[2] for one in world.server.resources()]
    assert (
        kinds.count("resourceGroups"),
        kinds.count("virtualNetworks"),
        kinds.count("virtualMachines"),
    ) == (1, 2, 3)


def test_the_networks_of_the_company_are_used(world: World) -> None:
    machine = sent(world, subnet=SUBNET, security_group=RULES, public_ip=False, ssh_from=())
    interface = interface_of(machine)
    assert interface["networkSecurityGroup"] == {"id": RULES}
    address = interface["ipConfigurations"][0]["properties"]
    assert address["subnet"] == {"id": SUBNET}
    assert "publicIPAddressConfiguration" not in address
    kinds = {one.kind.rpartition("/")[2] for one in world.server.resources()}
    assert kinds == {"resourceGroups", "virtualMachines", "networkInterfaces", "disks"}
    (seen,) = world.provider().list({})
    assert seen.address == world.server.vm(machine_name("t1", 0)).addresses.private


def test_the_network_and_the_disk_of_a_request(world: World) -> None:
    machine = sent(
        world,
        network=SUBNET,
        disk_gib=200,
        disk_encryption_set=f"{COMPANY}/Microsoft.Compute/x/key",
    )
    disk = machine["properties"]["storageProfile"]["osDisk"]
    assert disk["diskSizeGB"] == 200
    assert disk["managedDisk"]["diskEncryptionSet"]["id"].endswith("/key")
    assert interface_of(machine)["ipConfigurations"][0]["properties"]["subnet"] == {"id": SUBNET}


@pytest.mark.parametrize(
    ("size", "offer", "sku"),
    [
        ("Standard_D4s_v5", "ubuntu-24_04-lts", "server"),
        ("Standard_D4ps_v5", "ubuntu-24_04-lts", "server-arm64"),
        ("Standard_NC24ads_A100_v4", "ubuntu-hpc", "2404"),
        ("Standard_ND96isr_MI300X_v5", "ubuntu-hpc", "2404-rocm"),
    ],
)
def test_the_image_fits_the_architecture_and_the_gpus(
    world: World, size: str, offer: str, sku: str
) -> None:
    market = Market.parse(f"azure/eastus/-/{size}")
    world.provider().create(order(machines=1, market=market))
    storage = world.bought(machine_name("t1", 0))["properties"]["storageProfile"]
    image = storage["imageReference"]
    assert (image["offer"], image["sku"], image["version"]) == (offer, sku, "latest")
    assert storage["osDisk"].get("diskSizeGB") == (128 if offer == "ubuntu-hpc" else None)


@pytest.mark.parametrize(
    ("size", "problem"),
    [
        ("Standard_A1_v2", "boots only images of generation 1"),
        ("Standard_NV36ads_A10_v5", "no image with drivers for its A10"),
        ("Standard_ND40rs_v2", "no image with drivers for its V100"),
    ],
)
def test_a_size_without_an_image_is_refused_unless_the_job_names_one(
    world: World, size: str, problem: str
) -> None:
    wanted = order(machines=1, market=Market.parse(f"azure/eastus/-/{size}"))
    with pytest.raises(BadRequest, match=problem):
        world.provider().create(wanted)
    world.provider(image=f"{COMPANY}/Microsoft.Compute/galleries/images/training").create(wanted)


def test_an_image_of_ones_own(world: World) -> None:
    image = f"{COMPANY}/Microsoft.Compute/galleries/images/training"
    world.provider(image=image).create(order(machines=1))
    assert world.bought(machine_name("t1", 0))["properties"]["storageProfile"][
        "imageReference"
    ] == {"id": image}
    with pytest.raises(BadRequest, match="neither publisher:offer:sku:version nor a resource id"):
        world.provider().create(order("t2", image="ubuntu"))
    with pytest.raises(BadRequest, match="PlatformImageNotFound"):
        world.provider().create(order("t3", image="Canonical:ubuntu:none:latest"))


def test_a_machine_needs_an_identity_with_which_it_deletes_itself(world: World) -> None:
    with pytest.raises(BadRequest, match="az identity create"):
        world.provider(identity=None).create(order())
    with pytest.raises(BadRequest, match="FailedIdentityOperation"):
        world.provider(
            identity=f"{COMPANY}/Microsoft.ManagedIdentity/userAssignedIdentities/none"
        ).create(order())
    with pytest.raises(BadRequest, match="set ssh_from"):
        world.provider(ssh_from=()).create(order())
    assert world.server.machines() == ()


def test_sizes_that_cannot_be_had(world: World) -> None:
    with pytest.raises(NoCapacity, match="does not offer this size as Spot"):
        world.provider().create(order(market=Market.parse("azure/eastus/-/Standard_B2s")))
    with pytest.raises(NotFound, match="Azure has no size Standard_D4s_v5 in westus2"):
        world.provider().create(order(market=replace(MARKET, region="westus2")))
    world.server.fleet.sizes[1]["restrictions"] = [
        {"type": "Location", "values": ["eastus"], "reasonCode": "NotAvailableForSubscription"}
    ]
    with pytest.raises(QuotaReached, match="request access in the portal"):
        world.provider().create(order())
    assert world.server.resources() == ()


class TestCloseMachines:
    """Machines that are placed close together."""

    def test_they_are_in_one_group_of_the_run_which_goes_with_it(self, world: World) -> None:
        provider = world.provider()
        machines = [*provider.create(order(close=True)), *provider.create(order("t2", close=True))]
        (group,) = [
            one
            for one in world.server.resources()
            if one.kind.endswith("/proximityPlacementGroups")
        ]
        for token in ("t1", "t2"):
            named = world.bought(machine_name(token, 0))["properties"]["proximityPlacementGroup"][
                "id"
            ]
            assert named.rpartition("/")[2] == f"spotctl-{MARKET.region}"
        assert {
            "spotctl-installation": "home",
            "spotctl-run": "night-1",
        }.items() <= group.tags.items()
        provider.terminate([machine.id for machine in machines])
        run = {"spotctl-installation": "home", "spotctl-run": "night-1"}
        provider.remove(provider.resources(run))
        assert not [
            one
            for one in world.server.resources()
            if one.kind.endswith("/proximityPlacementGroups")
        ]

    def test_those_of_zones_are_in_groups_of_their_own(self) -> None:
        assert (
            placement_name(Market("azure", "eastus", "2", "Standard_D2s_v5")) == "spotctl-eastus-2"
        )

    def test_a_repeated_order_must_be_as_close(self, world: World) -> None:
        (first, *_) = world.provider().create(order(close=True))
        assert world.provider().create(order(close=True))[0].id == first.id
        with pytest.raises(TokenTaken):
            world.provider().create(order())

    def test_other_machines_are_in_none(self, world: World) -> None:
        assert "proximityPlacementGroup" not in sent(world)["properties"]


class TestReservedMachines:
    """Machines of a group of capacity reservations."""

    SIZE = MARKET.instance_type
    RESERVED: Mapping[str, Any] = {
        "market": replace(MARKET, reservation="night"),
        "bid": None,
        "reservation": GROUP,
    }
    IN_ZONE: Mapping[str, Any] = {
        **RESERVED,
        "market": replace(MARKET, zone="eastus-2", reservation="night"),
    }

    def test_they_name_the_group_and_count_against_no_quota(self, world: World) -> None:
        reservations = world.server.fleet.reservations
        night = reservations.reserve(self.SIZE, 2)
        world.server.fleet.cores = 0
        world.server.fleet.capacity[MARKET.region, self.SIZE] = 0
        provider = world.provider()
        machines = provider.create(order(**self.RESERVED))
        assert (len(machines), reservations.free(night)) == (2, 0)
        sent = world.bought(machine_name("t1", 0))
        assert sent["properties"]["capacityReservation"] == {
            "capacityReservationGroup": {"id": GROUP}
        }
        assert (sent["properties"]["priority"], "zones" in sent) == ("Regular", False)
        assert {str(machine.market) for machine in machines} == {
            f"azure/eastus/-/{self.SIZE}/linux/night"
        }
        provider.terminate([machine.id for machine in machines])
        eventually(lambda: reservations.free(night) == 2)

    def test_a_zone_is_named_by_its_number(self, world: World) -> None:
        world.server.fleet.reservations.reserve(self.SIZE, 2, "2")
        machines = world.provider().create(order(**self.IN_ZONE))
        assert world.bought(machine_name("t1", 0))["zones"] == ["2"]
        assert [machine.market.zone for machine in machines] == ["eastus-2", "eastus-2"]
        assert [machine.market for machine in world.provider().list({})] == [
            machine.market for machine in machines
        ]

    def test_no_machine_is_bought_beyond_those_that_are_reserved(self, world: World) -> None:
        """Azure would grant them, on demand."""
        night = world.server.fleet.reservations.reserve(self.SIZE, 2)
        provider = world.provider()
        provider.create(order(**self.RESERVED))
        with pytest.raises(NoCapacity, match="all 2 machines of reservation night are in use"):
            provider.create(order("t2", **self.RESERVED))
        assert len(world.server.fleet.reservations.allocated(night)) == 2
        assert len(world.server.machines()) == 2

    def test_an_order_for_more_gets_what_is_free_also_if_it_is_repeated(self, world: World) -> None:
        world.server.fleet.reservations.reserve(self.SIZE, 1)
        (first,) = world.provider().create(order(**self.RESERVED))
        assert [one.id for one in world.provider().create(order(**self.RESERVED))] == [first.id]
        with pytest.raises(TokenTaken):
            world.provider().create(order(machines=1, **self.RESERVED))

    def test_the_server_grants_what_is_beyond_a_reservation_like_azure(self, world: World) -> None:
        """With quota and capacity, and not without."""
        fleet = world.server.fleet
        night = fleet.reservations.reserve(self.SIZE, 2)
        world.provider().create(order(**self.RESERVED))
        sent = {
            **world.bought(machine_name("t1", 0)),
            "type": "Microsoft.Compute/virtualMachines",
            "name": "more",
        }
        fleet.check([sent])
        fleet.cores = 4
        fleet.check([sent])
        fleet.cores = 0
        with pytest.raises(Refused):
            fleet.check([sent])
        assert fleet.reservations.beyond([vm.body for vm in fleet.alive()], [sent]) == ([], [sent])
        assert fleet.reservations.free(night) == 0

    @pytest.mark.parametrize(
        ("size", "zone", "problem"),
        [
            (
                "Standard_D2s_v5",
                "2",
                "reserves no Standard_D4s_v5 in zone 2, but Standard_D2s_v5 in zone 2; correct the",
            ),
            (
                "Standard_D4s_v5",
                "1",
                "reserves no Standard_D4s_v5 in zone 2, but Standard_D4s_v5 in zone 1; correct the",
            ),
            (
                "Standard_D4s_v5",
                "",
                "reserves no Standard_D4s_v5 in zone 2, but Standard_D4s_v5 without a zone",
            ),
        ],
        ids=["size", "zone", "regional"],
    )
    def test_a_group_without_such_machines_is_left_for_others(
        self, world: World, size: str, zone: str, problem: str
    ) -> None:
        """The error is one after which a run rents elsewhere."""
        world.server.fleet.reservations.reserve(size, 2, zone)
        with pytest.raises(NotFound, match=problem) as refused:
            world.provider().create(order(**self.IN_ZONE))
        assert action_for(refused.value) is ErrorAction.OTHER_MARKET
        assert world.server.resources() == ()

    @pytest.mark.parametrize(
        "id_", [GROUP.replace("night", "day"), "night"], ids=["unknown", "no id"]
    )
    def test_a_group_that_does_not_exist_is_refused_by_name(self, world: World, id_: str) -> None:
        world.server.fleet.reservations.reserve(self.SIZE, 2)
        with pytest.raises(NotFound, match=f"{id_}.*correct the job's reservations"):
            world.provider().create(order(**{**self.RESERVED, "reservation": id_}))
        assert world.server.resources() == ()

    def test_a_group_may_be_shared_by_another_subscription(self, world: World) -> None:
        shared = GROUP.replace(SUBSCRIPTION, "0f1e2d3c-0000-4000-8000-000000000000")
        world.server.fleet.reservations.reserve(self.SIZE, 2, group=shared)
        assert len(world.provider().create(order(**{**self.RESERVED, "reservation": shared}))) == 2

    @pytest.mark.parametrize("action", [DEPLOY, READ])
    def test_a_missing_right_is_named(self, world: World, action: str) -> None:
        world.server.fleet.reservations.reserve(self.SIZE, 2)
        world.server.access.denied.add(action)
        with pytest.raises(NotPermitted, match=action):
            world.provider().create(order(**self.RESERVED))
        assert world.server.machines() == ()

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"bid": BID}, "does not support Spot"),
            ({"close": True}, "does not support Spot or placement groups"),
        ],
    )
    def test_the_server_refuses_what_azure_does_not_support(
        self, world: World, changes: dict[str, Any], problem: str
    ) -> None:
        world.server.fleet.reservations.reserve(self.SIZE, 2)
        with pytest.raises(NotFound, match=f"{problem}.*correct the job's reservations"):
            world.provider().create(order(**{**self.RESERVED, **changes}))

    def test_other_machines_name_none(self, world: World) -> None:
        assert "capacityReservation" not in sent(world, bid=None)["properties"]
