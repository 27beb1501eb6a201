"""The process behind `python -m tests.cloud`: clouds on one host of machines, and a socket for its
commands.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.cloud.api import ApiServer
from tests.cloud.host import MachineHost

SERVERS = {
    "aws": ("tests.cloud.aws", "AwsServer"),
    "gcp": ("tests.cloud.gcp", "GcpServer"),
    "azure": ("tests.cloud.azure", "AzureServer"),
}
_REPOSITORY = Path(__file__).parents[2]


class NotRunning(Exception):
    """No test cloud is up, or it cannot be started; the message says what to do."""


def folder() -> Path:
    """Where the socket and the log are; each user has one test cloud."""
    named = os.environ.get("SPOTCTL_TEST_CLOUD")
    return (
        Path(named) if named else Path(tempfile.gettempdir()) / f"spotctl-test-cloud-{os.geteuid()}"
    )


def start(clouds: Sequence[str]) -> None:
    """Starts the process, and returns when it takes commands."""
    folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    ready, told = os.pipe()
    with (folder() / "log").open("wb") as log:
        subprocess.Popen(
            [sys.executable, "-m", "tests.cloud.running", str(told), *clouds],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(told,),
            start_new_session=True,
            cwd=_REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(_REPOSITORY)},
        )
    os.close(told)
    with os.fdopen(ready, "rb") as answers:
        if answers.read() != b"ready":
            raise NotRunning(
                (folder() / "log").read_text().strip().rpartition("\n")[2] or "it ended at once"
            )


def ask(do: str, **arguments: Any) -> Any:  # noqa: ANN401  # what JSON can hold
    """The answer of the running process. NotRunning: there is none. ValueError: it refuses."""
    with closing(socket.socket(socket.AF_UNIX)) as link:
        try:
            link.connect(str(folder() / "control"))
        except OSError:
            raise NotRunning(
                "no test cloud is up; start one with: python -m tests.cloud up"
            ) from None
        link.sendall(json.dumps({"do": do, **arguments}).encode() + b"\n")
        with link.makefile("rb") as answers:
            answer = json.loads(answers.readline() or b'{"error": "the test cloud has ended"}')
            # After `down` the connection ends with the process, when everything has ended.
            answers.read()
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer["result"]


class Clouds:
    """The servers that run, by name."""

    def __init__(self, servers: Mapping[str, ApiServer]) -> None:
        self.servers = servers

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        handlers: dict[str, Callable[..., Any]] = {
            "environment": self.environment,
            "status": self.status,
            "evict": self.evict,
            "down": dict,
        }
        try:
            return {"result": handlers[command.pop("do")](**command)}
        except ValueError as error:
            return {"error": str(error)}

    def environment(self) -> dict[str, str]:
        return {
            name: value
            for server in self.servers.values()
            for name, value in server.environment().items()
        }

    def status(self) -> dict[str, Any]:
        return {
            "clouds": {
                name: {
                    "usd": round(sum(one.usd for one in server.machines()), 6),
                    "machines": [asdict(one) for one in server.machines()],
                    "resources": [asdict(one) for one in server.resources()],
                }
                for name, server in self.servers.items()
            }
        }

    def evict(self, machine: str, warning_seconds: float | None) -> dict[str, str]:
        """`machine` is the cloud's id, or spotctl's id, which ends with the cloud's."""
        for name, server in self.servers.items():
            for id_ in (machine, machine.rpartition(":")[2], machine.rpartition("/")[2]):
                with suppress(KeyError):
                    server.evict(id_, warning_seconds)
                    return {"cloud": name, "machine": id_}
        raise ValueError(
            f"no machine {machine} is running; python -m tests.cloud status lists them"
        )


def serve(clouds: Sequence[str], host: MachineHost, ready: Callable[[], None]) -> None:
    """Runs the clouds until `down`, or until this process is asked to end."""
    path = folder() / "control"
    with ExitStack() as stack:
        stack.callback(host.close)
        servers: dict[str, ApiServer] = {}
        for name in clouds:
            module, server = SERVERS[name]
            servers[name] = getattr(importlib.import_module(module), server)(host)
            stack.callback(servers[name].close)
        listening = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
        path.unlink(missing_ok=True)
        listening.bind(str(path))
        stack.callback(path.unlink, missing_ok=True)
        listening.listen()
        ready()
        while True:
            link, _ = listening.accept()
            if _answered(Clouds(servers), link) == "down":
                break
            link.close()


def _answered(clouds: Clouds, link: socket.socket) -> str:
    """Answers one command, and returns its name."""
    with link.makefile("rb") as lines:
        line = lines.readline()
    if not line:
        return ""
    command = json.loads(line)
    name = str(command["do"])
    with suppress(ConnectionError):
        link.sendall(json.dumps(clouds.answer(command)).encode() + b"\n")
    return name


def main() -> None:
    from tests.cloud.namespaces import Namespaces, NoNamespaces

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    told = int(sys.argv[1])

    def ready() -> None:
        os.write(told, b"ready")
        os.close(told)

    try:
        serve(sys.argv[2:], Namespaces(), ready)
    except NoNamespaces as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
