"""`Namespaces`: a host whose machines are network, PID, mount and UTS namespaces of this computer.
It needs root.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.cloud.host import Addresses, MachineSpec, MetadataAnswer, MetadataRequest, Router
from tests.cloud.hypervisor import METADATA, SYSTEM_PYTHON
from tests.servers.loopback import QuietServer, Reply, handler_of

TOOLS = ("unshare", "nsenter", "ip", "tc", "ssh-keygen", "/usr/sbin/sshd", "podman", SYSTEM_PYTHON)
_UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_REPOSITORY = Path(__file__).parents[2]
_COMPUTER = Path("/")


class NoNamespaces(OSError):
    """Machines cannot be made of namespaces on this computer; the message says why."""


@contextmanager
def namespaces(
    megabits: float | None = None, base: Path = _COMPUTER, software: Path | None = None
) -> Iterator[Namespaces]:
    """A host for a test, which is skipped where there cannot be one. In CI it fails instead."""
    try:
        host = Namespaces(megabits, base, software)
    except NoNamespaces as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    try:
        yield host
    finally:
        host.close()


class Namespaces:
    """The machines share a bridge; each is limited to `megabits` per second in each direction.
    Their files are those of `base` and of `software` on top of it, with changes of their own.

    All of it ends with this process, however that ends.
    """

    def __init__(
        self, megabits: float | None = None, base: Path = _COMPUTER, software: Path | None = None
    ) -> None:
        _check()
        self._calls: dict[int, Future[Any]] = {}
        self._numbers = count()
        self._lock = threading.Lock()
        self._specs: dict[str, tuple[MachineSpec, Callable[[str], None]]] = {}
        self._names: dict[str, str] = {}
        self._closing = False
        shaping = (
            ["tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "50ms"]
            if megabits
            else []
        )
        self._process, self._control, metadata = _hypervisor(
            f"{software}:{base}" if software else str(base), shaping
        )
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
        self._metadata = self._serving(metadata)
        self._threads.append(
            threading.Thread(target=self._metadata.serve_forever, args=(0.05,), daemon=True)
        )
        for thread in self._threads:
            thread.start()

    def start(self, spec: MachineSpec, on_end: Callable[[str], None]) -> Addresses:
        with self._lock:
            if spec.name in self._specs:
                raise ValueError(f"there was a machine {spec.name} already")
            self._specs[spec.name] = (spec, on_end)
        data = base64.b64encode(spec.user_data).decode()
        result = self._call(
            "start", name=spec.name, user_data=data, environment=dict(spec.environment)
        )
        return Addresses(*result)

    def reach(self, port: int) -> str:
        return str(self._call("reach", port=port))

    def behind_router(self, name: str, site: str, ports: Sequence[int]) -> Router:
        """Puts the machine of this name, which is not started yet, behind the router of a site.

        Others reach it at the router's ports for these ports of it, and in no other way; machines
        of the same site, not even there.
        """
        outside, inside, mapped = self._call(
            "behind_router", name=name, site=site, ports=list(ports)
        )
        return Router(outside, inside, dict(mapped))

    def power_off(self, name: str) -> None:
        self._call("power_off", name=name)

    def shut_down(self, name: str, seconds: float) -> None:
        self._call("shut_down", name=name, seconds=seconds)

    def console(self, name: str) -> str:
        return str(self._call("console", name=name))

    def cut(self, name: str) -> None:
        self._call("plug", name=name, state="down")

    def plug_in(self, name: str) -> None:
        self._call("plug", name=name, state="up")

    def execute(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command on a machine as root, without ssh."""
        done = self._call("execute", name=name, words=words)
        return subprocess.CompletedProcess(words, done["code"], done["out"], done["err"])

    def at(self, address: str) -> str:
        """The machine with this private address."""
        return self._names[address]

    def holders(self, name: str, secret: str) -> set[str]:
        """Files that were written since a machine booted, and command lines, in which the secret is
        found.

        The computer's own files, which are the machine's image, are too many to search.
        """
        # Written so that the search does not find itself.
        pattern = f"[{secret[0]}]{secret[1:]}"
        places = "/opt /home /var /etc /run /tmp /root /dev/shm"
        files = f"find {places} -type f -newer /etc/hostname -exec grep -l '{pattern}' {{}} +"
        found = self.execute(
            name,
            "/bin/sh",
            "-c",
            f"({files}; grep -l '{pattern}' /proc/[0-9]*/cmdline) 2>/dev/null",
        )
        return set(found.stdout.splitlines())

    def close(self) -> None:
        with self._lock:
            closed, self._closing = self._closing, True
        if closed:
            return
        # The hypervisor ends with its socket, and its parent when nothing is left of the PID
        # namespace.
        self._control.shutdown(socket.SHUT_RDWR)
        try:
            self._process.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._metadata.shutdown()
        self._metadata.server_close()
        for thread in self._threads:
            thread.join()
        self._control.close()

    def _call(self, what: str, **arguments: Any) -> Any:  # noqa: ANN401  # what JSON can hold
        answer: Future[Any] = Future()
        with self._lock:
            if self._closing:
                raise NoNamespaces("the host is closed")
            number = next(self._numbers)
            self._calls[number] = answer
            self._control.sendall(
                json.dumps({"id": number, "do": what, **arguments}).encode() + b"\n"
            )
        return answer.result()

    def _listen(self) -> None:
        with self._control.makefile("rb") as lines, suppress(OSError):
            for line in lines:
                self._take(json.loads(line))
        with self._lock:
            calls, self._calls = self._calls, {}
            self._closing = True
        for call in calls.values():
            call.set_exception(NoNamespaces("the host has ended"))

    def _take(self, message: dict[str, Any]) -> None:
        if "address" in message:
            self._names[message["address"]] = message["machine"]
            return
        if "question" in message:
            threading.Thread(
                target=self._admit, args=(message["machine"], message["question"]), daemon=True
            ).start()
            return
        if name := message.get("ended"):
            _, on_end = self._specs[name]
            threading.Thread(target=on_end, args=(name,), daemon=True).start()
            return
        with self._lock:
            call = self._calls.pop(message["id"])
        if "error" in message:
            call.set_exception(OSError(message["error"]))
        else:
            call.set_result(message["result"])

    def _admit(self, name: str, question: int) -> None:
        with suppress(NoNamespaces):
            self._call("admit", question=question, answer=self._specs[name][0].admits_ssh())

    def _serving(self, listening: socket.socket) -> QuietServer:
        """Answers what machines ask 169.254.169.254, each with its own metadata."""
        server = QuietServer(METADATA, handler_of(self._answer), bind_and_activate=False)
        server.socket.close()
        server.socket = listening
        return server

    def _answer(self, request: MetadataRequest) -> MetadataAnswer:
        name = self._names.get(request.client)
        return self._specs[name][0].metadata(request) if name else Reply(404)


