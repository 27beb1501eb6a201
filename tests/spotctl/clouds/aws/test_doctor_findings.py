"""What doctor finds of an account of AWS."""

from __future__ import annotations

import json
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.servers.aws import AwsFault, AwsWorld, action_of, ec2_error
from tests.servers.loopback import Reply
from tests.spotctl.clouds.gcp.test_doctor_findings import found, kept
from tests.spotctl.command_line import spotctl

pytestmark = pytest.mark.usefixtures("_nowhere_else")


def test_aws(aws: AwsWorld, tmp_path: Path) -> None:
    ended = spotctl("doctor", "aws", "--json")
    one = found(ended, "aws")
    # The settings are missing, and moto has no public images and no gateways.
    missing = {
        what: one.pop(what)["cure"]
        for what in ("ssh", "image", "route", "dry run", "profile spotctl")
    }
    assert (ended.code, ended.err, len(one) + len(missing)) == (1, "", len(ended.json["findings"]))
    assert missing["ssh"].startswith("set ssh_from in [aws]")
    assert missing["image"] == missing["dry run"] == "name an image of this region"
    assert missing["route"].startswith("add one (aws ec2 create-route")
    untried = one.pop("permissions not tried")
    assert (untried["level"], untried["cure"]) == ("note", None)
    assert "iam:CreateServiceLinkedRole: there is no dry run" in untried["told"]
    assert {what: each["level"] for what, each in one.items()} == dict.fromkeys(
        (
            "credentials",
            "clock",
            "permissions",
            "spot quota in us-east-1",
            "on-demand quota in us-east-1",
            "region us-east-1",
            "type t3.micro",
            "subnet in us-east-1a",
            "quota",
        ),
        "good",
    )
    assert one["spot quota in us-east-1"]["told"] == "640 vCPUs"
    family = "a+c+d+h+i+im+is+m+r+t+z"
    assert kept(tmp_path, spot=True) == [f"aws/us-east-1/{family}=640 vCPUs"]
    assert kept(tmp_path, spot=False) == [f"aws/us-east-1/{family} on demand=64 vCPUs"]
    assert "loopback" not in ended.out
    asked = {
        action_of(request): request for request in aws.server.requests if b"Action=" in request.body
    }
    changing = [name for name in asked if not name.startswith(("Describe", "Get"))]
    assert changing
    assert all(b"DryRun=true" in asked[name].body for name in changing)


@pytest.mark.parametrize(
    ("code", "status", "cause"),
    [
        ("AccessDeniedException", 400, "allow the IAM action servicequotas:GetServiceQuota"),
        ("TooManyRequestsException", 429, "Rate exceeded"),
        ("NoSuchResourceException", 400, "NoSuchResourceException"),
    ],
)
def test_a_quota_that_cannot_be_read_says_why(
    aws: AwsWorld, code: str, status: int, cause: str
) -> None:
    body = json.dumps({"__type": code, "message": "Rate exceeded"}).encode()
    aws.server.api.refusal = Reply(status, body, {"Content-Type": "application/x-amz-json-1.1"})  # type: ignore[attr-defined]
    finding = found(spotctl("doctor", "aws", "--json"), "aws")["spot quota in us-east-1"]
    assert (finding["level"], cause in finding["cure"]) == ("note", True)
    assert ("allow" in finding["cure"]) is (code == "AccessDeniedException")


def test_missing_aws_permissions_are_named(aws: AwsWorld) -> None:
    aws.breaks(AwsFault("/", ec2_error("UnauthorizedOperation", status=403), action="RunInstances"))
    ended = spotctl("doctor", "--json")
    assert ended.code == 5
    lacking = found(ended, "aws")["permissions"]
    assert lacking["told"] == "1 of 24 are missing: ec2:RunInstances"
    assert lacking["cure"] == "grant the policy from spotctl doctor --policy aws"


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidClientTokenId"])
def test_invalid_aws_credentials_are_no_access(aws: AwsWorld, code: str) -> None:
    error = (
        f"<ErrorResponse><Error><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>"
    )
    aws.breaks(AwsFault("/", Reply(403, error.encode(), {"Content-Type": "text/xml"}), times=9))
    ended = spotctl("doctor", "--json")
    assert ended.code == 5
    one = found(ended, "aws")["access"]
    assert (one["level"], bool(one["cure"])) == ("no access", True)


def test_a_quota_of_0_fails_and_no_region_is_a_note(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.server.api.vcpus["L-34B43A08"] = 0.0  # type: ignore[attr-defined]
    ended = spotctl("doctor", "--json")
    assert ended.code == 1
    assert "quota-code L-34B43A08" in found(ended, "aws")["spot quota in us-east-1"]["cure"]
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    ended = spotctl("doctor", "--json")
    assert (ended.code, found(ended, "aws")["region"]["level"]) == (0, "note")


def test_a_clock_that_is_wrong_fails(aws: AwsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    assert aws.server.url
    monkeypatch.setattr(
        "http.server.BaseHTTPRequestHandler.date_time_string", lambda *_: formatdate(0, usegmt=True)
    )
    ended = spotctl("doctor", "--json")
    one = found(ended, "aws")["clock"]
    assert (ended.code, one["level"], "ahead of aws" in one["told"]) == (1, "fails", True)
