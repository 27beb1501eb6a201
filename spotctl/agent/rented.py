"""The service of a rented machine: `python3 -m spotctl.agent.rented`, started over ssh, which it
outlives.

The service reads one JSON object (`AgentStart`) from its standard input; the secrets in that object
are in no file on the machine. The service forks the machine's agent (`spotctl.agent.machine`),
passes the cloud's eviction notices to the agent, and writes the lease for the watchdog, which the
start-up script started and which alone may switch the machine off. When the agent has ended, for
whatever reason, the service notes why and exits, and the watchdog ends the machine. If the service
is killed, the agent dies, too, and the watchdog ends the machine as well.

Only one service runs on a machine: it holds a lock, and a second start returns at once and changes
nothing.
"""

import json
import os
import pwd
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from agileml.runtime.ground import replaced, take_lock
from spotctl.agent import layout
from spotctl.agent.container.payload import Payload
from spotctl.agent.container.processes import kill, kill_marked
from spotctl.agent.files import Watched
from spotctl.agent.lease.notices import NoticeRelay, poller_of
from spotctl.agent.lease.self_deletion import system_variables
from spotctl.agent.link.wire import LinkClient
from spotctl.agent.machine import (
    LEASE_ENDED,
    SHUT_DOWN,
    AgentSettings,
    MachineAgent,
    WakeUps,
    fork_agent,
)

MARGIN_SECONDS = 60.0
"""Seconds after the end of the lease at which the watchdog ends a machine that its service has not
ended. Payloads have this time to end."""

SHUTDOWN_SECONDS = 45.0

_POLL_SECONDS = 0.5
_LINK_SECONDS = 5.0
_LOCK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class AgentStart:
    """A launcher's input to the service. `bundles` are folders below `layout.BUNDLES`, `job` is one
    below `JOBS`.
    """

    machine: str
    index: int
    link_secret: str = field(repr=False)
    secrets: Mapping[str, str] = field(repr=False)
    bundles: Sequence[str]
    job: str = ""


def main(words: Sequence[str]) -> int:
    """Returns when the service runs, whichever call started it. The output is for the launcher.

    The service is this module, executed again with three descriptors, so that it has from the start
    the environment that payloads inherit.
    """
    if words:
        lock, up, given = map(int, words)
        # The lock stays open in the service and in its agent.
        for descriptor in (lock, up, given):
            os.set_inheritable(descriptor, False)
        with os.fdopen(given) as file:
            file.seek(0)
            start = AgentStart(**json.load(file))
        RentedMachine(start).run(up)
        return 0

    start = AgentStart(**json.load(sys.stdin))
    if (held := _lock(Path(layout.LOCK))) is None:
        print("running")  # noqa: T201
        return 0

    ready = os.pipe()
    if os.fork() == 0:
        os.close(ready[0])
        _become_service(start, held, ready[1])

    os.close(ready[1])
    os.close(held)
    is_up = bool(os.read(ready[0], 1))
    print(  # noqa: T201
        "running"
        if is_up
        else f"the agent could not be started; see {layout.AGENT_FOLDER}/agent.log"
    )

    return 0 if is_up else 1


def search_path(usual: str) -> str:
    """The PATH of payloads: the agent's Python, what the machine's image has on its own, and the
    usual folders."""
    paths = [str(Path(layout.PYTHON).parent)]
    with suppress(OSError):
        paths += Path(layout.SEARCH_PATH).read_text().strip().split(":")
    return ":".join(dict.fromkeys(filter(None, (*paths, *usual.split(":")))))


def _lock(path: Path) -> int | None:
    """Takes the service's lock and returns its descriptor; None while a service runs.

    The watchdog holds the lock for a moment to see whether the service does.
    """
    give_up = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return take_lock(path, seconds=0.0)
        except BlockingIOError:
            if Path(layout.STARTED).exists() or time.monotonic() > give_up:
                return None
            time.sleep(_LOCK_SECONDS / 100)


def _become_service(start: AgentStart, lock: int, up: int) -> NoReturn:
    """Leaves the ssh session, and executes this module as the service."""
    try:
        os.setsid()
        with (
            Path("/dev/null").open("rb") as nothing,
            Path(layout.AGENT_FOLDER, "agent.log").open("ab") as log,
        ):
            os.dup2(nothing.fileno(), 0)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)

        given = os.memfd_create("start", 0)
        os.write(given, json.dumps(asdict(start)).encode())
        for descriptor in (lock, up, given):
            os.set_inheritable(descriptor, True)
        module = ["-E", "-s", "-S", "-m", "spotctl.agent.rented"]
        words = [sys.executable, *module, str(lock), str(up), str(given)]
        # What payloads inherit, instead of the ssh session's environment.
        user = pwd.getpwuid(os.getuid())
        variables = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            **system_variables(),
            "HOME": user.pw_dir,
            "USER": user.pw_name,
            "LOGNAME": user.pw_name,
            "SHELL": user.pw_shell,
            "PYTHONPATH": ":".join(str(Path(layout.BUNDLES, name)) for name in start.bundles),
            layout.PYTHON_VARIABLE: f"{sys.version_info.major}.{sys.version_info.minor}",
            **start.secrets,
        }
        variables["PATH"] = search_path(variables["PATH"])
        os.execve(sys.executable, words, variables)  # noqa: S606
    # A fork must not continue in its parent's code, whatever happens.
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


