"""The checks before machines are rented on Google Cloud: each names the setting or the command that
cures it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from spotctl.clouds.doctor import Finding, Level, all_found
from spotctl.clouds.errors import QuotaReached
from tests.spotctl.clouds.gcp.world import ANYWHERE, N2, World, order

WAY_IN = {"ssh_from": ("203.0.113.7/32",)}


def findings(
    made: World,
    settings: Mapping[str, Any] = WAY_IN,
    **changes: Any,  # noqa: ANN401
) -> dict[str, Finding]:
    request = order(machines=2, **changes)
    return {
        finding.what: finding
        for finding in all_found("gcp", made.provider(**settings).checks(request))
    }


def bad(found: Mapping[str, Finding]) -> dict[str, str]:
    return {
        what: f"{finding.detail}; {finding.cure}"
        for what, finding in found.items()
        if finding.is_bad
    }


@pytest.mark.parametrize("market", [N2, ANYWHERE], ids=str)
def test_a_project_that_lacks_nothing_passes_and_says_what_stays_unchecked(
    made: World,
    market: Any,  # noqa: ANN401
) -> None:
    found = findings(made, market=market)
    assert bad(found) == {}
    assert (found["not checked"].level, "organization policies" in found["not checked"].detail) == (
        Level.NOTE,
        True,
    )
    assert made.server.resources() == ()


@pytest.mark.parametrize(
    ("settings", "changes", "what", "words"),
    [
        ({"ssh_from": ()}, {}, "ssh", "set ssh_from in [gcp]"),
        ({**WAY_IN, "network": "none"}, {}, "network none", "gcloud compute networks create none"),
        ({**WAY_IN, "subnetwork": "none"}, {}, "network none", "correct subnetwork in [gcp]"),
        ({"ssh_from": (), "subnetwork": "default"}, {}, "ssh", "network_tags"),
        (
            {**WAY_IN, "image": "projects/nobody/global/images/family/none"},
            {},
            "n2-standard-4 and its image",
            "was not found",
        ),
        (
            WAY_IN,
            {"market": replace(N2, instance_type="n9-standard-4")},
            "n9-standard-4 and its image",
            "no such",
        ),
        (WAY_IN, {"market": replace(N2, instance_type="m3-ultramem-32")}, "spot", "rent on demand"),
    ],
)
def test_what_the_settings_or_the_job_name_is_checked(
    made: World, settings: Mapping[str, Any], changes: Mapping[str, Any], what: str, words: str
) -> None:
    assert words in bad(findings(made, settings, **changes))[what]


def test_a_network_in_custom_mode_needs_a_subnetwork(made: World) -> None:
    made.server.custom.add("default")
    assert "set subnetwork in [gcp]" in bad(findings(made))["network default"]


def test_a_small_quota_of_addresses_is_named_with_both_ways_out(made: World) -> None:
    made.server.quotas["IN_USE_ADDRESSES"] = 1.0
    words = bad(findings(made))["quotas in us-central1"]
    assert "IN_USE_ADDRESSES is 1 in us-central1, and 2 are needed" in words
    assert "set public_ip = false in [gcp]" in words
    assert "quotas in us-central1" not in bad(findings(made, {**WAY_IN, "public_ip": False}))
    made.server.quotas["CPUS"] = 7.0
    assert (
        "CPUS is 7 in us-central1, and 8 are needed" in bad(findings(made))["quotas in us-central1"]
    )


def test_reserved_machines_need_no_quota_of_vcpus(made: World) -> None:
    made.server.quotas["CPUS"] = 0.0
    assert "quotas in us-central1" in bad(findings(made, bid=None))
    assert "quotas in us-central1" not in bad(findings(made, bid=None, reservation="mine"))


def test_an_older_role_leaves_a_check_out(made: World) -> None:
    made.server.denied.add("compute.networks.get")
    assert findings(made)["network default"].level is Level.NOTE


# -- quotas, as the contract of providers has them --------------------------------------------------


def test_spot_machines_have_a_quota_of_their_own_or_count_with_all(made: World) -> None:
    def stated() -> list[str]:
        return [str(one) for one in made.provider().quotas("us-central1", {"n2-standard-4"})]

    made.server.quotas = {"CPUS": 24.0, "PREEMPTIBLE_CPUS": 0.0, "NVIDIA_L4_GPUS": 1.0}
    assert stated() == [
        "gcp/us-central1=24 vCPUs",
        "gcp/us-central1/g2-standard=1 GPUs",
        "gcp/us-central1/g2-standard on demand=1 GPUs",
    ]
    made.server.quotas["PREEMPTIBLE_CPUS"] = 16.0
    assert stated()[0] == "gcp/us-central1=16 vCPUs"
    made.server.project_quotas = {"GPUS_ALL_REGIONS": 4.0}
    assert stated()[-2:] == ["gcp=4 GPUs", "gcp on demand=4 GPUs"]
    made.server.denied = {"compute.projects.get"}
    assert "gcp=4 GPUs" not in stated()
    made.server.denied, made.server.project_quotas = set(), {}
    made.server.quotas = {}
    assert stated() == []


def test_series_and_the_whole_project_have_quotas(made: World) -> None:
    made.server.quotas = {"CPUS": 24.0, "N2_CPUS": 8.0, "PREEMPTIBLE_CPUS": 16.0}
    made.server.project_quotas = {"CPUS_ALL_REGIONS": 12.0}
    series = "gcp/us-central1/n2+n2-highcpu+n2-highmem+n2-standard"

    def stated() -> list[str]:
        return [str(quota) for quota in made.provider().quotas("us-central1", {"n2-standard-4"})]

    assert stated() == [
        "gcp/us-central1=16 vCPUs",
        f"{series} on demand=8 vCPUs",
        "gcp on demand=12 vCPUs",
    ]
    made.server.quotas["PREEMPTIBLE_CPUS"] = 0.0
    assert stated()[:2] == ["gcp/us-central1=24 vCPUs", f"{series}=8 vCPUs"], (
        "spot machines share it"
    )


@pytest.mark.parametrize(
    ("quotas", "project", "metric", "bid"),
    [
        ({"PREEMPTIBLE_CPUS": 4.0}, {}, "PREEMPTIBLE_CPUS", 10**9),
        ({"N2_CPUS": 4.0, "PREEMPTIBLE_CPUS": 0.0}, {}, "N2_CPUS", 10**9),
        ({"N2_CPUS": 4.0, "PREEMPTIBLE_CPUS": 64.0}, {}, "N2_CPUS", None),
        ({"N2_CPUS": 64.0}, {"CPUS_ALL_REGIONS": 4.0}, "CPUS_ALL_REGIONS", None),
    ],
)
def test_google_refuses_the_machine_for_which_a_quota_is_too_small(
    made: World, quotas: dict[str, float], project: dict[str, float], metric: str, bid: int | None
) -> None:
    made.server.quotas, made.server.project_quotas = quotas, project
    assert len(made.provider().create(order(machines=2, bid=bid))) == 1
    with pytest.raises(QuotaReached, match=f"Quota '{metric}' exceeded"):
        made.provider().create(order("t2", machines=1, bid=bid))
