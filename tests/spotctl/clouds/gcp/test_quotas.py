"""Google's quotas, as the contract of providers has them."""

from __future__ import annotations

import pytest

from spotctl.clouds.errors import QuotaReached
from tests.spotctl.clouds.gcp.world import World, order


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
