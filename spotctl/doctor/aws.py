"""Checks of AWS: identity, clock, permissions (by dry runs, which change nothing) and quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pricing_data.clouds.aws import AwsSession
from pricing_data.clouds.settings import AwsSettings
from pricing_data.errors import AccessDenied, RateLimited, RequestRejected, UnknownResource
from spotctl.config import Settings
from spotctl.doctor import verdicts
from spotctl.doctor.findings import Finding, Level
from spotctl.doctor.verdicts import permissions, quota, skew

_NAME = "spotctl-doctor"
DRY_RUNS: Mapping[str, Mapping[str, Any]] = {
    "DescribeInstances": {},
    "DescribeSecurityGroups": {},
    "DescribeKeyPairs": {},
    "RunInstances": {"ImageId": "ami-00000000000000000", "MinCount": 1, "MaxCount": 1, "InstanceType": "t3.micro"},
    "CreateLaunchTemplate": {"LaunchTemplateName": _NAME, "LaunchTemplateData": {"InstanceType": "t3.micro"}},
    "CreateSecurityGroup": {"GroupName": _NAME, "Description": _NAME},
    "ImportKeyPair": {"KeyName": _NAME, "PublicKeyMaterial": b"ssh-ed25519 AAAA"},
}
_QUOTAS = {"spot quota": "L-34B43A08", "on-demand quota": "L-1216C47A"}
"""The quotas of the standard families (A, C, D, H, I, M, R, T, Z) in a region, in vCPUs."""


def findings(_: Settings) -> Iterator[Finding]:
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
    yield from _quotas(session, region)


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


def _quotas(session: AwsSession, region: str) -> Iterator[Finding]:
    with session.client("service-quotas", region) as quotas:
        for what, code in _QUOTAS.items():
            cure = f"aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {code}"
            try:
                answer = quotas.call("GetServiceQuota", ServiceCode="ec2", QuotaCode=code)
                yield quota("aws", f"{what} in {region}", float(answer["Quota"]["Value"]), cure)
            except (AccessDenied, UnknownResource, RequestRejected, RateLimited):
                yield quota("aws", f"{what} in {region}", None, "allow servicequotas:GetServiceQuota")
