"""What is asked of AWS: who we are, what time it is, what we may do (by dry runs, which change nothing), quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pricing_data.sources.aws.failures import failures_of
from spotctl.doctor import verdicts
from spotctl.doctor.findings import Finding, Level
from spotctl.doctor.verdicts import permissions, quota, skew

if TYPE_CHECKING:
    from boto3.session import Session

    from spotctl.config import Settings

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
"""Those of the standard families (A, C, D, H, I, M, R, T, Z), in vCPUs, of a region."""


def findings(_: Settings) -> Iterator[Finding]:
    """Raises `SourceError` where nothing more can be asked."""
    from boto3.session import Session

    with failures_of("-", "sts:GetCallerIdentity"):
        session = Session()
        region: str | None = session.region_name
        # Signing in needs a region, though any will do.
        answer = _client(session, "sts", region or "us-east-1").get_caller_identity()
    yield Finding("aws", "credentials", Level.GOOD, f"account {answer['Account']} as {answer['Arn']}")
    yield skew("aws", answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    if region is None:
        told = "none is configured; what depends on it was not asked"
        yield Finding("aws", "region", Level.NOTE, told, "set AWS_DEFAULT_REGION, or region in ~/.aws/config")
        return
    yield _permissions(session, region)
    yield from _quotas(session, region)


def _permissions(session: Session, region: str) -> Finding:
    from botocore import xform_name
    from botocore.exceptions import ClientError

    client, missing = _client(session, "ec2", region), []
    for action, arguments in DRY_RUNS.items():
        with failures_of(region, f"ec2:{action}"):
            try:
                getattr(client, xform_name(action))(DryRun=True, **arguments)
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code == "UnauthorizedOperation":
                    missing.append(f"ec2:{action}")
                elif code in ("AuthFailure", "RequestExpired"):
                    raise
                # DryRunOperation: it would be done. Anything else complains of the arguments, and not of who asks.
    return permissions("aws", missing, len(DRY_RUNS))


def _quotas(session: Session, region: str) -> Iterator[Finding]:
    from botocore.exceptions import ClientError

    client = _client(session, "service-quotas", region)
    for what, code in _QUOTAS.items():
        cure = f"aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {code}"
        with failures_of(region, "servicequotas:GetServiceQuota"):
            try:
                answer = client.get_service_quota(ServiceCode="ec2", QuotaCode=code)
                yield quota("aws", f"{what} in {region}", float(answer["Quota"]["Value"]), cure)
            except ClientError:
                yield quota("aws", f"{what} in {region}", None, "allow servicequotas:GetServiceQuota")


def _client(session: Session, service: str, region: str) -> Any:  # noqa: ANN401 - boto3's clients have no common type
    from botocore.config import Config

    config = Config(
        connect_timeout=verdicts.TIMEOUT_SECONDS,
        read_timeout=verdicts.TIMEOUT_SECONDS,
        retries={"total_max_attempts": 2},
    )
    # A service that is only known by its text has no overload of its own.
    return session.client(service, region_name=region, config=config)  # type: ignore[call-overload]
