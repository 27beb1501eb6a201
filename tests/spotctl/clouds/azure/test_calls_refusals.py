"""What Azure's errors mean to the caller."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotctl.clouds.azure.calls import MACHINE_PERMISSIONS, PERMISSIONS, PRICES, REFUSALS
from spotctl.clouds.errors import (
    LoginNeeded,
    NoCapacity,
    NotFound,
    NotHere,
    NotPermitted,
    NotYet,
    ProviderError,
    QuotaReached,
    Refusal,
    Throttled,
    Unanswered,
    UnknownRefusal,
)
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.home.installation import INSTALLATION_TAG
from spotctl.home.quotas import quotas_from
from tests.cloud.azure_fleet import IDENTITY
from tests.cloud.azure_reservations import GROUP
from tests.servers.azure import azure_error
from tests.servers.loopback import Fault, Reply
from tests.spotctl.clouds.azure.world import MARKET, World, order
from tests.waiting import eventually

_EXAMPLES = {
    r"max price .* is lower than the current spot price": "max price '1 USD' is lower than the current spot price '2'",
    r"legal terms": "Legal terms have not been accepted for this item on this subscription",
    r"\bspot\b|low.?priority": "Azure Spot is not supported for subscription",
    r"free (trial|account|subs)|student|offer": "It is not available to the offer of this subscription",
    r"allowed locations|location": "Resource 'm' was disallowed by policy 'Allowed locations'",
    r"quota": "it results in exceeding approved LowPriorityCores quota",
    r"too many requests|rate limit": "The server rejected the request because too many requests have been received",
    r"hypervisor generation": "The selected VM size 'Standard_A1_v2' cannot boot Hypervisor Generation '2'",
    r"capacity ?reservation": "The capacity reservation group has no matching reservation",
    "": "in Azure's own words",
}


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda one: f"{one.code}-{one.kind.__name__}")
def test_each_code_of_the_table(world: World, refusal: Refusal) -> None:
    words = _EXAMPLES[refusal.text]
    world.server.refusals.append({"code": refusal.code, "message": words})
    with pytest.raises(refusal.kind) as caught:
        world.provider().create(order())
    assert type(caught.value) is refusal.kind
    assert str(MARKET) in str(caught.value)
    assert words in str(caught.value)
    assert world.server.machines() == ()
    assert refusal.source.startswith(("learn.microsoft.com/", "https://github.com/"))


def test_an_unknown_code_ends_with_the_words_of_azure(world: World) -> None:
    world.server.refusals.append({"code": "MoonIsFull", "message": "Come back at new moon."})
    with pytest.raises(ProviderError, match="MoonIsFull Come back at new moon") as caught:
        world.provider().create(order())
    assert type(caught.value) is UnknownRefusal


def test_quotas_capacity_and_prices_of_the_server_itself(world: World) -> None:
    world.server.fleet.quota = 1
    with pytest.raises(QuotaReached, match="LowPriorityCores quota"):
        world.provider().create(order())
    world.server.fleet.quota = None
    world.server.fleet.prices[MARKET.region, MARKET.instance_type] = 10**9
    with pytest.raises(NoCapacity, match="lower than the current spot price"):
        world.provider().create(order())


def test_on_demand_machines_count_against_their_family_and_their_region(world: World) -> None:
    fleet, on_demand = world.server.fleet, replace(order(), bid=None)
    fleet.family_cores["standardDSv5Family"] = 4
    with pytest.raises(QuotaReached, match="standardDSv5Family quota"):
        world.provider().create(on_demand)
    fleet.family_cores.clear()
    fleet.cores = 4
    with pytest.raises(QuotaReached, match="Cores quota"):
        world.provider().create(on_demand)
    world.provider().create(order("t2"))


def test_a_size_that_the_image_does_not_boot_is_not_asked_for_again(world: World) -> None:
    market = replace(MARKET, instance_type="Standard_A1_v2")
    image = "Canonical:ubuntu-24_04-lts:server:latest"
    with pytest.raises(NotFound, match="cannot boot Hypervisor Generation '2'"):
        world.provider().create(replace(order(), market=market, image=image, bid=None))


def test_a_new_subscription_says_what_to_register(world: World) -> None:
    world.server.unregistered.add("microsoft.network")
    with pytest.raises(
        NotPermitted,
        match=r"namespace 'Microsoft.Network'.*az provider register -n Microsoft.Network",
    ):
        world.provider().create(order())
    assert world.server.machines() == ()


@pytest.mark.parametrize(
    ("reply", "meaning", "words"),
    [
        (
            azure_error("OperationNotAllowed", "slower", 429, **{"Retry-After": "17"}),
            Throttled,
            "after 17 seconds",
        ),
        (Reply(429), Throttled, "try again later"),
        (
            azure_error("AuthorizationFailed", "no right to read", 403),
            NotPermitted,
            "no right to read",
        ),
        (azure_error("InvalidAuthenticationToken", "expired", 401), NotPermitted, "az login"),
        (azure_error("InternalServerError", "oops", 500), Unanswered, "oops"),
        (Reply(502, b"<html>proxy</html>"), Unanswered, "502"),
        (Reply(200, b"[]"), Unanswered, "not as documented"),
        (azure_error("DeploymentActive", "it is active", 409), Unanswered, "it is active"),
        (azure_error("SubscriptionNotFound", "none such", 404), NotPermitted, "none such"),
        (Reply(404, b"{}"), Unanswered, "404"),
    ],
)
def test_answers_to_any_call(
    world: World, reply: Reply, meaning: type[SpotctlError], words: str
) -> None:
    provider = world.provider()
    for call in (
        lambda: provider.create(order()),
        lambda: provider.list({}),
        lambda: provider.resources({}),
    ):
        world.server.server.faults[:] = [Fault("resourcegroups", reply)]
        with pytest.raises(meaning, match=words):
            call()
    assert world.server.machines() == ()


def test_a_cloud_that_is_not_there(world: World) -> None:
    provider = world.provider()
    world.server.close()
    for call in (
        lambda: provider.create(order()),
        lambda: provider.list({}),
        lambda: provider.terminate([_ID]),
    ):
        with pytest.raises(Unanswered, match="no answer"):
            call()


_ID = "azure:eastus:spotctl-x/spotctl-y"


def _whole_story(world: World) -> None:
    """Makes every call that a run makes."""
    provider = world.provider()
    key = (
        "/subscriptions/s/resourceGroups/company/providers/Microsoft.Compute/diskEncryptionSets/key"
    )
    provider.quotas(MARKET.region, {MARKET.instance_type})
    first, second = provider.create(order(close=True))
    world.server.fleet.capacity[MARKET.region, MARKET.instance_type] = 1
    world.provider(disk_encryption_set=key).create(order("t2"))
    world.server.fleet.reservations.reserve(MARKET.instance_type, 1)
    provider.create(order("t3", 1, bid=None, reservation=GROUP))
    provider.link(first.id)
    world.agents.linked[0].console()
    world.server.evict(second.id, None)
    provider.list({})
    world.provider().list({})
    provider.terminate([first.id])
    eventually(lambda: len(world.host.running()) == 2)
    provider.admit_ssh({INSTALLATION_TAG: "home"}, ["192.0.2.9/32"])
    found = provider.resources({INSTALLATION_TAG: "home"})
    provider.remove([one for one in found if one.kind != "resource group"])
    provider.remove(found)


def test_the_policy_is_what_the_calls_need(world: World) -> None:
    """Azure says which actions it checks; the policy grants these, and no others."""
    _whole_story(world)
    of_doctor = {"Microsoft.Compute/skus/read", "Microsoft.Authorization/roleAssignments/read"}
    images = ("images/read", "galleries/images/versions/read")
    of_own_images = {f"Microsoft.Compute/{image}" for image in images}
    assert world.server.access.checked | of_doctor | of_own_images == set(PERMISSIONS)
    assert not world.server.access.checked & set(PRICES)
    assert set(MACHINE_PERMISSIONS) <= world.server.access.checked


@pytest.mark.parametrize(
    "action",
    sorted(one for one in PERMISSIONS if one.endswith(("/write", "join/action", "assign/action"))),
)
def test_each_right_that_buying_needs_is_named_when_it_is_missing(
    world: World, action: str
) -> None:
    world.server.access.denied.add(action)
    key = (
        "/subscriptions/s/resourceGroups/company/providers/Microsoft.Compute/diskEncryptionSets/key"
    )
    with pytest.raises(NotPermitted, match=action):
        world.provider(disk_encryption_set=key).create(order(close=True))
    assert world.server.machines() == ()


def test_a_machine_may_end_itself_and_nothing_else(world: World) -> None:
    """The role of the machines' identity is enough, and their token is not the launcher's."""
    world.provider().create(order())
    (first, _) = world.host.running()
    world.host.delete_itself(first)
    eventually(lambda: len(world.host.running()) == 1)
    assert IDENTITY.rpartition("/")[2] == "spotctl"


def test_bad_requests_are_no_provider_errors() -> None:
    assert {one.kind for one in REFUSALS} == {
        NoCapacity,
        NotFound,
        NotHere,
        QuotaReached,
        NotPermitted,
        NotYet,
        LoginNeeded,
        Throttled,
        Unanswered,
        BadRequest,
    }


def test_a_link_to_another_host_is_not_followed(world: World) -> None:
    """A token is sent with each request, so only Resource Manager's own links are."""
    page = Reply.of_json({"value": [], "nextLink": "https://203.0.113.7/more"})
    world.server.server.faults.append(Fault("resourcegroups", page))
    with pytest.raises(Unanswered, match="links to another host"):
        world.provider().list({})


