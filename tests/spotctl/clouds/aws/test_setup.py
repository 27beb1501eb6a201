"""`spotctl setup aws` against moto's server, which checks signatures and permissions."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from boto3.session import Session

from spotctl.clouds.aws.session import AwsClient
from spotctl.clouds.aws.setup import POLICY, ROLE
from spotctl.home import config
from tests.servers.loopback import Reply, serving
from tests.spotctl.command_line import spotctl

REGION = "eu-west-1"
BUCKET = f"spotctl-123456789012-{REGION}"
ALL = {"Effect": "Allow", "Action": "*", "Resource": "*"}
WORDS = ("setup", "aws", "--region", REGION)


class Account:
    """An account of AWS, with users."""

    def __init__(self, url: str) -> None:
        self.url = url

    def client(self, service: str) -> Any:  # noqa: ANN401 - boto3's
        session: Any = Session("AKIDOWNER", "owner", region_name=REGION)
        return session.client(service, endpoint_url=self.url)

    def user(self, name: str, *statements: dict[str, Any]) -> dict[str, str]:
        """The variables of a new user with these permissions, from now on the only ones."""
        iam = self.client("iam")
        iam.create_user(UserName=name)
        document = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
        iam.put_user_policy(UserName=name, PolicyName="given", PolicyDocument=document)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return {
            "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
            "AWS_ENDPOINT_URL": self.url,
        }

    def checks(self, requests: int = 0) -> None:
        """From now on, or after this number of requests, permissions are checked."""
        httpx.post(f"{self.url}/moto-api/reset-auth", content=str(requests)).raise_for_status()

    def things(self) -> set[str]:
        """The things that setting up makes."""
        self.checks(10_000)
        iam = self.client("iam")
        found = {f"role {row['RoleName']}" for row in iam.list_roles()["Roles"]}
        for row in iam.list_policies(Scope="Local")["Policies"]:
            found.add(f"policy {row['PolicyName']}")
        for row in iam.list_instance_profiles()["InstanceProfiles"]:
            found.add(f"profile {row['InstanceProfileName']}")
        found |= {f"bucket {row['Name']}" for row in self.client("s3").list_buckets()["Buckets"]}
        self.checks()
        return found


EVERYTHING = {f"role {ROLE}", f"policy {POLICY}", f"profile {ROLE}", f"bucket {BUCKET}"}


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "SPOTCTL_AWS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    page = SimpleNamespace(answer=lambda _: Reply(200, b"203.0.113.7\n"))
    with (
        serving(page) as shown,
        subprocess.Popen(words, stderr=subprocess.DEVNULL) as server,
    ):
        monkeypatch.setenv("SPOTCTL_ADDRESS_URL", shown.url)
        url = f"http://127.0.0.1:{port}"
        while True:
            try:
                httpx.get(f"{url}/moto-api/data.json")
                break
            except httpx.TransportError:
                assert server.poll() is None
        yield Account(url)
        server.kill()


def signed_in(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_an_account_is_set_up_once_and_only_what_was_made_is_removed(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.client("iam").create_role(RoleName="other", AssumeRolePolicyDocument="{}")
    signed_in(monkeypatch, account.user("ada", ALL))
    account.checks()

    asked = spotctl(*WORDS)
    assert (asked.code, account.things()) == (2, {"role other"})
    assert f"would make  bucket s3://{BUCKET}" in asked.err

    made = spotctl(*WORDS, "--yes")
    assert made.code == 0, made.err
    assert account.things() == EVERYTHING | {"role other"}
    assert made.out.splitlines() == [
        f"identity: {{aws: {ROLE}}}",
        f"checkpoint: {{path: s3://{BUCKET}/JOB/}}",
    ]
    settings = config.load(dict(os.environ))
    assert settings.tables["aws"].ssh_from == ("203.0.113.7/32",)  # type: ignore[attr-defined]

    again = spotctl(*WORDS, "--yes")
    assert (again.code, "would make" in again.err, "made " in again.err) == (0, False, False)

    assert spotctl(*WORDS, "--undo").code == 0
    assert account.things() == {"role other"}
    assert not config.load(dict(os.environ)).tables["aws"].ssh_from  # type: ignore[attr-defined]


def test_a_machine_with_the_role_uses_the_bucket_and_not_the_data_of_launchers(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_in(monkeypatch, account.user("ada", ALL))
    assert spotctl(*WORDS, "--yes").code == 0
    iam, name = account.client("iam"), f"bucket-{BUCKET}"
    of_role = iam.get_role_policy(RoleName=ROLE, PolicyName=name)["PolicyDocument"]["Statement"]
    of_user = iam.get_user_policy(UserName="ada", PolicyName=name)["PolicyDocument"]["Statement"]
    machine, launcher = account.user("machine", *of_role), account.user("launcher", *of_user)
    account.checks()
    for who, may_write_data in ((machine, False), (launcher, True)):
        keys = who["AWS_ACCESS_KEY_ID"], who["AWS_SECRET_ACCESS_KEY"]
        s3 = Session(*keys, region_name=REGION).client("s3", endpoint_url=account.url)
        s3.put_object(Bucket=BUCKET, Key="job/checkpoint", Body=b"1")
        assert s3.get_object(Bucket=BUCKET, Key="job/checkpoint")["Body"].read() == b"1"
        refused = pytest.raises(s3.exceptions.ClientError, match=r"AccessDenied|Forbidden")
        with nullcontext() if may_write_data else refused:
            s3.put_object(Bucket=BUCKET, Key="spotctl-data/set", Body=b"1")


def test_what_is_there_stays_and_a_bucket_with_objects_is_left(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.client("iam").create_role(RoleName=ROLE, AssumeRolePolicyDocument="{}")
    signed_in(monkeypatch, account.user("ada", ALL))
    account.checks()
    made = spotctl(*WORDS, "--yes")
    assert f"is there    role {ROLE}" in made.err
    account.checks(10)
    account.client("s3").put_object(Bucket=BUCKET, Key="kept", Body=b"1")
    account.checks()

    undone = spotctl(*WORDS, "--undo")
    assert (undone.code, "BucketNotEmpty" in undone.err) == (1, True)
    assert account.things() == {f"role {ROLE}", f"bucket {BUCKET}"}


def test_older_policies_are_renewed_and_stay_as_what_was_there(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    iam, old = account.client("iam"), json.dumps({"Version": "2012-10-17", "Statement": [ALL]})
    own = iam.create_policy(PolicyName=POLICY, PolicyDocument=old)["Policy"]["Arn"]
    for _ in range(4):
        iam.create_policy_version(PolicyArn=own, PolicyDocument=old, SetAsDefault=True)
    iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument="{}")
    iam.put_role_policy(RoleName=ROLE, PolicyName="rent", PolicyDocument=old)
    signed_in(monkeypatch, account.user("ada", ALL))
    account.checks()

    made = spotctl(*WORDS, "--yes")
    assert made.code == 0, made.err
    assert f"is older    policy {POLICY}, which allows launches" in made.err
    assert "renewed the role's right to rent further machines" in made.err
    again = spotctl(*WORDS, "--yes")
    assert (again.code, "is older" in again.err, "would make" in again.err) == (0, False, False)
    account.checks(10)
    version = iam.get_policy(PolicyArn=own)["Policy"]["DefaultVersionId"]
    document = iam.get_policy_version(PolicyArn=own, VersionId=version)["PolicyVersion"]["Document"]
    assert document == iam.get_role_policy(RoleName=ROLE, PolicyName="rent")["PolicyDocument"]
    assert document["Statement"] != [ALL]
    account.checks()

    assert spotctl(*WORDS, "--undo").code == 0
    assert account.things() == {f"policy {POLICY}", f"role {ROLE}"}


def test_a_policy_of_several_versions_is_removed(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_in(monkeypatch, account.user("ada", ALL))
    assert spotctl(*WORDS, "--yes").code == 0
    own = f"arn:aws:iam::123456789012:policy/{POLICY}"
    text = json.dumps({"Version": "2012-10-17", "Statement": [ALL]})
    account.client("iam").create_policy_version(PolicyArn=own, PolicyDocument=text)
    account.checks()
    assert spotctl(*WORDS, "--undo").code == 0
    assert account.things() == set()


@pytest.mark.parametrize(
    "action", ["iam:CreatePolicy", "s3:CreateBucket", "iam:AddRoleToInstanceProfile"]
)
def test_a_missing_right_is_named_and_nothing_is_half_made(
    account: Account, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    denied = {"Effect": "Deny", "Action": action, "Resource": "*"}
    signed_in(monkeypatch, account.user("ada", ALL, denied))
    account.checks()
    refused = spotctl(*WORDS, "--yes")
    assert (refused.code, action in refused.err.splitlines()[-1]) == (5, True), refused.err
    assert account.things() == set()


def test_a_command_that_was_killed_is_repeated_and_undone(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    signed_in(monkeypatch, account.user("ada", ALL))
    account.checks()
    usual, calls = AwsClient.call, [0]
    changing = ("Create", "Put", "Attach", "Add")

    def call(self: AwsClient, operation: str, **arguments: object) -> Any:  # noqa: ANN401
        answer = usual(self, operation, **arguments)
        if operation.startswith(changing):
            calls[0] += 1
            # The call was made, and its answer is lost: each time one call further.
            if calls[0] in (1, 3, 6, 8):
                raise Killed
        return answer

    monkeypatch.setattr(AwsClient, "call", call)
    for _ in range(4):
        with pytest.raises(Killed):
            spotctl(*WORDS, "--yes")
    assert spotctl(*WORDS, "--yes").code == 0
    assert account.things() == EVERYTHING
    account.checks(10)
    # The second call of a thing was made, too.
    profile = account.client("iam").get_instance_profile(InstanceProfileName=ROLE)
    assert [role["RoleName"] for role in profile["InstanceProfile"]["Roles"]] == [ROLE]
    closed = account.client("s3").get_public_access_block(Bucket=BUCKET)
    assert all(closed["PublicAccessBlockConfiguration"].values())
    account.checks()
    assert spotctl(*WORDS, "--undo").code == 0
    assert account.things() == set()


def test_quotas_are_asked_for_once(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    signed_in(monkeypatch, account.user("ada", ALL))
    listed = spotctl(*WORDS, "--type", "p4d.24xlarge", "--print")
    assert "--quota-code L-7212CCBC --desired-value 96.0" in listed.out
    unknown = spotctl(*WORDS, "--type", "p99.large", "--print")
    assert (unknown.code, "p99.large: is no known type" in unknown.err) == (2, True)


def test_printed_commands_are_ones_of_awss_own_command_line(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is an operation of the SDK's model, with all that it needs, and no other."""
    signed_in(monkeypatch, account.user("ada", ALL))
    printed = spotctl(*WORDS, "--print")
    lines = printed.out.splitlines()
    assert len(lines) == 10
    for line in lines:
        program, service, command, *options = shlex.split(line)
        name = "".join(word.capitalize() for word in command.split("-"))
        model = account.client("s3" if service == "s3api" else service).meta.service_model
        shape = model.operation_model(name).input_shape
        given = {
            "".join(word.capitalize() for word in each[2:].split("-")) for each in options[::2]
        }
        assert program == "aws"
        assert set(shape.required_members) <= given <= {*shape.members, "Region"}
    assert account.things() == set()
