"""What is asked of clouds, each through its own SDK, and of which only if it is set up here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pricing_data.errors import AccessDenied, MissingCredentials, SourceError
from spotctl.doctor.findings import Finding, Level

if TYPE_CHECKING:
    from spotctl.config import Settings

TIMEOUT_SECONDS = 5.0
MOST_SKEW_SECONDS = 120.0
"""AWS refuses what is signed five minutes off; well before that, leases end at other times than meant."""


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


def refused(cloud: str, what: str, error: SourceError) -> Finding:
    """What a failed question means; the error's message carries its cure behind the last colon or semicolon."""
    level = Level.NO_ACCESS if isinstance(error, MissingCredentials | AccessDenied) else Level.FAILS
    told, mark, cure = str(error).rpartition("; " if "; " in str(error) else ": ")
    return Finding(cloud, what, level, told if mark else cure, cure)


def skew(cloud: str, date: str) -> Finding:
    """How far this computer's clock is from that of a cloud, by the date of an answer that has just come."""
    behind = parsedate_to_datetime(date).timestamp() - time.time()
    told = f"{abs(behind):.0f} s {'behind' if behind > 0 else 'ahead of'} {cloud}"
    if abs(behind) > MOST_SKEW_SECONDS:
        return Finding(cloud, "clock", Level.FAILS, told, "set this computer's clock (timedatectl set-ntp true)")
    return Finding(cloud, "clock", Level.GOOD, told)


def permissions(cloud: str, missing: list[str], asked: int) -> Finding:
    """Which of the permissions that were asked about are lacking."""
    if not missing:
        return Finding(cloud, "permissions", Level.GOOD, f"all {asked} that were asked about")
    told = f"{len(missing)} of {asked} are lacking: {', '.join(missing)}"
    return Finding(cloud, "permissions", Level.NO_ACCESS, told, f"grant what spotctl doctor --policy {cloud} prints")


def quota(cloud: str, what: str, vcpus: float | None, cure: str) -> Finding:
    """How many vCPUs may run at once; `cure` is where one asks for more."""
    if vcpus is None:
        return Finding(cloud, what, Level.NOTE, "could not be read", cure)
    if vcpus < 1:
        return Finding(cloud, what, Level.FAILS, "no vCPU may run", cure)
    return Finding(cloud, what, Level.GOOD, f"{vcpus:,.0f} vCPUs")


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
