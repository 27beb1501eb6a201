"""Checks of Google Cloud: project, clock, permissions and quotas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pricing_data.clouds.base import ApiCall
from pricing_data.clouds.gcp import GcpSession
from pricing_data.clouds.settings import GcpSettings
from spotctl.config import Settings
from spotctl.doctor import policies, verdicts
from spotctl.doctor.findings import Finding, Level
from spotctl.doctor.verdicts import permissions, quota, skew

# Where spot machines have no quota of their own, they count against that of all machines.
_QUOTAS = ("PREEMPTIBLE_CPUS", "CPUS")


def findings(settings: Settings) -> Iterator[Finding]:
    """Raises `CloudError` if further checks are impossible."""
    access = GcpSettings(
        project=settings.gcp_project,
        compute_endpoint=settings.gcp_compute_endpoint,
        resource_manager_endpoint=settings.gcp_resource_manager_endpoint,
        call_timeout_seconds=verdicts.TIMEOUT_SECONDS,
        retry_deadline_seconds=verdicts.TIMEOUT_SECONDS,
    )
    with GcpSession(access) as session:
        yield from _permissions(session)
        yield _quota(session)


def _permissions(session: GcpSession) -> Iterator[Finding]:
    call = ApiCall(f"permissions on project {session.project}", "resourcemanager.projects.get")
    granted, date = session.granted(call, list(policies.GCP))
    yield Finding("gcp", "credentials", Level.GOOD, f"project {session.project}")
    yield skew("gcp", date)
    yield permissions("gcp", [one for one in policies.GCP if one not in granted], len(policies.GCP))


def _quota(session: GcpSession) -> Finding:
    call = ApiCall("list of regions", "compute.regions.list (in roles/compute.viewer)")
    pages = session.pages(call, "Regions", {"project": session.project})
    vcpus = {region.name: _vcpus(region) for page in pages for region in page}
    best = max(vcpus, key=lambda name: vcpus[name], default="")
    cure = "request more at https://console.cloud.google.com/iam-admin/quotas"
    return quota("gcp", f"spot quota in {best or 'no region'}", vcpus.get(best, 0.0), cure)


def _vcpus(region: Any) -> float:  # noqa: ANN401  # the SDK's messages are not annotated
    limits: dict[str, float] = {limit.metric: limit.limit for limit in region.quotas}
    return max(limits.get(metric, 0.0) for metric in _QUOTAS)
