"""The checks before machines are rented on Azure: each names the setting or the command that cures
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from spotctl.clouds.doctor import Finding, Level, all_found
from tests.servers.azure import SUBSCRIPTION
from tests.spotctl.clouds.azure.world import MARKET, World, order

NONE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/company/providers/Microsoft.{{}}/none"
IDENTITY = NONE.format("ManagedIdentity/userAssignedIdentities")
SUBNET = f"{NONE.format('Network/virtualNetworks')}/subnets/inner"


def findings(
    world: World,
    settings: Mapping[str, Any] | None = None,
    **changes: Any,  # noqa: ANN401
) -> dict[str, Finding]:
    request = replace(order(), **changes)
    provider = world.provider(**(settings or {}))
    return {finding.what: finding for finding in all_found("azure", provider.checks(request))}


def bad(found: Mapping[str, Finding]) -> dict[str, str]:
    return {
        what: f"{finding.detail}; {finding.cure}"
        for what, finding in found.items()
        if finding.is_bad
    }


def test_a_subscription_that_lacks_nothing_passes_and_says_what_stays_unchecked(
    world: World,
) -> None:
    found = findings(world)
    assert bad(found) == {}
    assert (found["not checked"].level, "policies" in found["not checked"].detail) == (
        Level.NOTE,
        True,
    )
    assert world.server.resources() == ()


@pytest.mark.parametrize(
    ("settings", "changes", "what", "words"),
    [
        ({"ssh_from": ()}, {}, "ssh", "set ssh_from in [azure]"),
        ({}, {"identity": IDENTITY}, "identity of machines", "spotctl setup azure"),
        ({"image": "Canonical:none:server:latest"}, {}, "image", "correct image in [azure]"),
        ({"subnet": SUBNET}, {}, "subnet", "correct subnet in [azure]"),
        (
            {},
            {"market": replace(MARKET, instance_type="Standard_Z9")},
            "size Standard_Z9",
            "has no size",
        ),
        (
            {},
            {"market": replace(MARKET, instance_type="Standard_B2s")},
            "size Standard_B2s",
            "rent it on demand",
        ),
    ],
)
def test_what_the_settings_or_the_job_name_is_checked(
    world: World, settings: Mapping[str, Any], changes: Mapping[str, Any], what: str, words: str
) -> None:
    assert words in bad(findings(world, settings, **changes))[what]


def test_a_quota_that_is_too_small_is_named(world: World) -> None:
    world.server.fleet.quota = 1
    words = bad(findings(world))[f"quotas in {MARKET.region}"]
    assert (
        "1 Total Regional Spot vCPUs in eastus, and 8 are needed; request more in the Azure portal"
        in words
    )


def test_reserved_machines_need_no_quota(world: World) -> None:
    world.server.fleet.cores = 0
    assert f"quotas in {MARKET.region}" in bad(findings(world, bid=None))
    assert f"quotas in {MARKET.region}" not in bad(findings(world, bid=None, reservation="group"))


def test_an_older_role_leaves_a_check_out(world: World) -> None:
    world.server.access.denied.add(
        "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read"
    )
    assert findings(world)["image"].level is Level.NOTE
