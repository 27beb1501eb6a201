"""Checks of AWS: identity, clock, permissions and quotas.

Every permission of the printed policy is tried, by dry runs and reads, which change nothing. An
order without a machine needs an image, and an action on the installation's own resources needs such
a resource. What cannot be tried has a reason.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final

from pricing_data.errors import (
    AccessDenied,
    NoAnswer,
    RateLimited,
    RequestRejected,
    UnknownResource,
)
from spotctl.clouds.aws.cloud import (
    ACCOUNT,
    PRICE_LIST_REGION,
    AwsMachineSettings,
    AwsSettings,
    partition_of,
)
from spotctl.clouds.aws.orders import STANDARD, Ec2Hardware, Row, parameter_for, raise_command
from spotctl.clouds.aws.permissions import (
    BUY,
    GROUP,
    IMAGE,
    KINDS,
    LOOK,
    MACHINES,
    PLACEMENT,
    PRICES,
    ROLE,
    TAG,
    TAGGED_AT_PURCHASE,
    TRIAL_POLICY,
    TRIAL_ROLE_POLICY,
    ResourceKind,
    policy,
)
from spotctl.clouds.aws.session import AwsAnswer, AwsClient, AwsSession, Service
from spotctl.clouds.doctor import TIMEOUT_SECONDS, Finding, Level, permissions, quota, skew
from spotctl.clouds.errors import AT_A_TIME, Answers
from spotctl.home import account_quotas
from spotctl.home.config import Settings, is_traced
from spotctl.home.installation import INSTALLATION_TAG
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.home.wall_clock import wall_us

SETUP = ACCOUNT.setup
_ELSEWHERE: Mapping[Service, str] = {"pricing": PRICE_LIST_REGION}
_QUOTAS = {"spot quota": STANDARD.spot, "on-demand quota": STANDARD.on_demand}


is_configured = partial(is_traced, account=ACCOUNT)


def findings(settings: Settings, answers: Answers) -> Iterator[Finding]:
    """Raises `CloudError` if further checks are impossible."""
    session = AwsSession(AwsSettings(timeout_seconds=TIMEOUT_SECONDS, max_attempts=2), answers)
    region = session.sign_in()
    with session.client("sts", region) as sts:
        identity = sts.call("GetCallerIdentity")
    who = f"account {identity['Account']} as {identity['Arn']}"
    yield Finding("aws", "credentials", Level.GOOD, who)
    headers = identity["ResponseMetadata"]["HTTPHeaders"]
    yield skew("aws", headers["date"])

    if region is None:
        detail = "none is configured, so permissions and quotas were not checked"
        cure = "set AWS_DEFAULT_REGION, or region in ~/.aws/config"
        yield Finding("aws", "region", Level.NOTE, detail, cure)
        return

    with ExitStack() as stack:

        @cache
        def client(service: Service) -> AwsClient:
            return stack.enter_context(session.client(service, region, _ELSEWHERE.get(service, "")))

        pool = stack.enter_context(ThreadPoolExecutor(len(_QUOTAS), "aws-quota"))
        ask = client("service-quotas").call
        limits = {
            what: pool.submit(ask, "GetServiceQuota", ServiceCode="ec2", QuotaCode=code)
            for what, code in _QUOTAS.items()
        }
        tried = tried_permissions(client, settings.table("aws", AwsMachineSettings))
        yield permissions("aws", tried.missing, len(tried.granted) + len(tried.missing))
        if tried.untried:
            yield Finding("aws", "permissions not tried", Level.NOTE, tried.reasons())
        for what, code in _QUOTAS.items():
            title = f"{what} in {region}"
            try:
                vcpus = float(limits[what].result()["Quota"]["Value"])
                spot, unit = code == STANDARD.spot, QuotaUnit.VCPUS
                family = STANDARD.family(spot=spot)
                stated = Quota("aws", region, family, int(vcpus), unit, spot=spot)
                account_quotas.keep(settings, [stated], wall_us())
                yield quota("aws", title, vcpus, raise_command(code, region))
            except AccessDenied as error:
                yield quota("aws", title, None, f"{error.problem}; {error.cure}")
            except (UnknownResource, RequestRejected, RateLimited) as error:
                yield quota("aws", title, None, error.problem)


def document(name: str, settings: Settings, region: str = "") -> dict[str, Any]:
    """A policy, with the names of resources and services in the partition of a region: this one, or
    the one that is configured."""
    chosen = settings.table("aws", AwsMachineSettings)
    documents = {"aws-try": TRIAL_POLICY, "aws-try-role": TRIAL_ROLE_POLICY}
    made = documents.get(name) or policy(chosen.kms_key, chosen.roles)
    variables = ("AWS_REGION", "AWS_DEFAULT_REGION")
    named = [region, *chosen.regions, *(os.environ.get(variable, "") for variable in variables)]
    partition, _ = partition_of(next(filter(None, named), ""))
    text = json.dumps(made).replace("arn:aws:", f"arn:{partition}:")
    if partition == "aws-cn":
        text = text.replace('"ec2.amazonaws.com"', '"ec2.amazonaws.com.cn"')
    renamed: dict[str, Any] = json.loads(text)
    return renamed


POLICIES = {name: partial(document, name) for name in ("aws", "aws-try", "aws-try-role")}


NAME: Final = "spotctl-doctor"
_TYPE: Final = "t3.micro"
_TAGS = [{"Key": INSTALLATION_TAG, "Value": NAME}]
"""A tag as on everything that is bought: the policy allows nothing without it."""
_OURS = [{"Name": "tag-key", "Values": [INSTALLATION_TAG]}]
_NO_IMAGE = "ami-00000000000000000"
_RULE = [
    {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "203.0.113.7/32"}]}
]

_WOULD_SUCCEED = "DryRunOperation"
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_NAMED = re.compile(r"is not authorized to perform: ([\w-]+:\w+)")
"""Newer answers of EC2 name the action that is missing: an order may fail because of its tags or
its role."""

_NO_DRY_RUN = "there is no dry run, and only an account's first spot machine needs it"
_KEYS = "a key may allow it to EC2 alone, on your behalf"
_NO_SUCH_RESOURCE = "nothing of an installation exists on which it could be tried"

NEVER_TRIED: Mapping[str, str] = {
    "iam:CreateServiceLinkedRole": _NO_DRY_RUN,
    **{
        action: _KEYS
        for statement in policy("any")["Statement"]
        for action in statement["Action"]
        if action.startswith("kms:")
    },
}
"""Permissions that cannot be tried at all, with the reasons."""

_SUBNETS = "ec2:DescribeSubnets"
_LISTED = {_SUBNETS, *(f"ec2:{kind.describe}" for kind in KINDS)}
"""Tried by real lists, whose answers are needed."""
_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    # Without a filter these would describe everything that AWS offers.
    "ec2:DescribeImages": {"Owners": ["self"]},
    "ec2:DescribeInstanceTypeOfferings": {
        "Filters": [{"Name": "instance-type", "Values": [_TYPE]}]
    },
    "ec2:DescribeInstanceTypes": {"InstanceTypes": [_TYPE]},
    "ec2:DescribeSpotPriceHistory": {"InstanceTypes": [_TYPE], "MaxResults": 5},
    "ec2:GetSpotPlacementScores": {
        "InstanceTypes": [_TYPE],
        "TargetCapacity": 1,
        "SingleAvailabilityZone": True,
    },
    "pricing:GetProducts": {
        "ServiceCode": "AmazonEC2",
        "Filters": [
            {"Type": "TERM_MATCH", "Field": name, "Value": value}
            for name, value in (("instanceType", _TYPE), ("regionCode", PRICE_LIST_REGION))
        ],
        "MaxResults": 1,
    },
    "servicequotas:GetServiceQuota": {"ServiceCode": "ec2", "QuotaCode": STANDARD.spot},
}
_SERVICES: Mapping[str, Service] = {
    "pricing": "pricing",
    "servicequotas": "service-quotas",
    "ssm": "ssm",
    "ec2": "ec2",
}


def tried_permissions(
    client: Callable[[Service], AwsClient], settings: AwsMachineSettings
) -> Tried:
    """Tries the permissions of `policy` in one region; `client` gives the client of a service
    there.
    """
    tried = Tried(client)
    trials: list[Callable[[], object]] = [partial(tried.own, kind) for kind in KINDS]
    for action in sorted((LOOK | PRICES) - _LISTED):
        dry_run = {"DryRun": True} if action.startswith("ec2:") else {}
        trials.append(partial(tried.attempt, action, **_ARGUMENTS.get(action, {}), **dry_run))

    with ThreadPoolExecutor(AT_A_TIME, "aws-permission") as pool:
        # An order takes several calls, one after another: it begins first.
        asked: list[Future[object]] = [pool.submit(tried.order, settings, pool)]
        asked += [pool.submit(trial) for trial in trials]
        for trial in asked:
            trial.result()

    tried.missing.sort()
    for statement in policy(settings.kms_key, settings.roles)["Statement"]:
        for action in statement["Action"]:
            tried.leave(action, NEVER_TRIED.get(action, _NO_SUCH_RESOURCE))

    return tried


@dataclass(slots=True)
class Tried:
    """Tries permissions, and keeps the outcome for each: granted, missing, or why it was not
    tried."""

    client: Callable[[Service], AwsClient]
    granted: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    untried: dict[str, str] = field(default_factory=dict)

    def grant(self, action: str) -> None:
        self.untried.pop(action, None)
        if action not in self.missing:
            self.granted.add(action)

    def leave(self, action: str, reason: str) -> None:
        if action not in self.granted and action not in self.missing:
            self.untried.setdefault(action, reason)

    def reasons(self) -> str:
        """The permissions that were not tried, by reason."""
        by_reason: dict[str, list[str]] = {}
        for action, reason in sorted(self.untried.items()):
            by_reason.setdefault(reason, []).append(action)
        return "; ".join(f"{', '.join(actions)}: {reason}" for reason, actions in by_reason.items())

    def attempt(self, action: str, judged: str = "", /, **arguments: object) -> AwsAnswer:
        """One call; its answer is empty if it was a dry run or failed. `judged` is the permission
        that is tried with the call, if that is not the call's own."""
        service, _, operation = action.partition(":")
        judged = judged or action
        try:
            answer = self.client(_SERVICES[service]).call(operation, **arguments)
        except AccessDenied as error:
            if error.code not in _DENIED:
                raise
            named = _NAMED.search(str(error.__cause__))
            lacking = named[1] if named else judged
            self.untried.pop(lacking, None)
            self.granted.discard(lacking)
            if lacking not in self.missing:
                self.missing.append(lacking)
            self.leave(judged, f"{lacking} is missing")
        except (RateLimited, NoAnswer) as error:
            self.leave(judged, f"AWS did not answer ({error.code or 'no answer'})")
        except (RequestRejected, UnknownResource) as error:
            if error.code == _WOULD_SUCCEED:
                self.grant(judged)
            else:
                self.leave(judged, f"AWS refused the trial for another reason ({error.code})")
        else:
            self.grant(judged)
            return answer

        return {}

    def own(self, kind: ResourceKind) -> None:
        """Lists what installations have of a kind, and tries on the first of it what is allowed on
        that only.
        """
        state = [{"Name": kind.state[0], "Values": list(kind.state[1])}] if kind.state else []
        rows: Sequence[Row] = self.attempt(f"ec2:{kind.describe}", Filters=[*_OURS, *state]).get(
            kind.holding, ()
        )
        if kind is MACHINES:
            rows = [machine for reservation in rows for machine in reservation["Instances"]]
        if not rows:
            return

        id_ = rows[0][kind.id]
        removed = {kind.argument: [id_] if kind.argument.endswith("Ids") else id_}
        self.attempt(f"ec2:{kind.remove}", **removed, DryRun=True)
        if kind is MACHINES:
            self.attempt("ec2:GetConsoleOutput", InstanceId=id_, DryRun=True)
        elif kind.argument == "GroupId":
            for name in ("Authorize", "Revoke"):
                self.attempt(
                    f"ec2:{name}SecurityGroupIngress", GroupId=id_, IpPermissions=_RULE, DryRun=True
                )

    def order(self, settings: AwsMachineSettings, pool: Executor) -> None:
        """Tries an order with its tags, its groups and its role."""
        parameter = pool.submit(
            self.attempt, IMAGE, Name=parameter_for(Ec2Hardware(_TYPE, "x86_64"))
        )

        # Machines would be in a subnet of the settings, else in a default one.
        filters = (
            {"subnet-id": list(settings.subnets)}
            if settings.subnets
            else {"default-for-az": ["true"]}
        )

        asked = [{"Name": name, "Values": values} for name, values in filters.items()]
        subnets: Sequence[Row] = self.attempt(_SUBNETS, Filters=asked).get("Subnets", ())
        subnet = subnets[0] if subnets else None

        image = parameter.result().get("Parameter", {}).get("Value", _NO_IMAGE)
        order = {
            "ImageId": image,
            "MinCount": 1,
            "MaxCount": 1,
            "InstanceType": _TYPE,
            "InstanceMarketOptions": {"MarketType": "spot"},
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": _TAGS} for kind in TAGGED_AT_PURCHASE
            ],
            "DryRun": True,
            **({"SubnetId": subnet["SubnetId"]} if subnet else {}),
        }

        group = {
            "GroupName": NAME,
            "Description": NAME,
            **({"VpcId": subnet["VpcId"]} if subnet else {}),
        }

        tagged = [{"ResourceType": "security-group", "Tags": _TAGS}]
        near = [{"ResourceType": "placement-group", "Tags": _TAGS}]
        close = {
            "GroupName": NAME,
            "Strategy": "cluster",
            "TagSpecifications": near,
            "DryRun": True,
        }

        groups = [
            pool.submit(self.attempt, GROUP, **group, TagSpecifications=tagged, DryRun=True),
            pool.submit(self.attempt, PLACEMENT, **close),
        ]
        self.attempt(BUY, **order)
        for trial in groups:
            trial.result()

        if BUY not in self.granted:
            for action in (TAG, ROLE):
                self.leave(action, f"it is tried with {BUY}")
            return

        self.grant(TAG)
        for role in settings.roles:
            self.attempt(BUY, ROLE, **order, IamInstanceProfile={"Name": role})
