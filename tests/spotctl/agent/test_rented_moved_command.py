"""A command that loses its machine goes on from its checkpoint on the next one, through each
cloud's object store.

The machines have no keys: they ask the store with their own identity, from their cloud's metadata
service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spotctl.agent import layout
from spotctl.agent.container.payload import NODE, CheckpointPolicy, NodeTask, Payload
from tests.cloud.namespaces import Namespaces, namespaces
from tests.servers.loopback import Reply, Request, serving
from tests.servers.objects import AzureDialect, ObjectStore, S3Dialect, Stored, aws_signed, bearer
from tests.spotctl.clouds.remote.rented import renting
from tests.waiting import eventually

pytestmark = [pytest.mark.cloud, pytest.mark.slow]

PROGRAM = """
cat "$DATA_START"
step=$(cat "$SPOTCTL_CHECKPOINT_DIR/step" 2>/dev/null || echo 0)
echo "from $step"
while [ $step -lt 3 ]; do
  step=$((step + 1))
  echo $step >"$SPOTCTL_CHECKPOINT_DIR/.new" && mv "$SPOTCTL_CHECKPOINT_DIR/.new" "$SPOTCTL_CHECKPOINT_DIR/step"
  [ $step -ne 2 ] || [ -n "$AGAIN" ] || sleep 999
done
echo trained >"$OUTPUT_MODEL/model"
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Namespaces]:
    with namespaces() as started:
        yield started


def identity(request: Request) -> Reply:
    """The metadata services of the three clouds, as far as they prove who a machine is."""
    answers: dict[str, Callable[[], Reply]] = {
        "/latest/api/token": lambda: Reply(200, b"t"),
        "/latest/meta-data/placement/region": lambda: Reply(200, b"eu-west-1"),
        "/latest/meta-data/iam/security-credentials/": lambda: Reply(200, b"role"),
        "/latest/meta-data/iam/security-credentials/role": lambda: Reply.of_json(
            {
                "AccessKeyId": "A",
                "SecretAccessKey": "S",
                "Token": "T",
                "Expiration": "2100-01-01T00:00:00Z",
            }
        ),
        "/computeMetadata/v1/instance/service-accounts/default/token": lambda: Reply.of_json(
            {"access_token": "earned", "expires_in": 3600}
        ),
        "/metadata/identity/oauth2/token": lambda: Reply.of_json(
            {"access_token": "earned", "expires_in": "3600"}
        ),
    }
    return answers.get(request.path, lambda: Reply(404))()


@pytest.mark.parametrize(
    ("cloud", "location", "dialect", "variable"),
    [
        ("aws", "s3://bucket", S3Dialect, "AWS_ENDPOINT_URL_S3"),
        ("gcp", "gs://bucket", S3Dialect, "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE"),
        ("azure", "az://bucket@account", AzureDialect, "AZURE_STORAGE_BLOB_ENDPOINT"),
    ],
)
def test_a_command_goes_on_from_its_checkpoint(
    host: Namespaces,
    tmp_path: Path,
    cloud: str,
    location: str,
    dialect: type[ObjectStore],
    variable: str,
) -> None:
    kept = dialect("bucket", bearer("earned"))
    kept.objects["start/text"] = Stored(b"data\n")
    policy = CheckpointPolicy(f"{location}/ckpt", 0.2, None, 0.1, 60.0)

    def payload(number: int, **environment: str) -> Payload:
        data, outputs = (
            {"DATA_START": f"{location}/start/text"},
            {"OUTPUT_MODEL": f"{location}/models"},
        )
        task = NodeTask(
            f"run.{number}", 0, PROGRAM, "", environment, layout.CACHE, data, outputs, policy
        )
        variables = {layout.TASK_VARIABLE: task.to_json()}
        return Payload(f"run-{number}", (layout.PYTHON, "-P", "-c", NODE, "run"), variables)

    with serving(kept) as server:
        reach = "http://" + host.reach(int(server.url.rpartition(":")[2]))
        if cloud == "aws":
            kept.check = aws_signed(reach, "A", "S", "T", "eu-west-1")
        with renting(host, tmp_path, packages=("obstore",)) as first:
            first.start(
                payload(1, AGAIN=""), cloud=cloud, metadata=identity, environment={variable: reach}
            )
            first.prepared()
            eventually(lambda: any(key.endswith(".record") for key in kept.objects))
            eventually(lambda: b"2\n" in b"".join(one.content[:2] for one in kept.objects.values()))
        with renting(host, tmp_path, packages=("obstore",)) as second:
            second.start(
                payload(2, AGAIN="yes"),
                cloud=cloud,
                metadata=identity,
                environment={variable: reach},
            )
            link = second.prepared()
            eventually(lambda: link.status().exit_code is not None)
            assert (link.status().exit_code, link.output().decode().splitlines()[-2:]) == (
                0,
                ["data", "from 2"],
            )
        assert kept.objects["models/model"].content == b"trained\n"
