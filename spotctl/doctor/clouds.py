"""What is asked of clouds, each through its own SDK, and of which only if it is set up here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pricing_data.errors import SourceError
from spotctl.doctor.findings import Finding, Level
from spotctl.doctor.verdicts import refused

if TYPE_CHECKING:
    from spotctl.config import Settings


@dataclass(frozen=True, slots=True)
class Cloud:
    """How it is known that a cloud is set up, without asking anybody, and what is then asked."""

    name: str
    is_set_up: Callable[[Settings], bool]
    ask: Callable[[Settings], Iterator[Finding]]
    set_up: str


def findings(settings: Settings) -> Iterator[Finding]:
    """Cloud by cloud; what one refuses ends the questions to it, not to the others."""
    for cloud in CLOUDS:
        if not cloud.is_set_up(settings):
            yield Finding(cloud.name, "credentials", Level.NOTE, "not set up here, and not asked", cloud.set_up)
            continue
        try:
            yield from cloud.ask(settings)
        except SourceError as error:
            yield refused(cloud.name, "access", error)


def _aws(settings: Settings) -> Iterator[Finding]:
    from spotctl.doctor.aws import findings

    return findings(settings)


def _gcp(settings: Settings) -> Iterator[Finding]:
    from spotctl.doctor.gcp import findings

    return findings(settings)


def _azure(settings: Settings) -> Iterator[Finding]:
    from spotctl.doctor.azure import findings

    return findings(settings)


def _aws_is_set_up(_: Settings) -> bool:
    variables = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN")
    containers = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
    files = (
        Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"),
        Path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config"),
    )
    return _any_set(*variables, *containers) or any(file.expanduser().is_file() for file in files)


def _gcp_is_set_up(settings: Settings) -> bool:
    folder = Path(os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud").expanduser()
    written = (folder / "application_default_credentials.json").is_file()
    return written or _any_set("GOOGLE_APPLICATION_CREDENTIALS") or settings.gcp_compute_endpoint is not None


def _azure_is_set_up(settings: Settings) -> bool:
    folder = Path(os.environ.get("AZURE_CONFIG_DIR") or "~/.azure").expanduser()
    chosen = settings.azure_subscription is not None or settings.azure_management_endpoint is not None
    return chosen or (folder / "azureProfile.json").is_file() or _any_set("AZURE_CLIENT_ID", "AZURE_SUBSCRIPTION_ID")


def _any_set(*names: str) -> bool:
    return any(os.environ.get(name) for name in names)


CLOUDS = (
    Cloud("aws", _aws_is_set_up, _aws, "aws configure, or set AWS_PROFILE"),
    Cloud("gcp", _gcp_is_set_up, _gcp, "gcloud auth application-default login, and set GOOGLE_CLOUD_PROJECT"),
    Cloud("azure", _azure_is_set_up, _azure, "az login, and set AZURE_SUBSCRIPTION_ID"),
)
