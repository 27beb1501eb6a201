"""Checks of Google Cloud: project, clock, permissions and quotas."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pricing_data.errors import CloudError
from spotctl.clouds.doctor import TIMEOUT_SECONDS, Finding, Level, any_set, permissions, quota, refused, skew
from spotctl.clouds.errors import Answers, ApiCall
from spotctl.clouds.gcp.calls import ALL, role
from spotctl.clouds.gcp.cloud import GcpMachineSettings, GcpSettings
from spotctl.clouds.gcp.provider import on_demand_quotas, on_demand_vcpus, project_quotas, spot_quotas, spot_vcpus
from spotctl.clouds.gcp.session import ACT_AS, GcpSession
from spotctl.home import account_quotas
from spotctl.home.config import Settings
from spotctl.home.wall_clock import wall_us

SETUP = "run gcloud auth application-default login, and set GOOGLE_CLOUD_PROJECT"


def is_configured(settings: Settings) -> bool:
    """See `DoctorPart`."""
    folder = Path(os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud").expanduser()
    has_login = (folder / "application_default_credentials.json").is_file()
    return has_login or any_set("GOOGLE_APPLICATION_CREDENTIALS") or settings.text("gcp_compute_endpoint") is not None


def findings(settings: Settings, answers: Answers) -> Iterator[Finding]:
    """Raises `CloudError` if further checks are impossible."""
    access = GcpSettings(
        project=settings.text("gcp_project"),
        compute_endpoint=settings.text("gcp_compute_endpoint"),
        resource_manager_endpoint=settings.text("gcp_resource_manager_endpoint"),
        iam_endpoint=settings.text("gcp_iam_endpoint"),
        call_timeout_seconds=TIMEOUT_SECONDS,
        retry_deadline_seconds=TIMEOUT_SECONDS,
    )
    with GcpSession(access, answers) as session:
        call = ApiCall(f"permissions on project {session.project}", "resourcemanager.projects.get")
        granted, date = session.granted(call, list(ALL))
        yield Finding("gcp", "credentials", Level.GOOD, f"project {session.project}")
        yield skew("gcp", date)
        yield permissions("gcp", [permission for permission in ALL if permission not in granted], len(ALL))
        yield from _quotas(session, settings)
        yield _service_account(session, settings.table("gcp", GcpMachineSettings).service_account)


def _quotas(session: GcpSession, settings: Settings) -> Iterator[Finding]:
    """The quotas of the region that allows the most spot machines; keeps those of all regions."""
    call = ApiCall("list of regions", "compute.regions.list (in roles/compute.viewer)")
    pages = session.pages(call, "Regions", {"project": session.project})
    regions = [region for page in pages for region in page]
    limits = [limit for region in regions for limit in (*spot_quotas(region), *on_demand_quotas(region))]
    with suppress(CloudError):  # the permission may be missing, which is a finding of its own
        asked = ApiCall("quotas of the project", "compute.projects.get")
        limits += project_quotas(session.answer(asked, "Projects", "get", {"project": session.project}))
    account_quotas.keep(settings, limits, wall_us())
    best = max(regions, key=spot_vcpus, default=None)
    cure = "request more at https://console.cloud.google.com/iam-admin/quotas"
    if best is None:
        yield quota("gcp", "spot quota in no region", 0.0, cure)
        return
    yield quota("gcp", f"spot quota in {best.name}", spot_vcpus(best), cure)
    yield quota("gcp", f"on-demand quota in {best.name}", on_demand_vcpus(best), cure)


def _service_account(session: GcpSession, account: str | None) -> Finding:
    """Checks that machines get an account of their own, and that the launcher may give it to them."""
    what = "service account"
    if account is None:
        detail = "not set, so machines get the project's default one, which is often allowed to rent machines"
        return Finding(
            "gcp", what, Level.NOTE, detail, "create one that may only delete machines: docs/google-cloud.md"
        )
    try:
        may = session.may_act_as(ApiCall(f"permissions on {account}", "iam.serviceAccounts.get"), account)
    except CloudError as error:
        return refused("gcp", what, error)
    if may:
        return Finding("gcp", what, Level.GOOD, account)
    grant = f"gcloud iam service-accounts add-iam-policy-binding {account} --role roles/iam.serviceAccountUser"
    return Finding("gcp", what, Level.NO_ACCESS, f"{ACT_AS} on {account} is missing", f"{grant} --member user:YOU")


POLICIES = {
    "gcp": lambda _: role("gcp"),
    "gcp-machines": lambda _: role("gcp-machines"),
    "gcp-try": lambda _: role("gcp-try"),
}
