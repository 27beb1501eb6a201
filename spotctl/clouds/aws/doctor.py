"""Checks of AWS: identity, clock, permissions (by dry runs, which change nothing) and quotas."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pricing_data.errors import AccessDenied, RateLimited, RequestRejected, UnknownResource
from spotctl.clouds import verdicts
from spotctl.clouds.aws.access import AwsSettings
from spotctl.clouds.aws.permissions import LOOK, TAGGED_AT_PURCHASE, policy, trial_policy, trial_role_policy
from spotctl.clouds.aws.quotas import STANDARD, raise_command
from spotctl.clouds.aws.session import AwsSession
from spotctl.clouds.aws.settings import AwsMachineSettings
from spotctl.clouds.findings import Finding, Level
from spotctl.clouds.tags import INSTALLATION_TAG
from spotctl.clouds.verdicts import any_set, permissions, quota, skew
from spotctl.home import account_quotas
from spotctl.home.config import Settings
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.home.wall_clock import wall_us

SETUP = "run aws configure, or set AWS_PROFILE"
_NAME = "spotctl-doctor"
_TAGS = [{"Key": INSTALLATION_TAG, "Value": _NAME}]
"""A tag as on everything that is bought: the policy allows nothing without it."""

DRY_RUNS: Mapping[str, Mapping[str, Any]] = {
    **{name: {} for name in sorted(action.partition(":")[2] for action in LOOK)},
    # Without a filter these would describe everything that AWS offers.
    "DescribeImages": {"Owners": ["self"]},
    "DescribeInstanceTypeOfferings": {"Filters": [{"Name": "instance-type", "Values": ["t3.micro"]}]},
    "DescribeInstanceTypes": {"InstanceTypes": ["t3.micro"]},
    "RunInstances": {"ImageId": "ami-00000000000000000", "MinCount": 1, "MaxCount": 1, "InstanceType": "t3.micro"}
    | {
        "InstanceMarketOptions": {"MarketType": "spot"},
        "TagSpecifications": [{"ResourceType": kind, "Tags": _TAGS} for kind in TAGGED_AT_PURCHASE],
    },
    "CreateSecurityGroup": {
        "GroupName": _NAME,
        "Description": _NAME,
        "TagSpecifications": [{"ResourceType": "security-group", "Tags": _TAGS}],
    },
}
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
    session = AwsSession(AwsSettings(timeout_seconds=verdicts.TIMEOUT_SECONDS, max_attempts=2))
    region = session.sign_in()
    with session.client("sts", region) as sts:
        identity = sts.call("GetCallerIdentity")
    yield Finding("aws", "credentials", Level.GOOD, f"account {identity['Account']} as {identity['Arn']}")
    yield skew("aws", identity["ResponseMetadata"]["HTTPHeaders"]["date"])
    if region is None:
        detail = "none is configured, so permissions and quotas were not checked"
        yield Finding("aws", "region", Level.NOTE, detail, "set AWS_DEFAULT_REGION, or region in ~/.aws/config")
        return
    yield _permissions(session, region)
    yield from _quotas(session, region, settings)


def _permissions(session: AwsSession, region: str) -> Finding:
    missing = []
    with session.client("ec2", region) as ec2:
        for action, arguments in DRY_RUNS.items():
            try:
                ec2.call(action, DryRun=True, **arguments)
            except AccessDenied as error:
                if error.code != "UnauthorizedOperation":
                    raise
                missing.append(f"ec2:{action}")
            except (RequestRejected, UnknownResource):
                pass  # DryRunOperation means permitted; any other refusal is about the arguments, not the identity
    return permissions("aws", missing, len(DRY_RUNS))


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
