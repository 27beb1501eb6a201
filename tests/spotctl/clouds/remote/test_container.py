"""Commands in containers on rented machines, with images from a registry of this computer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spotctl.agent import layout
from spotctl.agent.container.payload import NODE, CheckpointPolicy, NodeTask, Payload
from spotctl.agent.container.podman import NO_CONTAINER, Container
from spotctl.clouds.link import AgentLink
from tests.cloud.machine_init import REGISTRY
from tests.cloud.namespaces import namespaces
from tests.servers.loopback import serving
from tests.servers.registry import Registry, layer_of
from tests.spotctl.clouds.remote.rented import Rented, renting
from tests.waiting import eventually

pytestmark = [pytest.mark.cloud, pytest.mark.slow]

SECRETS = {"TOKEN": "pl4nted 'secret'", "LOGIN": "user:pl4nted-password"}
PROGRAM = """
echo "$MODE in $(cat "$DATA_START") of $OF_IMAGE with $TOKEN, login '$LOGIN'"
trap 'echo told; echo 7 >"$SPOTCTL_CHECKPOINT_DIR/step"; exit 3' TERM
[ ! -e "$SPOTCTL_CHECKPOINT_DIR/step" ] || { echo "again"; echo trained >"$OUTPUT_MODEL/model"; exit 9; }
echo waiting
sleep 1000 &
wait
"""


@dataclass
class Started:
    one: Rented
    link: AgentLink
    image: str
    place: Path

    # Fields of a task.
    def run(self, name: str, action: str = "run", **changes: Any) -> int:  # noqa: ANN401
        """The exit code of a node's action in a container."""
        self.assign(name, action, **changes)
        eventually(lambda: self.link.status().exit_code is not None)
        return int(self.link.status().exit_code or 0)

    def assign(self, name: str, action: str = "run", **changes: Any) -> None:  # noqa: ANN401
        values = {
            "environment": {"MODE": "set up"},
            "cache": layout.CACHE,
            "container": self.container(),
            **changes,
        }
        variables = {layout.TASK_VARIABLE: NodeTask(name, **values).to_json()}
        words = (layout.PYTHON, "-P", "-c", NODE, action)
        self.link.assign(Payload(name, words, variables, layout.JOB_FOLDER, grace_seconds=60.0))

    def container(self, image: str = "", **changes: Any) -> Container:  # noqa: ANN401
        return Container(
            image or self.image, **{"login": "LOGIN", "variables": tuple(SECRETS), **changes}
        )

    @property
    def printed(self) -> str:
        return self.link.output().decode()


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    place, registry = tmp_path_factory.mktemp("containers"), Registry(SECRETS["LOGIN"])
    layer = layer_of(("sh", "cat", "sleep"))
    registry.add("app", layer)
    registry.add("private", layer)
    registry.add("foreign", layer, "s390x")
    (place / "job").mkdir()
    (place / "job" / "given").write_text("the job's folder")
    with namespaces() as host, serving(registry) as server:
        port = host.reach(int(server.url.rpartition(":")[2])).rpartition(":")[2]
        with renting(host, place, secrets=SECRETS, folder=place / "job") as one:
            one.start()
            link = one.prepared()
            one.sh(f"mkdir -m 777 {layout.ROOT}/kept")
            yield Started(one, link, f"{REGISTRY}:{port}/app", place)


def test_a_command_works_in_its_container_as_on_the_machine(started: Started) -> None:
    """Its folder, data, output, secrets and exit code; a notice's SIGTERM; and its checkpoint in
    the next container.
    """
    kept = f"{layout.ROOT}/kept"
    files: dict[str, Any] = {
        "data": {"DATA_START": f"{layout.JOB_FOLDER}/given"},
        "outputs": {"OUTPUT_MODEL": f"{kept}/models"},
        "checkpoint": CheckpointPolicy(f"{kept}/ckpt", 0.2, None, 0.1, 60.0),
        "run": PROGRAM,
        "setup": "MODE=unset; echo of the setup",
    }
    assert started.run("prepare", "prepare", **files) == 0, started.printed
    printed_before = len(started.printed)
    started.assign("run-1", **files)
    eventually(lambda: started.printed.endswith("waiting\n"))
    lines = started.one.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "--preserve-fds" in lines
    assert not [
        text for text in ("pl4nted", "set up", "of the setup", "OUTPUT_MODEL") if text in lines
    ]
    assert started.one.holders("pl4nted") <= {f"{layout.AGENT_FOLDER}/output"}
    words = (
        "sh",
        "-c",
        'echo "$OF_IMAGE $MODE $TOKEN"; cat given; [ ! -e /opt/spotctl/agent/agent.log ]',
    )
    done = started.link.exec(words)
    assert (done.exit_code, done.out.decode()) == (
        0,
        f"yes set up {SECRETS['TOKEN']}\nthe job's folder",
    ), done
    started.assign("rest")
    eventually(lambda: "told\n" in started.printed[printed_before:])
    assert started.run("run-2", **files) == 9
    said = f"set up in the job's folder of yes with {SECRETS['TOKEN']}, login ''"
    first, again = ["of the setup", said, "waiting", "told"], ["of the setup", said, "again"]
    # podman may remark that it could not pass a second signal on.
    printed = [line for line in started.printed.splitlines() if line in {*first, *again}]
    assert printed[-len(first + again) :] == [*first, *again]
    assert started.one.sh(f"cat {kept}/models/model") == "trained\n"
    assert started.one.sh("pgrep conmon") == ""


@pytest.mark.parametrize(
    ("image", "login", "reason"),
    [
        ("none", "LOGIN", "manifest unknown; correct the value of the login"),
        ("private", "TOKEN", "correct the value of the login"),
        ("foreign", "LOGIN", "it is for s390x processors, and this machine has"),
    ],
)
def test_an_image_that_cannot_be_used_is_refused_in_one_line(
    started: Started, image: str, login: str, reason: str
) -> None:
    name, before = started.image.replace("/app", f"/{image}"), len(started.printed)
    container = started.container(name, login=login)
    assert started.run(json.dumps([image, login]), "prepare", container=container) == NO_CONTAINER
    (line,) = started.printed[before:].splitlines()
    assert line.startswith(f"spotctl: image.container {name}: ")
    assert reason in line
    assert "pl4nted" not in line
