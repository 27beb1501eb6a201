"""Whole launches whose data, checkpoints and results are in object stores of other authors, which
check who asks.

S3 is moto in a process of its own, with authentication: the launcher has the keys of a user, and
machines those of their role, with the policy that `spotctl setup aws` makes. Blob Storage is Azurite (see
`tests.servers.azurite`). Everything else of the clouds is simulated as in other tests.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from boto3 import Session

from spotctl.agent.data.locations import MACHINE, StoreIdentity, place_of
from spotctl.agent.data.stores import Bucket
from tests.cloud.aws import AwsServer
from tests.cloud.aws_metadata import LOOPBACK_KEYS
from tests.cloud.azure import AzureServer
from tests.cloud.clouds import WHOLE_RUN, SimulatedCloud, simulated
from tests.cloud.laptop import Laptop
from tests.cloud.machine_init import REGISTRY
from tests.cloud.test_launch import running, spot
from tests.servers.azurite import LOCATION, AzuriteUser, azurite, new_token
from tests.servers.processes import listening
from tests.spotctl.command_line import spotctl

JOB = """\
name: counting
kind: command
run: sh count.sh
workdir: work
hours: 1h
identity: {{{cloud}: {identity}}}
data: {{corpus: corpus}}
checkpoint: {{path: {bucket}/counting/, every: 2s}}
outputs: {{result: {bucket}/result/}}
resources: {{clouds: [{cloud}], regions: [{region}], types: [{type}]{reliable}}}
"""
COUNT = """\
cd "$SPOTCTL_CHECKPOINT_DIR"
at=$(cat at 2>/dev/null || echo 0)
echo "$at" >>starts
while [ "$(wc -l <starts)" -lt 2 ]; do
  at=$((at + 1)); echo "$at" >new; mv new at; echo "at $at"; sleep 1
