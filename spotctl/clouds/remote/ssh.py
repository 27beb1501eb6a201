"""One machine over the system's `ssh`: a connection that stays open, commands on it, and forwarded
sockets.

The connection is a process of its own that ends when its standard input does, so it also ends when
this process does, however that happens. The ssh client ignores the user's configuration, offers
only our key, forwards no agent, and connects only to a computer that proves to have the host key on
the machine's console. Its arguments contain no secret.
"""

from __future__ import annotations

import os
import re
import resource
import select
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from spotctl.agent import layout
from spotctl.agent.link.output import read_from
from spotctl.clouds.errors import NotPermitted, ProviderError, Unanswered
from spotctl.clouds.link import ReverseTunnel

CONNECT_SECONDS = 10
KEEPALIVE_SECONDS, KEEPALIVES = 5, 3

STALL_SECONDS = 120.0
"""How long a transfer may make no progress."""

UNPACK_SECONDS = 600.0
"""How long a machine may take to unpack what it has received, which includes what the network still
holds back."""

FIRST_LINE_SECONDS = 60.0
"""How long a machine that has let us in may take to run a command."""

END_SECONDS = 5.0

MAX_SAID, _MAX_MESSAGES = 4 << 20, 16 << 20
"""Bytes that are read of a command's output, and written of the client's messages: a machine may
send without end."""

_PART_BYTES, _LONGEST_LINE = 1 << 16, 1 << 10

CLIENT_FAILED = 255
"""The client's own exit code. A command may end with the same."""

_COMMAND_ENDED, _AUTHENTICATED = " rtype exit-", "\nAuthenticated to "
"""Parts of the client's messages when the machine sends the status or signal of the command, and
once connected."""

_CONNECTED_LINE = b"connected\n"
_HOLD_COMMAND = "echo connected; exec cat >/dev/null"
_CONSOLE_KEY = re.compile(r"spotctl: host key (ssh-ed25519 [A-Za-z0-9+/]+={0,2})\s")


class HostKeyDiffers(NotPermitted):
    """The computer at the machine's address does not have the host key that the machine's console
    shows.
    """


class StepFailed(Unanswered):
    """A command on a machine that is connected has failed."""


@dataclass(frozen=True, slots=True)
class SshHost:
    """Where to reach a machine, and the files with our private key and with the machine's host
    key."""

    machine: str
    host: str
    port: int
    user: str
    key: Path
    known_hosts: Path


def ssh_client() -> str:
    """The path of the ssh client. ProviderError: this computer has none."""
    path = shutil.which("ssh")
    if path is None:
        raise ProviderError(
            "there is no ssh client on this computer: install openssh-client (or OpenSSH) first"
        )
    return path


def host_key_of(console: str) -> str | None:
    """The host key that a machine's start-up script wrote to its console; None until then.

    The first key counts: it was written before anything of a job could run.
    """
    match = _CONSOLE_KEY.search(console)
    return None if match is None else match[1]


