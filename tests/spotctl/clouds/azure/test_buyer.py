"""What machines need besides an order: a size, an image that fits, a place close to others, reserved capacity."""

from __future__ import annotations

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
from tests.spotctl.clouds.azure.test_orders import COMPANY, sent
from tests.spotctl.clouds.azure.world import BID, MARKET, World, order
from tests.waiting import eventually


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
    assert storage["osDisk"].get("diskSizeGB") == (128 if offer == "ubuntu-hpc" else 30)


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
