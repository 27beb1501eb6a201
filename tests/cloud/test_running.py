"""`python -m tests.cloud`: a person starts clouds, asks for their status, evicts machines, and ends
them.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.cloud.aws import OWNER
from tests.cloud.ec2_client import described, on_demand, order, ran, reachable
from tests.cloud.namespaces import namespaces
from tests.cloud.ssh import Ssh
from tests.waiting import eventually

pytestmark = pytest.mark.cloud

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with namespaces():
        pass
    folder = tmp_path_factory.mktemp("up")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "tests.cloud", *words]
        variables = {**os.environ, "SPOTCTL_TEST_CLOUD": str(folder)}
        return subprocess.run(line, capture_output=True, text=True, check=False, env=variables)

    yield run
    run("down")


def test_a_person_uses_a_cloud(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    up = command("up", "aws")
    assert up.returncode == 0, up.stderr
    for line in up.stdout.splitlines():
        name, _, value = shlex.split(line)[1].partition("=")
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", OWNER)
    assert command("up", "aws").stdout == up.stdout
    assert "aws is up already" in command("up", "gcp").stderr
    ssh = Ssh.in_folder(tmp_path)
    ec2: Any = boto3.Session().client("ec2")
    (spot,) = ran(
        ec2.run_instances(**reachable(ec2, order(ec2, UserData=ssh.user_data().decode())))
    )
    (other,) = ran(ec2.run_instances(**on_demand(ec2, ClientToken="t2")))
    address = next(one["PublicIpAddress"] for one in described(ec2) if one["InstanceId"] == spot)
    assert ssh.run(address, "hostname") == spot + "\n"

    def machines() -> dict[str, dict[str, object]]:
        status = json.loads(command("status", "--json").stdout)["clouds"]["aws"]
        return {one["id"]: one for one in status["machines"]}

    assert {one["ended"] for one in machines().values()} == {None}
    assert "is not a spot instance" in command("evict", other).stderr
    assert "status lists them" in command("evict", "i-0").stderr
    assert (
        command("evict", f"aws:us-east-1:{spot}", "--warning", "1s").stdout
        == f"aws: {spot} is evicted in 1s\n"
    )
    eventually(lambda: machines()[spot]["ended"] is not None)
    assert (
        f"{other}  aws/us-east-1/us-east-1a/c6i.large  on demand  running"
        in command("status").stdout
    )
    assert command("down").returncode == 0
    assert "no test cloud is up" in command("status").stderr
    ec2.close()


def test_bad_input_gets_one_line(command: Command) -> None:
    assert command("up", "ibm").stderr == (
        "tests.cloud: ibm cannot be started; choose from aws, gcp, azure\n"
    )
    assert command("evict", "i-0", "--warning", "soon").stderr.startswith(
        "tests.cloud: duration 'soon'"
    )
