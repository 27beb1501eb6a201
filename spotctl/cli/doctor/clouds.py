"""Checks of the clouds that are configured on this computer, each through its own SDK."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pricing_data.errors import CloudError
from spotctl.clouds.findings import Finding, Level
from spotctl.clouds.verdicts import refused

if TYPE_CHECKING:
    from spotctl.home.config import Settings


@dataclass(frozen=True, slots=True)
class CloudCheck:
    """A cloud's checks, how to tell offline whether the cloud is configured, and how to configure it."""

    name: str
    is_configured: Callable[[Settings], bool]
    check: Callable[[Settings], Iterator[Finding]]
    setup: str


def findings(settings: Settings) -> Iterator[Finding]:
    """Cloud by cloud; an error ends the checks of that cloud, not of the others."""
    for cloud in CLOUDS:
        if not cloud.is_configured(settings):
            yield Finding(cloud.name, "credentials", Level.NOTE, "not configured, so not checked", cloud.setup)
            continue
        try:
            yield from cloud.check(settings)
        except CloudError as error:
            yield refused(cloud.name, "access", error)


def _aws(settings: Settings) -> Iterator[Finding]:
    from spotctl.clouds.aws.doctor import findings

    return findings(settings)


def _gcp(settings: Settings) -> Iterator[Finding]:
    from spotctl.clouds.gcp.doctor import findings

    return findings(settings)


def _azure(settings: Settings) -> Iterator[Finding]:
    from spotctl.clouds.azure.doctor import findings

    return findings(settings)


def _aws_is_configured(_: Settings) -> bool:
    variables = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN")
    containers = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
    files = (
        Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"),
        Path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config"),
    )
    return _any_set(*variables, *containers) or any(file.expanduser().is_file() for file in files)


def _gcp_is_configured(settings: Settings) -> bool:
    folder = Path(os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud").expanduser()
    has_login = (folder / "application_default_credentials.json").is_file()
    return has_login or _any_set("GOOGLE_APPLICATION_CREDENTIALS") or settings.gcp_compute_endpoint is not None


def _azure_is_configured(settings: Settings) -> bool:
    folder = Path(os.environ.get("AZURE_CONFIG_DIR") or "~/.azure").expanduser()
    is_set = settings.azure_subscription is not None or settings.azure_management_endpoint is not None
    return is_set or (folder / "azureProfile.json").is_file() or _any_set("AZURE_CLIENT_ID", "AZURE_SUBSCRIPTION_ID")


def _any_set(*names: str) -> bool:
    return any(os.environ.get(name) for name in names)


CLOUDS = (
    CloudCheck("aws", _aws_is_configured, _aws, "run aws configure, or set AWS_PROFILE"),
    CloudCheck(
        "gcp",
        _gcp_is_configured,
        _gcp,
        "run gcloud auth application-default login, and set GOOGLE_CLOUD_PROJECT",
    ),
    CloudCheck("azure", _azure_is_configured, _azure, "run az login, and set AZURE_SUBSCRIPTION_ID"),
)
