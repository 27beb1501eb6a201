"""The needs of an AWS account, once: rights for launches, a bucket, the machines' role, quotas."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

from spotctl.agent.data.sets import FOLDER
from spotctl.clouds.aws.cloud import AwsSettings, partition_of
from spotctl.clouds.aws.doctor import document
from spotctl.clouds.aws.machine_types import shipped
from spotctl.clouds.aws.orders import pool_of
from spotctl.clouds.aws.session import AwsAnswer, AwsClient, AwsSession, Service
from spotctl.clouds.setup import SetupStep, step_of_calls
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG, installation_id

ROLE, POLICY = "spotctl", "spotctl-launcher"
_SSO = "AWSReservedSSO_"
_WAITING = ("PENDING", "CASE_OPENED", "APPROVED")

Client = Callable[[Service], AwsClient]


@contextmanager
def opened(
    settings: Settings, region: str, types: Sequence[str]
) -> Iterator[tuple[str, list[SetupStep], Mapping[str, object]]]:
    """The account, its steps, and what jobs then say of it; clients are open in the `with` block.

    Raises `CloudError` if no credentials are found.
    """
    session = AwsSession(AwsSettings())
    region = region or session.sign_in() or ""
    if not region:
        raise BadRequest("aws: no region is configured; name one: --region us-east-1")
    with ExitStack() as stack:

        @cache
        def client(service: Service) -> AwsClient:
            return stack.enter_context(session.client(service, region))

        who = client("sts").call("GetCallerIdentity")
        account = str(who["Account"])
        bucket = f"spotctl-{account}-{region}"
        steps = _Steps(client, settings, account, region, bucket)
        rows = [*steps.launcher(str(who["Arn"])), steps.bucket_step(), *steps.role()]
        rows += [row for name in types for row in steps.quotas(name)]
        facts = {"identity": {"aws": ROLE}, "checkpoint": {"path": f"s3://{bucket}/JOB/"}}
        yield account, rows, facts


class _Steps:
    """The rows of an account."""

    def __init__(
        self, client: Client, settings: Settings, account: str, region: str, bucket: str
    ) -> None:
        self._client, self._settings = client, settings
        self._account, self._region, self._bucket = account, region, bucket
        self._partition, _ = partition_of(region)
        self._tags = [{"Key": INSTALLATION_TAG, "Value": installation_id(settings.home)}]

    def launcher(self, arn: str) -> Iterator[SetupStep]:
        """The policy of `spotctl doctor --policy aws`, for the user or role that is signed in."""
        own = f"arn:{self._partition}:iam::{self._account}:policy/{POLICY}"
        named, iam = {"PolicyArn": own}, self._client("iam")
        document = {"PolicyDocument": self._rent_policy()}

        def is_same() -> bool | None:
            version = iam.call("GetPolicy", **named)["Policy"]["DefaultVersionId"]
            kept = iam.call("GetPolicyVersion", **named, VersionId=version)["PolicyVersion"]
            return _is_same(document["PolicyDocument"], "Document", kept)

        def without_old_versions(operation: str, **given: object) -> None:
            """AWS keeps five versions at most, and deletes no policy that has more than one."""
            pages = iam.pages("ListPolicyVersions", "Versions", **named)
            for row in [row for page in pages for row in page["Versions"]]:
                if not row["IsDefaultVersion"]:
                    iam.call("DeletePolicyVersion", **named, VersionId=row["VersionId"])
            iam.call(operation, **named, **given)

        yield self._step(
            f"policy {POLICY}",
            f"policy {POLICY}, which allows launches",
            is_same,
            [("CreatePolicy", {"PolicyName": POLICY, **document, "Tags": True})],
            None,
        )._replace(
            undo=partial(without_old_versions, "DeletePolicy"),
            renew=partial(
                without_old_versions, "CreatePolicyVersion", **document, SetAsDefault=True
            ),
        )

        kind, _, path = arn.rpartition(":")[2].partition("/")
        name = path.split("/")[0] if kind == "assumed-role" else path.rpartition("/")[2]
        # The owner may do everything, roles of Identity Center are changed there, and others who
        # sign in are no users.
        if kind not in ("user", "assumed-role") or name.startswith(_SSO):
            return
        noun = "Role" if kind == "assumed-role" else "User"
        holder = {f"{noun}Name": name}
        attached = {**holder, "PolicyArn": own}

        def is_attached() -> bool:
            listed = self._client("iam").pages(
                f"ListAttached{noun}Policies", "AttachedPolicies", **holder
            )
            return any(
                row["PolicyArn"] == own for page in listed for row in page["AttachedPolicies"]
            )

        yield self._step(
            f"policy {POLICY} of {name}",
            f"that policy for {noun.lower()} {name}, which is signed in",
            is_attached,
            [(f"Attach{noun}Policy", attached)],
            [(f"Detach{noun}Policy", attached)],
        )
        inline = {**holder, "PolicyName": f"bucket-{self._bucket}"}
        text = self._bucket_policy("s3:GetBucketLocation")
        yield self._step(
            f"bucket {self._bucket} of {name}",
            f"right of {noun.lower()} {name} to use s3://{self._bucket}",
            (f"Get{noun}Policy", inline),
            [(f"Put{noun}Policy", {**inline, "PolicyDocument": text})],
            [(f"Delete{noun}Policy", inline)],
            is_same=partial(_is_same, text, "PolicyDocument"),
        )

    def bucket_step(self) -> SetupStep:
        """A bucket that only the account reads."""
        named = {"Bucket": self._bucket}
        place: dict[str, Any] = {}
        if self._region != "us-east-1":
            place["CreateBucketConfiguration"] = {"LocationConstraint": self._region}
        closed = dict.fromkeys(
            ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"),
            True,
        )
        return self._step(
            f"bucket {self._bucket}",
            f"bucket s3://{self._bucket} for checkpoints and outputs, closed to the public",
            ("GetBucketLocation", named),
            [
                ("CreateBucket", {**named, **place}),
                ("PutPublicAccessBlock", {**named, "PublicAccessBlockConfiguration": closed}),
            ],
            [("DeleteBucket", named)],
            service="s3",
        )

    def role(self) -> Iterator[SetupStep]:
        """The machines' role: the bucket, and rights to rent for a runner that lives on one."""
        service = "ec2.amazonaws.com" + (".cn" if self._partition == "aws-cn" else "")
        trust = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
        named = {"RoleName": ROLE}
        yield self._step(
            f"role {ROLE}",
            f"role {ROLE}, which machines get",
            ("GetRole", named),
            [("CreateRole", {**named, "AssumeRolePolicyDocument": _document(trust), "Tags": True})],
            [("DeleteRole", named)],
        )
        documents = {
            f"bucket-{self._bucket}": (self._bucket_policy(), f"use s3://{self._bucket}"),
            "rent": (self._rent_policy(), "rent further machines"),
        }
        for name, (text, why) in documents.items():
            inline = {**named, "PolicyName": name}
            yield self._step(
                f"role {ROLE} policy {name}",
                f"the role's right to {why}",
                ("GetRolePolicy", inline),
                [("PutRolePolicy", {**inline, "PolicyDocument": text})],
                [("DeleteRolePolicy", inline)],
                is_same=partial(_is_same, text, "PolicyDocument"),
            )

        profile = {"InstanceProfileName": ROLE}
        yield self._step(
            f"instance profile {ROLE}",
            f"instance profile {ROLE}, by which machines get the role",
            ("GetInstanceProfile", profile),
            [
                ("CreateInstanceProfile", {**profile, "Tags": True}),
                ("AddRoleToInstanceProfile", {**profile, **named}),
            ],
            [
                ("RemoveRoleFromInstanceProfile", {**profile, **named}),
                ("DeleteInstanceProfile", profile),
            ],
        )

    def quotas(self, instance_type: str) -> Iterator[SetupStep]:
        """Room for one machine of a type, as spot and on demand."""
        pool = pool_of(instance_type)
        sizes = (each.vcpus for each in shipped() if each.name == instance_type)
        vcpus = next(sizes, None)
        if pool is None or vcpus is None:
            problem = f"--type {instance_type}: is no known type of AWS"
            raise BadRequest(f"{problem}; spotctl prices best lists some")
        for spot in (True, False):
            code = pool.code(spot=spot)
            if not code:
                continue
            named = {"ServiceCode": "ec2", "QuotaCode": code}
            kind = "spot" if spot else "on-demand"
            yield self._step(
                f"quota {code} {self._region} {vcpus}",
                f"request for {vcpus} vCPUs of {kind} machines of {pool.name} in {self._region}; "
                "AWS answers within days",
                partial(self._has_room, named, vcpus),
                [("RequestServiceQuotaIncrease", {**named, "DesiredValue": float(vcpus)})],
                None,
                service="service-quotas",
            )

    def _has_room(self, named: Mapping[str, str], vcpus: int) -> bool:
        ask = self._client("service-quotas")
        if float(ask.call("GetServiceQuota", **named)["Quota"]["Value"]) >= vcpus:
            return True
        listed = "ListRequestedServiceQuotaChangeHistoryByQuota"
        pages = ask.pages(listed, "RequestedQuotas", **named)
        rows = [row for page in pages for row in page["RequestedQuotas"]]
        return any(row["Status"] in _WAITING and row["DesiredValue"] >= vcpus for row in rows)

    def _rent_policy(self) -> str:
        return json.dumps(document("aws", self._settings, self._region))

    def _bucket_policy(self, *more: str) -> str:
        """The right to everything in the bucket, except for data folders, which launchers alone
        write; they have `more` rights."""
        place = f"arn:{self._partition}:s3:::{self._bucket}"
        may = ["s3:*Object", "s3:ListBucket*", "s3:AbortMultipartUpload", *more]
        changes = ["s3:PutObject", "s3:DeleteObject"]
        denied = {"Effect": "Deny", "Action": changes, "Resource": f"{place}/{FOLDER}/*"}
        return _document(
            {"Effect": "Allow", "Action": may, "Resource": [place, f"{place}/*"]},
            *(() if more else (denied,)),
        )

    def _step(
        self,
        name: str,
        what: str,
        look: tuple[str, Mapping[str, Any]] | Callable[[], bool | None],
        make: Sequence[tuple[str, dict[str, Any]]],
        undo: Sequence[tuple[str, Mapping[str, Any]]] | None,
        service: Service = "iam",
        **options: Any,  # noqa: ANN401 - those of `step_of_calls`
    ) -> SetupStep:
        """A row of calls of one service."""
        for _, given in make:
            if given.get("Tags") is True:
                given["Tags"] = self._tags
        send = partial(self._send, service)
        step = step_of_calls(send, name, what, look, make, undo, **options)
        return step._replace(
            commands=tuple(_command(service, self._region, *call) for call in make)
        )

    def _send(self, service: Service, operation: str, given: Mapping[str, Any]) -> AwsAnswer:
        return self._client(service).call(operation, **given)


def _is_same(text: str, key: str, kept: Mapping[str, Any]) -> bool | None:
    """Whether a policy that exists is as it would be made; None if not."""
    return kept[key] == json.loads(text) or None


def _document(*statements: Mapping[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def _command(service: Service, region: str, operation: str, given: Mapping[str, Any]) -> str:
    """A call as AWS's command line writes it."""
    words = ["aws", "s3api" if service == "s3" else service, _dashed(operation)]
    if service in ("s3", "service-quotas"):
        words += ["--region", region]
    for name, value in given.items():
        text = value if isinstance(value, str) else json.dumps(value)
        words += [f"--{_dashed(name)}", text]
    return shlex.join(words)


def _dashed(name: str) -> str:
    """`PutRolePolicy` as `put-role-policy`."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]
