"""What Azure is asked for when machines are bought."""

from __future__ import annotations

import base64
import json
from functools import partial
from typing import Any

import pytest

from spotctl.clouds.azure.orders import machine_name
from spotctl.home.errors import BadRequest
from tests.servers.azure import SUBSCRIPTION
from tests.spotctl.clouds.azure.world import BID, ELSEWHERE, MARKET, World, order

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
    ("image", "disk"),
    [
        ("images/own", {"osDisk": {"osType": "Linux", "diskSizeGB": 200}}),
        ("galleries/g/images/own/versions/1.0.0", {"osDiskImage": {"sizeInGB": 200}}),
    ],
)
def test_a_disk_is_as_large_as_its_image_and_billed_so(
    world: World, image: str, disk: dict[str, Any]
) -> None:
    image = f"{COMPANY}/Microsoft.Compute/{image}"
    world.server.images[image] = disk
    machine = sent(world, image=image, disk_gib=70)
    assert machine["properties"]["storageProfile"]["osDisk"]["diskSizeGB"] == 200
    plain, own = world.provider(), world.provider(image=image)
    billed = plain.holdings(MARKET, spot=True, disk_gib=200)
    assert own.holdings(MARKET, spot=True, disk_gib=70) == billed
    assert plain.holdings(MARKET, spot=True, disk_gib=None, image=image) == billed


def test_a_usual_disk_is_billed_as_it_is_ordered(world: World) -> None:
    machine, billed = sent(world), partial(world.provider().holdings, MARKET, spot=True)
    assert machine["properties"]["storageProfile"]["osDisk"]["diskSizeGB"] == 30
    assert billed(disk_gib=None) == billed(disk_gib=30)
    assert billed(disk_gib=30).disk < billed(disk_gib=128).disk


def test_a_machine_needs_an_identity_with_which_it_deletes_itself(world: World) -> None:
    with pytest.raises(BadRequest, match="spotctl setup azure"):
        world.provider(identity=None).create(order())
    with pytest.raises(BadRequest, match="FailedIdentityOperation"):
        world.provider(
            identity=f"{COMPANY}/Microsoft.ManagedIdentity/userAssignedIdentities/none"
        ).create(order())
    with pytest.raises(BadRequest, match="set ssh_from"):
        world.provider(ssh_from=()).create(order())
    assert world.server.machines() == ()