class RentedMachine:
    """The service, from the agent's start to its end."""

    def __init__(self, start: AgentStart) -> None:
        self._start = start
        self._folder = Path(layout.AGENT_FOLDER)
        self._link_secret = bytes.fromhex(start.link_secret)
        self._lease = Watched(
            self._folder / "lease.json", lambda values: float(values["monotonic"])
        )
        self._written: float | None = None
        self._agent = 0
        self._wake_ups = WakeUps()

    def run(self, up: int) -> None:
        """Serves until the agent has ended, and notes why. Writes to `up` once the agent serves."""
        machine = json.loads(Path(layout.MACHINE_FILE).read_text())
        settings = self._settings(machine)
        self._make_links()
        self._wake_ups.listen()
        self._write_lease(time.monotonic() + settings.lease_seconds)

        socket_path = Path(layout.SOCKET)
        socket_path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(socket_path))
        socket_path.chmod(0o600)
        listener.listen(64)
        self._agent = fork_agent(
            partial(MachineAgent, settings, listener, self._link_secret),
            (*self._wake_ups.descriptors, up),
        )
        listener.close()
        with replaced(Path(layout.STARTED)) as new:
            new.write_text(f"{self._agent}\n")
        os.write(up, b"1")
        os.close(up)

        poller = poller_of(str(machine["cloud"]), dict(os.environ))
        if poller is not None:
            connect = partial(
                LinkClient, socket_path, self._start.machine, self._link_secret, _LINK_SECONDS
            )
            threading.Thread(
                target=NoticeRelay(poller, connect, time.sleep).run, daemon=True
            ).start()

        status = self._until_end()
        kill_marked(self._folder)
        reasons = {LEASE_ENDED: "its lease has ended", SHUT_DOWN: "a shutdown was requested"}
        with replaced(Path(layout.ENDED)) as new:
            new.write_text(reasons.get(status, f"its agent failed with status {status}") + "\n")

    def _settings(self, machine: Mapping[str, Any]) -> AgentSettings:
        """The agent's settings, from the content of `layout.MACHINE_FILE` and the watchdog's
        lease."""
        ends_at, uptime = (float(word) for word in Path(layout.LEASE).read_text().split())
        now_up = float(Path("/proc/uptime").read_text().split()[0])
        seconds = min(ends_at - time.time(), uptime - now_up)
        payload = None if machine["payload"] is None else Payload.from_json(machine["payload"])
        until, start = int(machine["lease_until"]), self._start

        return AgentSettings(
            self._folder,
            start.machine,
            start.index,
            until,
            seconds,
            payload,
            layout.JOB_FOLDER,
            counts_traffic=True,
        )

    def _make_links(self) -> None:
        """Creates links to the job's folder, our code and the Python that runs it."""
        job, python = Path(layout.JOBS, self._start.job or "none"), Path(layout.PYTHON)
        job.mkdir(exist_ok=True)
        python.parent.mkdir(exist_ok=True)

        links = {
            Path(layout.CURRENT_JOB): job,
            Path(layout.CODE): Path(layout.BUNDLES, self._start.bundles[0]),
            python: Path(sys.executable),
            python.with_name("python"): Path(sys.executable),
        }

        for name, target in links.items():
            with replaced(name) as new:
                new.symlink_to(target)

    def _until_end(self) -> int:
        """Waits for the agent; returns its exit code, or the negative number of the signal that
        ended it.
        """
        give_up: float | None = None
        while True:
            pid, status = os.waitpid(self._agent, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if (end := self._lease.value()) is not None:
                self._write_lease(end)

            if self._wake_ups.told_to_end and give_up is None:
                kill(self._agent, signal.SIGTERM)
                give_up = time.monotonic() + SHUTDOWN_SECONDS
            overdue = (
                self._written is not None and time.monotonic() > self._written + SHUTDOWN_SECONDS
            )
            if overdue or (give_up is not None and time.monotonic() > give_up):
                kill(self._agent)
            self._wake_ups.pause(_POLL_SECONDS)

    def _write_lease(self, end: float) -> None:
        """Writes the lease for the watchdog; `end` is on the monotonic clock."""
        if end == self._written:
            return
        self._written = end
        seconds = max(end - time.monotonic(), 0.0) + MARGIN_SECONDS
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        with replaced(Path(layout.LEASE)) as new:
            new.write_text(f"{time.time() + seconds:.0f} {uptime + seconds:.0f}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