class SshConnection:
    """An open connection, from construction on. Raises Unanswered, with the reason, or
    HostKeyDiffers.

    The connection forwards the Unix socket `agent` to the agent's; its process takes commands at
    the socket `control`.
    """

    def __init__(self, host: SshHost, control: Path, agent: Path) -> None:
        self._host, self._client, self._control = host, ssh_client(), control
        self.reached: set[ReverseTunnel] = set()
        words = [
            *self._words("-M"),
            "-L",
            f"{agent}:{layout.SOCKET}",
            "--",
            host.host,
            _HOLD_COMMAND,
        ]

        # To a file: a pipe without a reader would fill up, because each refused connection leaves a
        # line.
        self._messages = control.with_suffix(".e")
        with self._messages.open("wb") as messages:
            self._process = self._start(words, messages)
        try:
            with suppress(AttributeError, OSError):
                resource.prlimit(
                    self._process.pid, resource.RLIMIT_FSIZE, (_MAX_MESSAGES, _MAX_MESSAGES)
                )
            if self._first_line(self._process) != _CONNECTED_LINE:
                self._process.terminate()
                self._process.wait()
                messages_end = max(self._messages.stat().st_size - _PART_BYTES, 0)
                raise failure_of(
                    host, read_from(self._messages, messages_end).decode(errors="replace")
                )
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        return self._process.poll() is None

    def run(self, command: str, stdin: bytes = b"", seconds: float = 60.0) -> str:
        """Runs a command and returns its output. `stdin` may be secret. StepFailed: the command
        failed.

        Unanswered: it took too long, or the connection was lost.
        """
        process = self._start([*self._words(), "--", self._host.host, command], subprocess.PIPE)
        return self._outcome(process, stdin, seconds)

    def send(self, command: str, file: Path, sent: Callable[[int], None]) -> str:
        """Runs a command whose input is a file, however long that takes; `sent` gets the bytes that
        have been sent.

        StepFailed: the command failed. Unanswered: nothing was sent for a while, or the connection
        was lost.
        """
        process = self._start([*self._words(), "--", self._host.host, command], subprocess.PIPE)
        assert process.stdin is not None
        pipe, done = process.stdin.fileno(), 0
        try:
            # The client ends early if the command does; its exit code says why.
            with file.open("rb") as source, suppress(BrokenPipeError):
                while part := source.read(_PART_BYTES):
                    if not select.select([], [pipe], [], STALL_SECONDS)[1]:
                        problem = (
                            f"{self._host.machine}: nothing could be sent for {STALL_SECONDS:.0f} s"
                        )
                        raise Unanswered(problem)
                    os.write(pipe, part)
                    sent(done := done + len(part))
            return self._outcome(process, b"", UNPACK_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()

    def serve(self, command: str, given: bytes) -> tuple[str, Callable[[], None]]:
        """Starts a command that runs until it is stopped; returns its first line, and how to stop
        it.

        StepFailed: it has ended without a line.
        """
        process = self._start([*self._words(), "--", self._host.host, command], subprocess.DEVNULL)
        assert process.stdin is not None
        process.stdin.write(given)
        process.stdin.flush()
        line = self._first_line(process)
        if not line:
            _end(process)
            raise StepFailed(f"{self._host.machine}: a command over ssh has ended: {command}")

        return line.decode(errors="replace").strip(), partial(_end, process)

    def reach(self, tunnels: Sequence[ReverseTunnel]) -> None:
        """Makes ports of this computer reachable from the machine, at ports of its own loopback
        interface.
        """
        for tunnel in tunnels:
            if tunnel not in self.reached:
                forward = f"127.0.0.1:{tunnel.port}:{tunnel.host}:{tunnel.host_port}"
                words = [*self._words("-O", "forward"), "-R", forward, "--", self._host.host]
                self._outcome(self._start(words, subprocess.PIPE), b"", CONNECT_SECONDS)
                self.reached.add(tunnel)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.terminate()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                stream.close()

        for path in (self._control, self._messages):
            path.unlink(missing_ok=True)

    def _outcome(self, process: subprocess.Popen[bytes], sent: bytes, seconds: float) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        errors = process.stderr or nullcontext()
        with process.stdin, process.stdout, errors, ThreadPoolExecutor(3) as pool:
            # Of a machine that sends more, the rest stays unread, and its command does not end in
            # time.
            out = pool.submit(process.stdout.read, MAX_SAID)
            err = pool.submit(process.stderr.read, MAX_SAID) if process.stderr is not None else None
            giving = pool.submit(process.stdin.write, sent)
            try:
                with suppress(BrokenPipeError):
                    giving.result(seconds)
                    process.stdin.close()
                process.wait(seconds)
            except (TimeoutError, subprocess.TimeoutExpired):
                process.kill()
                process.wait()
                problem = f"{self._host.machine}: no answer over ssh for {seconds:.0f} s"
                raise Unanswered(problem) from None

        if process.returncode == 0:
            return out.result().decode(errors="replace")

        text = "" if err is None else err.result().decode(errors="replace")
        if process.returncode == CLIENT_FAILED and not self.is_open:
            raise failure_of(self._host, text)

        # The client itself fails, for example, where a port of the machine is still in use by an
        # earlier launcher.
        kind = Unanswered if process.returncode == CLIENT_FAILED else StepFailed
        problem = (
            f"{self._host.machine}: status {process.returncode} of a command over ssh: "
            f"{_last(text)}"
        )
        raise kind(problem)

    def _first_line(self, process: subprocess.Popen[bytes]) -> bytes:
        """The first line of a command that goes on; empty if there is none. Unanswered: it does not
        come.
        """
        assert process.stdout is not None
        with ThreadPoolExecutor(1) as pool:
            line = pool.submit(process.stdout.readline, _LONGEST_LINE)
            try:
                return line.result(FIRST_LINE_SECONDS)
            except TimeoutError:
                process.kill()
                why = (
                    f"no answer over ssh for {FIRST_LINE_SECONDS:.0f} s, although it has let us in"
                )
                raise Unanswered(f"{self._host.machine}: {why}") from None

    def _start(self, words: Sequence[str], stderr: int | BinaryIO) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self._client, *words],
            env=client_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )

    def _words(self, *more: str) -> list[str]:
        return ["-T", *options(self._host, self._control), *more]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a command that runs until its input does."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.close()

    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

    process.stdout.close()


