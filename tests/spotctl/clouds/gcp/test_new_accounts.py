"""Orders of new projects and of companies' projects, as the simulated cloud itself refuses them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.cloud import compute_v1

from spotctl.clouds.errors import NotHere, NotPermitted, QuotaReached, Scope
from spotctl.clouds.gcp import orders
from spotctl.clouds.gcp.cloud import GcpMachineSettings
from spotctl.clouds.gcp.machine_types import NEVER_SPOT
from spotctl.home.errors import BadRequest
from tests.cloud.gcp_fields import check_instance
from tests.servers.gcp import Refused
from tests.spotctl.clouds.gcp.world import ANYWHERE, N2, World, order


@pytest.mark.parametrize("market", [N2, ANYWHERE], ids=str)
def test_a_region_that_the_organization_closes_is_not_the_end(made: World, market: object) -> None:
    made.server.locations = frozenset({"asia-east1"})
    with pytest.raises(NotHere, match="name others under regions") as refused:
        made.provider().create(order(market=market))
    assert refused.value.scope is Scope.REGION
    assert made.server.machines() == ()


def test_machines_without_public_addresses_are_the_cure_that_works(made: World) -> None:
    made.server.external_addresses = False
    with pytest.raises(NotPermitted, match=r"set public_ip = false in \[gcp\]"):
        made.provider().create(order())
    made.provider(public_ip=False).create(order("t2"))


def test_few_addresses_end_with_both_ways_out(made: World) -> None:
    made.server.quotas["IN_USE_ADDRESSES"] = 1.0
    provider = made.provider()
    provider.create(order(machines=1))
    with pytest.raises(
        QuotaReached, match=r"'IN_USE_ADDRESSES' exceeded.*fewer machines"
    ) as refused:
        provider.create(order("t2", machines=1))
    assert refused.value.scope is Scope.REGION
    made.provider(public_ip=False).create(order("t3", machines=1))


def test_without_the_default_account_machines_need_one_of_their_own(made: World) -> None:
    made.server.default_account = False
    with pytest.raises(BadRequest, match=r"set service_account in \[gcp\]"):
        made.provider(service_account=None).create(order())
    made.provider(service_account="machines@p.iam.gserviceaccount.com").create(order("t2"))


@pytest.mark.parametrize("series", sorted(NEVER_SPOT))
def test_the_simulated_cloud_sells_the_same_series_as_no_spot(series: str) -> None:
    name, zone = f"{series}-ultramem-32", N2.zone
    for bid in (1, None):
        request = order(machines=1, market=replace(N2, instance_type=name), bid=bid)
        sent = orders.instance(
            request,
            GcpMachineSettings(),
            orders.GcpHardware(name),
            (zone, "spotctl-0a-1b-2c-0"),
            "",
            0,
        )
        if bid is None:
            check_instance(compute_v1.Instance(sent), zone)
        else:
            with pytest.raises(Refused, match="Spot VM not supported"):
                check_instance(compute_v1.Instance(sent), zone)
