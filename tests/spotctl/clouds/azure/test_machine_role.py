"""The identity of machines may delete machines in the resource groups of its runs, and nothing
else.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from spotctl.clouds.azure.orders import group_name
from spotctl.clouds.errors import NotPermitted
from spotctl.home.errors import BadRequest
from spotctl.home.installation import RUN_TAG
from tests.cloud.azure_fleet import IDENTITY
from tests.spotctl.clouds.azure.world import World, order, running_world


@pytest.fixture
def world() -> Iterator[World]:
    with running_world() as world:
        yield world


def deleting(world: World, caller: str, doomed: str) -> int:
    """The answer when one machine has another deleted."""
    name = world.server.vm(caller).host_name
    query = {"api-version": "2018-02-01", "resource": "https://management.azure.com/"}
    token = world.host.metadata(name, "identity/oauth2/token", query)["access_token"]
    url = f"{world.server.url}{world.server.vm(doomed).id}"
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.delete(url, params={"api-version": "2024-07-01"}, headers=headers).status_code


def test_a_machine_may_delete_machines_only_in_groups_of_runs_with_its_identity(
    world: World,
) -> None:
    provider = world.provider()
    own = order("t1", machines=1)
    other = order("t2", machines=1)
    other = order("t2", machines=1, tags={**other.tags, RUN_TAG: "day-2"})
    (first,), (second,) = provider.create(own), provider.create(other)
    one, two = (machine.id.rpartition(":")[2].rpartition("/")[2] for machine in (first, second))
    principal = world.server.fleet.identities[IDENTITY.lower()]["principalId"]
    assert world.server.access.assigned == {
        (group_name(asked.tags).lower(), principal) for asked in (own, other)
    }
    # As if the second run had another identity.
    world.server.access.assigned.discard((group_name(other.tags).lower(), principal))
    assert deleting(world, one, two) == 403
    assert deleting(world, one, one) == 202


def test_an_order_that_is_repeated_assigns_the_role_again(world: World) -> None:
    world.provider().create(order("t1", machines=1))
    world.server.access.assigned.clear()
    world.provider().create(order("t2", machines=1))
    assert len(world.server.access.assigned) == 1


def test_a_subscription_without_the_role_is_told_how_to_make_it(world: World) -> None:
    world.server.roles.clear()
    with pytest.raises(BadRequest, match=r"has no role spotctl-machine.*spotctl setup azure"):
        world.provider().create(order())
    assert not world.host.running()


def test_a_launcher_that_may_not_assign_the_role_rents_nothing(world: World) -> None:
    world.server.access.denied.add("Microsoft.Authorization/roleAssignments/write")
    with pytest.raises(NotPermitted, match="roleAssignments/write"):
        world.provider().create(order())
    assert not world.host.running()