def test_spot_machines_of_all_sizes_share_a_quota(world: World) -> None:
    world.server.fleet.quota = 20
    assert [str(one) for one in world.provider().quotas("eastus", {MARKET.instance_type})] == [
        "azure/eastus=20 vCPUs",
        "azure/eastus on demand=1000 vCPUs",
    ]


def test_machines_on_demand_also_share_the_quota_of_their_family(world: World) -> None:
    world.server.fleet.family_cores = {
        "standardDSv5Family": 100,
        "standardNCADSv4Family": 24,
        "standardESv5Family": 8,
    }
    types = {"Standard_D2s_v5", "Standard_D4s_v5", "Standard_NC24ads_A100_v4", "Standard_Unknown"}
    *_, first, second = world.provider().quotas("eastus", types)
    assert [str(first), str(second)] == [
        "azure/eastus/Standard_D2s_v5+Standard_D4s_v5 on demand=100 vCPUs",
        "azure/eastus/Standard_NC24ads_A100_v4 on demand=24 vCPUs",
    ]
    assert quotas_from(str(first)) == (first,)
    covered = [
        type_ for type_ in sorted(types) if first.covers("azure", "eastus", "Standard_D", type_)
    ]
    assert covered == ["Standard_D2s_v5", "Standard_D4s_v5"]
