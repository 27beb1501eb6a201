"""`spotctl doctor` on simulated clouds: an account that lacks nothing, and one that lacks a permission."""

from __future__ import annotations

import pytest

from tests.cloud.clouds import SimulatedCloud, recorded, sampled
from tests.cloud.gcp import GcpServer
from tests.spotctl.command_line import spotctl


@pytest.mark.parametrize("name", sampled("gcp"))
def test_it_finds_what_a_simulated_cloud_lacks_and_nothing_else(name: str) -> None:
    with recorded(name) as cloud:
        found = levels(cloud)
        assert (found.pop("permissions not tried", None) == "note") is (name == "aws")
        assert (found.pop("not checked", None) == "note") is (name != "aws")
        assert set(found.values()) == {"good"}
        assert "permissions" in found
        if isinstance(cloud.server, GcpServer):
            cloud.server.denied.add("compute.instances.create")
            assert levels(cloud)["permissions"] == "no access"


def levels(cloud: SimulatedCloud) -> dict[str, str]:
    findings = spotctl("doctor", "--json", **cloud.environment).json["findings"]
    return {one["what"]: one["level"] for one in findings if one["about"] == cloud.name}
