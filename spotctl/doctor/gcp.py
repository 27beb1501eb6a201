"""What is asked of Google Cloud: the project's regions and quotas, what time it is, and what we may do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import google.auth
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials, Credentials
from google.auth.transport.requests import AuthorizedSession
from google.cloud import compute_v1

from pricing_data.errors import AccessDenied, MissingCredentials, SourceUnavailable
from pricing_data.sources.gcp.api import Call, failures_of
from spotctl.doctor import policies
from spotctl.doctor.findings import Finding, Level
from spotctl.doctor.verdicts import TIMEOUT_SECONDS, permissions, quota, skew

if TYPE_CHECKING:
    from spotctl.config import Settings

_PERMISSIONS_ENDPOINT = "https://cloudresourcemanager.googleapis.com"
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
# Where no quota of its own is set for spot machines, they count against that of all.
_QUOTAS = ("PREEMPTIBLE_CPUS", "CPUS")


def findings(settings: Settings) -> Iterator[Finding]:
    """Raises `SourceError` where nothing more can be asked."""
    with failures_of(Call("signing in", "an identity")):
        credentials, project = _identity(settings)
    if not project:
        raise MissingCredentials("gcp: no project is named; set GOOGLE_CLOUD_PROJECT, or gcp_project in the settings")
    yield from _allowed(settings, credentials, project)
    yield _quota(settings, credentials, project)


def _identity(settings: Settings) -> tuple[Credentials, str | None]:
    project = settings.gcp_project or os.environ.get("GOOGLE_CLOUD_PROJECT")
    if _is_plain(settings.gcp_compute_endpoint):
        return _anonymous(), project
    credentials, default = google.auth.default(scopes=_SCOPES)
    return credentials, project or default


def _allowed(settings: Settings, credentials: Credentials, project: str) -> Iterator[Finding]:
    endpoint = settings.gcp_resource_manager_endpoint or _PERMISSIONS_ENDPOINT
    # A token that travels in clear can be used by whoever reads it.
    session: Any = AuthorizedSession(_anonymous() if _is_plain(endpoint) else credentials)  # type: ignore[no-untyped-call]
    url = f"{endpoint}/v1/projects/{project}:testIamPermissions"
    call = Call("test of permissions", "resourcemanager.projects.get")
    with failures_of(call):
        answer = session.post(url, json={"permissions": list(policies.GCP)}, timeout=TIMEOUT_SECONDS)
    if answer.status_code in (401, 403, 404):
        raise AccessDenied(
            f"gcp: project {project} answers {answer.status_code}; check its name, and that the identity may see it"
        )
    if answer.status_code != 200:
        raise SourceUnavailable(f"gcp: the test of permissions was answered by {answer.status_code}; try again later")
    with failures_of(call):
        granted = set(answer.json().get("permissions", ()))
    yield Finding("gcp", "credentials", Level.GOOD, f"project {project}")
    yield skew("gcp", answer.headers["date"])
    yield permissions("gcp", [one for one in policies.GCP if one not in granted], len(policies.GCP))


def _quota(settings: Settings, credentials: Credentials, project: str) -> Finding:
    endpoint = settings.gcp_compute_endpoint
    options = ClientOptions(api_endpoint=endpoint) if endpoint else None
    with (
        failures_of(Call("list of regions", "compute.regions.list (in roles/compute.viewer)")),
        compute_v1.RegionsClient(credentials=credentials, client_options=options) as client,
    ):
        request = compute_v1.ListRegionsRequest(project=project, max_results=500)
        regions = {region.name: _vcpus(region) for region in client.list(request=request, timeout=TIMEOUT_SECONDS)}
    best = max(regions, key=lambda name: regions[name], default="")
    cure = "ask for more at https://console.cloud.google.com/iam-admin/quotas"
    return quota("gcp", f"spot quota in {best or 'no region'}", regions.get(best, 0.0), cure)


def _vcpus(region: compute_v1.Region) -> float:
    limits = {found.metric: found.limit for found in region.quotas}
    return max(limits.get(metric, 0.0) for metric in _QUOTAS)


def _is_plain(endpoint: str | None) -> bool:
    return endpoint is not None and endpoint.lower().startswith("http://")


def _anonymous() -> Credentials:
    return AnonymousCredentials()  # type: ignore[no-untyped-call]  # the SDK left its constructor unannotated
