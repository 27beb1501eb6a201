"""Checks of AWS: identity, clock, permissions and quotas."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from pricing_data.errors import AccessDenied, RateLimited, RequestRejected, UnknownResource
from spotctl.clouds.aws.access import PRICE_LIST_REGION, AwsSettings
from spotctl.clouds.aws.permissions import policy, trial_policy, trial_role_policy
from spotctl.clouds.aws.quotas import STANDARD, raise_command
from spotctl.clouds.aws.session import AwsClient, AwsSession, Service
from spotctl.clouds.aws.settings import AwsMachineSettings
from spotctl.clouds.aws.tried_permissions import tried_permissions
from spotctl.clouds.doctor import TIMEOUT_SECONDS, Finding, Level, any_set, permissions, quota, skew
from spotctl.home import account_quotas
from spotctl.home.config import Settings
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.home.wall_clock import wall_us

SETUP = "run aws configure, or set AWS_PROFILE"
_ELSEWHERE: Mapping[Service, str] = {"pricing": PRICE_LIST_REGION}
_QUOTAS = {"spot quota": STANDARD.spot, "on-demand quota": STANDARD.on_demand}


def is_configured(_: Settings) -> bool:
    """See `DoctorPart`."""
    variables = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN")
    containers = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
    files = (
        Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"),
        Path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config"),
    )
    return any_set(*variables, *containers) or any(file.expanduser().is_file() for file in files)


def findings(settings: Settings) -> Iterator[Finding]:
    """Raises `CloudError` if further checks are impossible."""
    session = AwsSession(AwsSettings(timeout_seconds=TIMEOUT_SECONDS, max_attempts=2))
    region = session.sign_in()
    with session.client("sts", region) as sts:
        identity = sts.call("GetCallerIdentity")
    yield Finding("aws", "credentials", Level.GOOD, f"account {identity['Account']} as {identity['Arn']}")
    yield skew("aws", identity["ResponseMetadata"]["HTTPHeaders"]["date"])
    if region is None:
        detail = "none is configured, so permissions and quotas were not checked"
        yield Finding("aws", "region", Level.NOTE, detail, "set AWS_DEFAULT_REGION, or region in ~/.aws/config")
        return
    yield from _permissions(session, region, settings.table("aws", AwsMachineSettings))
    yield from _quotas(session, region, settings)


def _permissions(session: AwsSession, region: str, settings: AwsMachineSettings) -> Iterator[Finding]:
    with ExitStack() as stack:

        @cache
        def client(service: Service) -> AwsClient:
            return stack.enter_context(session.client(service, region, _ELSEWHERE.get(service, "")))

        tried = tried_permissions(client, settings)
    yield permissions("aws", tried.missing, len(tried.granted) + len(tried.missing))
    if tried.untried:
        yield Finding("aws", "permissions not tried", Level.NOTE, tried.reasons())


def _quotas(session: AwsSession, region: str, settings: Settings) -> Iterator[Finding]:
    with session.client("service-quotas", region) as quotas:
        for what, code in _QUOTAS.items():
            cure = raise_command(code, region)
            try:
                answer = quotas.call("GetServiceQuota", ServiceCode="ec2", QuotaCode=code)
                vcpus = float(answer["Quota"]["Value"])
                spot = code == STANDARD.spot
                stated = Quota("aws", region, STANDARD.family(spot=spot), int(vcpus), QuotaUnit.VCPUS, spot=spot)
                account_quotas.keep(settings, [stated], wall_us())
                yield quota("aws", f"{what} in {region}", vcpus, cure)
            except (AccessDenied, UnknownResource, RequestRejected, RateLimited):
                yield quota("aws", f"{what} in {region}", None, "allow servicequotas:GetServiceQuota")


def _policy(settings: Settings) -> dict[str, Any]:
    chosen = settings.table("aws", AwsMachineSettings)
    return policy(chosen.kms_key, chosen.roles)


POLICIES = {"aws": _policy, "aws-try": lambda _: trial_policy(), "aws-try-role": lambda _: trial_role_policy()}