done
cat "$DATA_CORPUS/words" starts >"$OUTPUT_RESULT/read"
"""
"""Counts until it finds in its checkpoint that it was started before."""

RUNNERS = {"launcher": ("", ("--attached",)), "machine": (", reliable: {machines: 1}", ())}
"""Where the runner is: what a job says of it, and the words of a launch."""

_AUTHORITY = "etc/spotctl-test-authority.pem"
_ROLE = "machine"
_TRUST = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}]}'

pytestmark = [WHOLE_RUN, pytest.mark.cloud, pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class World:
    """A cloud whose laptops use a bucket of another author, and the bucket as the test sees it."""

    cloud: SimulatedCloud
    bucket: Bucket


@pytest.fixture(params=["s3", "azurite"])
def world(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[World]:
    make = _on_s3 if request.param == "s3" else _on_azurite
    yield from make(monkeypatch, tmp_path)


def _on_s3(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[World]:
    """AWS with a bucket in another account, whose keys the launcher and the role of the machines
    have.
    """
    moto = [sys.executable, "-m", "moto.server", "-p", "0"]
    with simulated("aws") as cloud, listening(moto, folder / "moto.log") as port:
        server, url = cloud.server, f"http://127.0.0.1:{port}"
        assert isinstance(server, AwsServer)
        root = Session("root", "root", region_name="us-east-1")
        iam, sts, s3 = (root.client(name, endpoint_url=url) for name in ("iam", "sts", "s3"))
        s3.create_bucket(Bucket="results")
        allow, deny = _policy_of_machines(url)
        iam.create_user(UserName="launcher")
        iam.put_user_policy(UserName="launcher", PolicyName="bucket", PolicyDocument=_policy(allow))
        role = iam.create_role(RoleName=_ROLE, AssumeRolePolicyDocument=_TRUST)["Role"]["Arn"]
        iam.put_role_policy(
            RoleName=_ROLE, PolicyName="bucket", PolicyDocument=_policy(allow, deny)
        )
        own = iam.create_access_key(UserName="launcher")["AccessKey"]
        keys: dict[str, str] = sts.assume_role(RoleArn=role, RoleSessionName="machine")[
            "Credentials"
        ]
        httpx.post(f"{url}/moto-api/reset-auth", content="0").raise_for_status()

        keys["Token"] = keys.pop("SessionToken")
        server.keys = {name: keys[name] for name in LOOPBACK_KEYS}
        server.variables["AWS_ENDPOINT_URL_S3"] = f"http://{cloud.host.reach(port)}"
        launchers = {
            "AWS_ENDPOINT_URL_S3": url,
            "AWS_ACCESS_KEY_ID": own["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": own["SecretAccessKey"],
        }
        # The launcher's identity is found once in a process; a machine's looks into the environment
        # each time.
        yield _world(cloud, "s3://results", launchers, MACHINE, monkeypatch)


def _policy_of_machines(url: str) -> list[object]:
    """The statements of the role that `spotctl setup aws` would make, for this bucket."""
    keys = {"AWS_ACCESS_KEY_ID": "root", "AWS_SECRET_ACCESS_KEY": "root", "AWS_ENDPOINT_URL": url}
    printed = spotctl("setup", "aws", "--region", "us-east-1", "--print", **keys)
    (line,) = (line for line in printed.out.splitlines() if "--policy-name bucket-" in line)
    words = shlex.split(line)
    bucket = words[words.index("--policy-name") + 1].removeprefix("bucket-")
    document = words[words.index("--policy-document") + 1].replace(bucket, "results")
    return list(json.loads(document)["Statement"])


def _policy(*statements: object) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def _on_azurite(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[World]:
    """Azure with a container for which tokens of the launcher and of machines are valid."""
    image = folder / "image"
    (image / "etc").mkdir(parents=True)
    with azurite(folder, REGISTRY) as store:
        # Before there are machines: their host copies the image.
        shutil.copy(store.certificate, image / _AUTHORITY)
        with simulated("azure", software=image) as cloud:
            server = cloud.server
            assert isinstance(server, AzureServer)
            server.fleet.new_storage_token = server.buckets.new_token = new_token
            cloud.host.reach(store.port)
            server.fleet.variables = {
                "AZURE_STORAGE_BLOB_ENDPOINT": store.account(REGISTRY),
                "SSL_CERT_FILE": f"/{_AUTHORITY}",
            }
            launchers = {
                "AZURE_STORAGE_BLOB_ENDPOINT": store.account(),
                "SSL_CERT_FILE": str(store.certificate),
            }
            yield _world(cloud, LOCATION, launchers, AzuriteUser(), monkeypatch)


def _world(
    cloud: SimulatedCloud,
    bucket: str,
    variables: Mapping[str, str],
    who: StoreIdentity,
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    """Laptops have these variables, as does the process of the test."""
    environment = {**cloud.environment, **variables}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    place = place_of(bucket, who)
    assert place is not None
    return World(replace(cloud, bucket=bucket, environment=environment), place.bucket)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_checkpoint_survives_a_killed_launcher_and_an_eviction(
    world: World, runner: str, tmp_path: Path
) -> None:
    """The second machine goes on where the checkpoint in the bucket ends; data and result pass
    through the bucket.
    """
    cloud, bucket, laptop = world.cloud, world.bucket, Laptop(tmp_path, world.cloud.environment)
    laptop.run(
        "prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type
    )
    reliable, words = RUNNERS[runner]
    values = {name: getattr(cloud, name) for name in ("identity", "bucket", "region", "type")}
    job = laptop.job(JOB.format(cloud=cloud.name, reliable=reliable, **values))
    (tmp_path / "work" / "count.sh").write_text(COUNT)
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "words").write_text("words\n")
    with laptop.launched("launch", job, *words, "--yes") as launched:
        launched.wait_for(lambda: bool(bucket.list("counting/node-0/")))
        launched.kill()
    with laptop.launched("resume", "counting", "--json") as resumed:
        before = bucket.list("counting/node-0/")
        resumed.wait_for(lambda: bucket.list("counting/node-0/") != before)
        (first,) = spot(cloud.server)
        cloud.server.evict(first.id, 5.0)
        code, out, err = resumed.ended()
    assert code == 0, (
        err,
        laptop.run("logs", "counting").stdout,
        laptop.run("status", "counting", "--json").stdout,
    )
    assert json.loads(out)["outcome"] == "done"
    read, first_start, second_start = b"".join(bucket.get("result/read")).decode().split()
    assert (read, first_start) == ("words", "0")
    assert int(second_start) > 0
    assert running(cloud.server) == []
    assert cloud.server.resources() == ()
