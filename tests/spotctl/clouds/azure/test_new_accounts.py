"""Orders of free, student and new subscriptions, as the simulated cloud itself refuses them."""

from __future__ import annotations

import pytest

from spotctl.clouds.errors import NotHere, QuotaReached, Scope
from tests.spotctl.clouds.azure.world import World, order


def test_a_region_that_the_subscription_may_not_use_is_not_the_end(world: World) -> None:
    world.server.fleet.regions = frozenset({"westus2"})
    with pytest.raises(
        NotHere, match=r"best available regions.*name others under regions"
    ) as refused:
        world.provider().create(order())
    assert refused.value.scope is Scope.REGION
    assert world.server.machines() == ()


def test_an_offer_without_spot_still_rents_on_demand(world: World) -> None:
    world.server.fleet.sells_spot = False
    with pytest.raises(QuotaReached, match="upgrade to pay-as-you-go") as refused:
        world.provider().create(order())
    assert refused.value.scope is Scope.ACCOUNT
    world.provider().create(order("t2", bid=None))


def test_few_public_addresses_end_with_the_ways_out(world: World) -> None:
    world.server.fleet.addresses = 1
    with pytest.raises(QuotaReached, match=r"set public_ip = false in \[azure\]") as refused:
        world.provider().create(order())
    assert refused.value.scope is Scope.REGION
    world.provider().create(order("t2", 1))
