"""Google's quotas, as the contract of providers has them."""

from __future__ import annotations

from tests.spotctl.clouds.gcp.world import World


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
