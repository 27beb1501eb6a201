"""A real agent in a process of its own, and the caller's side of its link."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotctl.agent.container.payload import Payload
from spotctl.agent.container.processes import MARK, kill, marked
from spotctl.agent.link.wire import LinkClient
from tests.waiting import eventually

CODE = Path(__file__).parents[3]
SECRET = bytes(range(32))
PATIENCE_SECONDS = 60.0

_MAIN = """
import json, os, socket, sys
from dataclasses import replace
from pathlib import Path
from spotctl.agent.machine import AgentSettings, MachineAgent
from spotctl.agent.container.payload import Payload
given = json.loads(sys.argv[1])
payload = None if given["payload"] is None else Payload.from_json(given["payload"])
settings = AgentSettings(Path(given["folder"]), "m-0", 7, given["until"], given["seconds"], payload)
settings = replace(settings, counts_traffic=given["counts_traffic"])
agent = MachineAgent(settings, socket.socket(fileno=int(sys.argv[2])), bytes.fromhex(sys.stdin.readline()))
sys.exit(agent.run(lambda: (sys.stdout.write("up\\n"), sys.stdout.flush())))
"""


# Fields of `Payload`.
def python(code: str, name: str = "work", **options: Any) -> Payload:  # noqa: ANN401
    return Payload(name, (sys.executable, "-S", "-c", code), **options)


@dataclass
class Agent:
    """An agent with a folder of its own. `seconds` is how long its lease lasts."""

    root: Path
    payload: Payload | None = None
    seconds: float = 1000.0
    counts_traffic: bool = False
    process: subprocess.Popen[str] = field(init=False)
    port: int = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.root / "machine"
        self.folder.mkdir()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        payload = None if self.payload is None else self.payload.to_json()
        given = {
            "folder": str(self.folder),
            "until": 1,
            "seconds": self.seconds,
            "payload": payload,
        }
        given["counts_traffic"] = self.counts_traffic
        words = [sys.executable, "-E", "-S", "-c", _MAIN, json.dumps(given), str(listener.fileno())]
        self.process = subprocess.Popen(
            words,
            cwd=CODE,
            env={**os.environ, MARK: str(self.root), "SECRET": "hush"},
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        listener.close()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(SECRET.hex() + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "up\n"

    def connect(
        self, secret: bytes = SECRET, machine: str = "m-0", seconds: float = 30.0
    ) -> LinkClient:
        return LinkClient(("127.0.0.1", self.port), machine, secret, seconds)

    def call(self, operation: str, **arguments: object) -> dict[str, Any]:
        client = self.connect()
        try:
            return client.call(operation, **arguments)
        finally:
            client.close()

    def assign(self, payload: Payload) -> None:
        self.call("assign", payload=payload.to_json())

    def result(self) -> int:
        """The exit code of the payload, once it has ended."""
        eventually(lambda: self.call("status")["exit_code"] is not None)
        return int(self.call("status")["exit_code"])

    @property
    def output(self) -> str:
        path = self.folder / "output"
        return path.read_text() if path.exists() else ""

    @property
    def running(self) -> list[int]:
        """The processes that were started for the machine, without the agent itself."""
        return [pid for pid, mark in marked() if mark == self.folder]

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        for pid, mark in marked():
            if mark.is_relative_to(self.root):
                kill(pid)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
