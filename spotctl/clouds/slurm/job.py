"""The batch script's process: `python -m spotctl.clouds.slurm.job FOLDER`, on a node.

FOLDER belongs to one machine, and the launcher's computer sees it, too:

- `machine.json`, by the launcher before the order: index, lease and payload of the machine;
- `number`, a link to the number of the job that runs it. A second job of the same order finds it,
  and ends at once, so an order that was sent twice runs once;
- `state.json`: where this process listens;
- `ready`, once the agent serves; `agent/`, the files of `spotctl.agent.machine`; `job/`, the job's
  folder; `slurm.out`, what this process prints.

Callers come over TLS, whose keys follow from the machine's secret. Both sides derive it from a file
in the shared folder that only its owner can read. The first caller sends the launcher's secrets,
which reach no file. Then the agent starts, and later callers are passed on to it, but for those
that wait for programs of the machine, to take them to a port of the launcher
(`SlurmProvider._reach`). This process ends with the agent: when its lease ends or SIGTERM says that
the job is to end.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import ssl
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from agileml.transport.certificates import contexts_of, credentials_of
from spotctl.agent import layout
from spotctl.agent.container.payload import Payload
from spotctl.agent.container.processes import kill, kill_marked
from spotctl.agent.files import replace_json
from spotctl.agent.machine import (
    LEASE_ENDED,
    SHUT_DOWN,
    AgentSettings,
    MachineAgent,
    WakeUps,
    fork_agent,
)
from spotctl.clouds.link import link_key, link_secret
from spotctl.clouds.slurm.cloud import CLOUD_NAME

POLL_SECONDS, CALLER_SECONDS = 0.5, 10.0
LOOPBACK = "127.0.0.1"


class NodeAgent(MachineAgent):
    """The agent of a machine whose files are not below the usual root, which needs an
    administrator, and which others of the node share: what payloads say of it is replaced by what
    is `here`."""

    here: ClassVar[dict[str, str]] = {}

    def _assign(self, payload: Payload) -> None:
        text = json.dumps(payload.to_json())
        for usual, own in self.here.items():
            text = text.replace(usual, own)
        super()._assign(Payload.from_json(json.loads(text)))


def main(folder: Path) -> int:
    """Runs the machine from its start to its end."""
    job = "_".join(os.environ[f"SLURM_ARRAY_{part}_ID"] for part in ("JOB", "TASK"))
    try:
        (folder / "number").symlink_to(job)
    except FileExistsError:
        print(f"job {(folder / 'number').readlink()} runs this machine")  # noqa: T201
        return 0

    machine = json.loads((folder / "machine.json").read_text())
    name = f"{CLOUD_NAME}:{job}"
    secret = link_secret(link_key(folder.parents[1]), name)
    server, _ = contexts_of(credentials_of(secret, "agent"))
    wake_ups = WakeUps()
    wake_ups.listen()
    with socket.create_server(("", 0), backlog=64) as listener:
        where = {"host": socket.gethostname(), "port": listener.getsockname()[1]}
        replace_json(folder / "state.json", where)
        if (start := _awaited(listener, server, machine["lease_until"], wake_ups)) is None:
            return 0

        payload = machine["payload"]
        settings = AgentSettings(
            folder / "agent",
            name,
            machine["index"],
            machine["lease_until"],
            machine["lease_until"] / 1e6 - time.time(),
            None if payload is None else Payload.from_json(payload),
            str(folder / "job"),
        )
        status = _serve(folder, settings, listener, server, secret, start, wake_ups)

    kill_marked(settings.folder)
    for large in ("job", "cache"):
        shutil.rmtree(folder / large, ignore_errors=True)
    return 0 if status in (LEASE_ENDED, SHUT_DOWN) else 1


JobStart = tuple[Mapping[str, Any], ssl.SSLSocket]


def _awaited(
    listener: socket.socket, server: ssl.SSLContext, lease_until: int, wake_ups: WakeUps
) -> JobStart | None:
    """The launcher's first message, and its connection; None if it does not come within the
    lease."""
    while time.time() < lease_until / 1e6 and not wake_ups.told_to_end:
        if not select.select([listener], [], [], POLL_SECONDS)[0]:
            continue
        with suppress(OSError, ValueError):
            plain, _ = listener.accept()
            plain.settimeout(CALLER_SECONDS)
            caller = server.wrap_socket(plain, server_side=True)
            with caller.makefile("rb") as file:
                return json.loads(file.readline()), caller
    return None


def _serve(
    folder: Path,
    settings: AgentSettings,
    listener: socket.socket,
    server: ssl.SSLContext,
    secret: bytes,
    start: JobStart,
    wake_ups: WakeUps,
) -> int:
    """Starts the agent, and serves until it has ended; returns its exit code."""
    given, first = start
    for own in ("agent", "job", "cache"):
        (folder / own).mkdir(exist_ok=True)
    if given["job"]:
        with tarfile.open(given["job"]) as archive:
            archive.extractall(folder / "job", filter="tar")
    os.environ.update(given["variables"])
    # Other machines may share the node, so the ports of the launcher are at any that are free.
    reach = {str(port): socket.create_server((LOOPBACK, 0)) for port in given["reach"]}
    server.set_alpn_protocols([*reach])
    NodeAgent.here = {layout.PYTHON: sys.executable, layout.ROOT: str(folder)}
    for port, near in reach.items():
        near.setblocking(False)
        NodeAgent.here[f"{LOOPBACK}:{port}"] = f"{LOOPBACK}:{near.getsockname()[1]}"

    with tempfile.TemporaryDirectory(prefix="spotctl-") as own_folder:
        inner = Path(own_folder) / "agent.sock"
        with socket.socket(socket.AF_UNIX) as local:
            local.bind(str(inner))
            local.listen(64)
            sockets = (listener, first, *reach.values())
            unwanted = (*wake_ups.descriptors, *(own.fileno() for own in sockets))
            agent = fork_agent(partial(NodeAgent, settings, local, secret), unwanted)
        (folder / "ready").touch()
        with suppress(OSError):
            first.sendall(b"ready\n")
            first.close()

        give_up = float("inf")
        while not (ended := os.waitpid(agent, os.WNOHANG))[0]:
            if wake_ups.told_to_end and give_up == float("inf"):
                kill(agent, signal.SIGTERM)
                give_up = time.monotonic() + CALLER_SECONDS * 6
            if time.monotonic() > give_up:
                kill(agent)
            wake_ups.pause(0.0)
            waits = [listener.fileno(), wake_ups.descriptors[0]]
            if listener.fileno() in select.select(waits, [], [], POLL_SECONDS)[0]:
                plain, _ = listener.accept()
                caller = plain, server, inner, reach
                threading.Thread(target=_pass_on, args=caller, daemon=True).start()
    return os.waitstatus_to_exitcode(ended[1])


def _pass_on(
    plain: socket.socket, server: ssl.SSLContext, inner: Path, reach: Mapping[str, socket.socket]
) -> None:
    """Passes a caller on to the agent, or one that offers a port of the launcher to the next
    program that wants it."""
    with suppress(OSError), plain:
        plain.settimeout(CALLER_SECONDS)
        with server.wrap_socket(plain, server_side=True) as caller:
            if (offered := caller.selected_alpn_protocol()) is None:
                with socket.socket(socket.AF_UNIX) as agent:
                    agent.connect(str(inner))
                    bridge(caller, agent)
                return
            # Only a launcher that has gone is heard of before a program calls.
            while caller not in select.select([reach[offered], caller], [], [])[0]:
                with suppress(BlockingIOError), reach[offered].accept()[0] as program:
                    caller.sendall(b"\n")
                    bridge(caller, program)
                    return


def bridge(caller: ssl.SSLSocket, other: socket.socket) -> None:
    """Passes bytes on, in both directions, until either side closes."""
    others = {caller: other, other: caller}
    for side in others:
        side.settimeout(None)
    while True:
        # What TLS has decrypted already is no news to the kernel.
        ready = [caller] if caller.pending() else select.select([*others], [], [])[0]
        for side in ready:
            if not (received := side.recv(1 << 16)):
                return
            others[side].sendall(received)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