def _check() -> None:
    if os.geteuid() != 0:
        raise NoNamespaces("machines of test clouds need root")
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        raise NoNamespaces(f"machines of test clouds need {missing[0]}, which is not installed")


def _hypervisor(
    base: str, shaping: list[str]
) -> tuple[subprocess.Popen[bytes], socket.socket, socket.socket]:
    """The process, the socket for commands, and the one that listens at the metadata address."""
    ours, theirs = socket.socketpair()
    owner = os.pidfd_open(os.getpid())
    root = os.open("/proc/self/ns/net", os.O_RDONLY)
    numbers = [str(number) for number in (theirs.fileno(), owner, root)]
    process = subprocess.Popen(
        [*_UNSHARE, sys.executable, "-m", "tests.cloud.hypervisor", *numbers, base, *shaping],
        pass_fds=(theirs.fileno(), owner, root),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=_REPOSITORY,
        env={"PYTHONPATH": str(_REPOSITORY), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    theirs.close()
    os.close(owner)
    os.close(root)
    ours.settimeout(_START_SECONDS)
    _, descriptors, _, _ = socket.recv_fds(ours, 1024, 1)
    if not descriptors:
        process.kill()
        _, errors = process.communicate()
        raise NoNamespaces(
            f"machines cannot be made of namespaces here: {errors.decode().strip()[-400:]}"
        )
    ours.settimeout(None)
    return process, ours, socket.socket(fileno=descriptors[0])