def invocation(host: SshHost, command: Sequence[str], messages: Path) -> list[str]:
    """The words that run a command on a machine with a terminal, over a connection of its own.

    The command runs in the folder and the environment of the payload, once the agent has started.
    The client writes its own messages to the file `messages`.
    """
    enter = (
        f"cd {layout.CODE} && exec {layout.PYTHON} -E -s -S -m spotctl.agent.enter "
        f"{shlex.join(command)}"
    )
    return [
        ssh_client(),
        "-t",
        "-E",
        str(messages),
        *options(host, "none", "DEBUG1"),
        "--",
        host.host,
        enter,
    ]


def lost(host: SshHost, code: int, messages: Path) -> ProviderError | None:
    """Why an invocation that ended with this code has not reached the machine; None if the code is
    the command's.
    """
    text = messages.read_text(errors="replace") if messages.exists() else ""
    messages.unlink(missing_ok=True)
    if code != CLIENT_FAILED or _COMMAND_ENDED in text:
        return None

    if _AUTHENTICATED in text:
        problem = (
            f"{host.machine}: the connection broke: the machine is cut off from the network, or "
            "has ended"
        )
        return Unanswered(problem)

    return failure_of(
        host, "\n".join(line for line in text.splitlines() if not line.startswith("debug"))
    )


def options(host: SshHost, control: Path | str, log_level: str = "ERROR") -> list[str]:
    """The arguments of every call of the client; `control` is the socket of an open connection."""
    settings = {
        "IdentityFile": host.key,
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "PreferredAuthentications": "publickey",
        "UserKnownHostsFile": host.known_hosts,
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "HostKeyAlias": "machine",
        "HostKeyAlgorithms": "ssh-ed25519",
        "UpdateHostKeys": "no",
        "CheckHostIP": "no",
        "BatchMode": "yes",
        "ForwardAgent": "no",
        "ConnectTimeout": CONNECT_SECONDS,
        "ServerAliveInterval": KEEPALIVE_SECONDS,
        "ServerAliveCountMax": KEEPALIVES,
        "ExitOnForwardFailure": "yes",
        "StreamLocalBindMask": "0177",
        "StreamLocalBindUnlink": "yes",
        "ControlPath": control,
        "LogLevel": log_level,
        "Port": host.port,
    }

    words = ["-F", "none", "-a", "-x", "-l", host.user]
    for name, value in settings.items():
        # The client expands % in paths.
        text = str(value).replace("%", "%%")
        words += ["-o", f'{name}="{text}"']
    return words


def client_environment() -> dict[str, str]:
    """The client's environment, without the launcher's other variables, which may hold secrets."""
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "TERM") if name in os.environ
    }
    return {**kept, "LC_ALL": "C"}


def failure_of(host: SshHost, text: str) -> ProviderError:
    """The error for a message of the client."""
    where = f"{host.machine} at {host.host} port {host.port}"
    if "Host key verification failed" in text or "IDENTIFICATION HAS CHANGED" in text:
        problem = (
            f"{where}: its ssh host key differs from the one on its console, so something else "
            "may answer at its address; nothing was sent to it"
        )
        return HostKeyDiffers(problem)
    if "Permission denied" in text:
        problem = (
            f"{where}: it does not accept this home's ssh key: it is still booting, or another "
            "home rented it"
        )
        return Unanswered(problem)
    if any(
        words in text for words in ("Connection refused", "Connection reset", "Connection closed")
    ):
        return Unanswered(f"{where}: ssh does not answer yet")
    if any(
        words in text
        for words in ("timed out", "No route to host", "unreachable", "not responding")
    ):
        problem = (
            f"{where}: no answer on the ssh port: it is still booting or cut off from the "
            "network, or its firewall does not admit this computer; if the public address of "
            "this computer has changed: spotctl ssh JOB --admit ADDRESS/32"
        )
        return Unanswered(problem)

    return Unanswered(f"{where}: ssh failed: {_last(text)}")


def _last(text: str) -> str:
    """The last line of a message of the client."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "it gave no reason"
