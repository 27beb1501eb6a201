"""The process under the machines of a test cloud: PID 1 of a PID namespace that holds all of them.

It owns the network namespace with the bridge, the mount namespace with the machines' file systems
(in memory), and the ports that lead to and from this computer's loopback interface. When it ends,
or is killed, the kernel ends all of that; it ends when the process that started it does. Commands
and answers are lines of JSON on a socket.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tests.cloud import kernel
from tests.cloud.host import CLOUDS, addresses_of
from tests.cloud.image import build_image
from tests.cloud.relay import Forward, relay

METADATA = ("169.254.169.254", 80)
PREFIX = 20
# Nothing of ours is there, and no other process sees the mount.
FOLDER = Path("/dev/shm")
SYSTEM_PYTHON = "/usr/bin/python3"
_REPOSITORY = Path(__file__).parents[2]
_CHUNK = 1 << 16
_REPEATED_SECONDS = 0.5
_OF_ROUTERS, _FIRST_PORT = "198.18.0.0", 40_000
"""The network of the addresses of routers, which is for tests of networks, and the first port that
they forward."""


@dataclass
class _Site:
    """Machines behind one router. `outside` is its address on this computer, `inside` that for
    machines.
    """

    outside: str
    inside: str
    machines: set[str] = field(default_factory=set)
    """Their addresses on the bridge, which only the router can reach."""


@dataclass
class _Machine:
    name: str
    number: int
    process: subprocess.Popen[bytes]
    console_fd: int
    console: bytearray = field(default_factory=bytearray)
    by_host: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def port(self) -> str:
        return f"port{self.number}"

    @property
    def folder(self) -> Path:
        return FOLDER / f"machine{self.number}"

    def read_console(self) -> None:
        with suppress(BlockingIOError):
            while text := os.read(self.console_fd, _CHUNK):
                self.console += text


class Hypervisor:
    """`root` is the network namespace of the computer, `base` what the machines have as their root
    below a layer of their own: folders, the lowest one last. `lock` keeps the number of this
    cloud."""

    def __init__(self, control: socket.socket, root: int, base: str, shaping: list[str]) -> None:
        self._control, self._root, self._base, self._shaping = control, root, base, shaping
        self._own = os.open("/proc/self/ns/net", os.O_RDONLY)
        self._cloud, self._lock = self._number()
        self._gateway = addresses_of(self._cloud, 1).private
        self._machines: dict[str, _Machine] = {}
        self._reached: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._questions: dict[int, asyncio.Future[bool]] = {}
        self._asked = count()
        self._started = 1
        self._sites: dict[str, _Site] = {}
        self._routed: dict[str, tuple[_Site, dict[int, int]]] = {}
        """By machine, the site and the router's ports for ports of the machine."""
        self._ports = count(_FIRST_PORT)

    def _in_root(self) -> AbstractContextManager[None]:
        return kernel.inside(self._root, self._own, kernel.CLONE_NEWNET)

    def _number(self) -> tuple[int, socket.socket]:
        with self._in_root():
            lock = socket.socket(socket.AF_UNIX)
        for number in range(CLOUDS):
            with suppress(OSError):
                lock.bind(f"\0spotctl-test-cloud-{number}")
                return number, lock
        raise OSError(errno.EADDRINUSE, f"{CLOUDS} test clouds are running on this computer")

    def prepare(self) -> None:
        """Makes the bridge and the image, and hands the metadata address over to the process that
        answers there.
        """
        kernel.mount("tmpfs", str(FOLDER), "tmpfs", 0, "mode=700,size=75%")
        _ip(
            "link set lo up",
            "link add br0 type bridge",
            f"address add {self._gateway}/{PREFIX} dev br0",
            f"address add {METADATA[0]}/32 dev br0",
            "link set br0 up",
        )
        # A machine that is not there (yet) is noticed after a third of a second instead of three.
        Path("/proc/sys/net/ipv4/neigh/br0/retrans_time_ms").write_text("100\n")
        *above, base = self._base.split(":")
        self._base = ":".join(
            [*(_copied(Path(folder), number) for number, folder in enumerate(above)), base]
        )
        build_image(FOLDER / "image", Path(base))
        with socket.create_server(METADATA) as metadata:
            socket.send_fds(
                self._control,
                [json.dumps({"cloud": self._cloud}).encode() + b"\n"],
                [metadata.fileno()],
            )

    async def serve(self, owner: int) -> None:
        """Carries out commands until the owner (a pidfd) or its end of the socket is gone."""
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        loop.add_reader(owner, gone.set)
        reader, self._answers = await asyncio.open_connection(sock=self._control)
        commands = asyncio.create_task(self._commands(reader))
        await asyncio.wait(
            [commands, asyncio.create_task(gone.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        os._exit(0)

    async def _commands(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            self._in_background(self._answer(json.loads(line)))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, command: dict[str, Any]) -> None:
        number, what = command.pop("id"), command.pop("do")
        handlers: dict[str, Callable[..., Awaitable[Any]]] = {
            "start": self._start,
            "reach": self._reach,
            "behind_router": self._behind_router,
            "power_off": self._power_off,
            "shut_down": self._shut_down,
            "console": self._console,
            "plug": self._plug,
            "execute": self._execute,
            "admit": self._admit,
        }
        try:
            answer = {"id": number, "result": await handlers[what](**command)}
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            answer = {
                "id": number,
                "error": f"{what}: {error} {getattr(error, 'stderr', None) or ''}".strip(),
            }
        self._say(answer)

    def _say(self, answer: dict[str, Any]) -> None:
        self._answers.write(json.dumps(answer).encode() + b"\n")

    async def _start(self, name: str, user_data: str, environment: dict[str, str]) -> list[str]:
        if name in self._machines:
            raise ValueError(f"there was a machine {name} already")
        self._started += 1
        addresses = addresses_of(self._cloud, self._started)
        public = None if name in self._routed else self._listen_in_root(addresses.public, 22)
        # Before the machine can ask for its metadata.
        self._say({"machine": name, "address": addresses.private})
        machine = self._machines[name] = _launched(name, self._started)
        asyncio.get_running_loop().add_reader(machine.console_fd, machine.read_console)
        about = {
            "name": name,
            "folder": str(machine.folder),
            "base": self._base,
            "address": addresses.private,
            "prefix": PREFIX,
            "gateway": self._gateway,
            "shaping": self._shaping,
            "environment": environment,
            "user_data": user_data,
        }
        self._watch(machine)
        try:
            await self._connect(machine, about)
        except (OSError, subprocess.SubprocessError):
            await self._power_off(name)
            if public is not None:
                public.close()
            raise
        if public is None:
            await self._forward(name, addresses.private)
        else:
            to_sshd = relay((addresses.private, 22), admitted=lambda: self._admitted(name))
            await asyncio.start_server(to_sshd, sock=public)
        return list(addresses)

    def _listen_in_root(self, address: str, port: int) -> socket.socket:
        with self._in_root():
            try:
                return socket.create_server((address, port), backlog=100)
            except OSError as error:
                raise OSError(
                    error.errno,
                    f"port {port} of {address} cannot be used ({error.strerror}); if this "
                    "computer's own sshd listens"
                    " on all addresses, set ListenAddress in /etc/ssh/sshd_config",
                ) from error

    async def _behind_router(self, name: str, site: str, ports: list[int]) -> list[Any]:
        if site not in self._sites:
            self._started += 1
            inside = str(ipaddress.ip_address(_OF_ROUTERS) + self._started)
            _ip(f"address add {inside}/32 dev br0")
            self._sites[site] = _Site(addresses_of(self._cloud, self._started).public, inside)
        known, mapped = self._sites[site], {port: next(self._ports) for port in ports}
        self._routed[name] = known, mapped
        return [known.outside, known.inside, list(mapped.items())]

    async def _forward(self, name: str, address: str) -> None:
        """Has the router of a machine forward its ports to the machine."""
        site, mapped = self._routed[name]
        site.machines.add(address)
        for port, forwarded in mapped.items():
            to_machine = _from_elsewhere(site, relay((address, port)))
            for listening in (
                self._listen_in_root(site.outside, forwarded),
                socket.create_server((site.inside, forwarded), backlog=100),
            ):
                await asyncio.start_server(to_machine, sock=listening)

    async def _connect(self, machine: _Machine, about: dict[str, Any]) -> None:
        """Puts the machine on the bridge once it has a network namespace, and lets it boot on."""
        assert machine.process.stdin is not None
        assert machine.process.stdout is not None
        machine.process.stdin.write(json.dumps(about).encode() + b"\n")
        machine.process.stdin.flush()
        ready = asyncio.Event()
        asyncio.get_running_loop().add_reader(machine.process.stdout, ready.set)
        await ready.wait()
        asyncio.get_running_loop().remove_reader(machine.process.stdout)
        if not machine.process.stdout.read(1):
            if not machine.ended.is_set():
                machine.read_console()
            raise OSError(
                f"machine {machine.name} did not start: {machine.console.decode(errors='replace')}"
            )
        _ip(
            f"link add {machine.port} type veth peer name eth0 netns {machine.process.pid}",
            f"link set {machine.port} master br0 up",
            *(
                [f"link set {machine.port} type bridge_slave isolated on"]
                if machine.name in self._routed
                else []
            ),
        )
        if self._shaping:
            _run("tc", "qdisc", "add", "dev", machine.port, "root", *self._shaping)
        machine.process.stdin.write(b"\n")
        machine.process.stdin.flush()

    def _watch(self, machine: _Machine) -> None:
        loop = asyncio.get_running_loop()
        pidfd = os.pidfd_open(machine.process.pid)

        def end() -> None:
            # The kernel says that PID 1 has ended when nothing else of its namespace is left.
            machine.process.wait()
            loop.remove_reader(pidfd)
            os.close(pidfd)
            machine.read_console()
            loop.remove_reader(machine.console_fd)
            os.close(machine.console_fd)
            shutil.rmtree(machine.folder)
            machine.ended.set()
            if not machine.by_host:
                self._say({"ended": machine.name})

        loop.add_reader(pidfd, end)

    async def _power_off(self, name: str) -> None:
        machine = self._machines[name]
        machine.by_host = True
        if machine.ended.is_set():
            return
        # First, so that its sockets cannot close their connections.
        with suppress(subprocess.CalledProcessError):
            _ip(f"link set {machine.port} down")
        machine.process.kill()
        await machine.ended.wait()

    async def _shut_down(self, name: str, seconds: float) -> None:
        machine = self._machines[name]
        machine.by_host = True
        if not machine.ended.is_set():
            machine.process.send_signal(signal.SIGPWR)
            with suppress(TimeoutError):
                await asyncio.wait_for(machine.ended.wait(), seconds)
        await self._power_off(name)

    async def _admitted(self, name: str) -> None:
        """Returns when the firewall admits a connection to a machine."""
        while True:
            number = next(self._asked)
            answer = self._questions[number] = asyncio.get_running_loop().create_future()
            self._say({"question": number, "machine": name})
            if await answer:
                return
            await asyncio.sleep(_REPEATED_SECONDS)

    async def _admit(self, question: int, answer: bool) -> None:  # as JSON has it
        asked = self._questions.pop(question)
        # The client that connected may have waited long enough.
        if not asked.done():
            asked.set_result(answer)

    async def _console(self, name: str) -> str:
        return self._machines[name].console.decode(errors="replace")

    async def _plug(self, name: str, state: str) -> None:
        if not self._machines[name].ended.is_set():
            _ip(f"link set {self._machines[name].port} {state}")

    async def _reach(self, port: int) -> str:
        if port not in self._reached:
            listening = socket.create_server((self._gateway, port), backlog=100)
            await asyncio.start_server(relay(("127.0.0.1", port), self._in_root), sock=listening)
            self._reached.add(port)
        return f"{self._gateway}:{port}"

    async def _execute(self, name: str, words: list[str]) -> dict[str, Any]:
        if self._machines[name].ended.is_set():
            return {"code": 255, "out": "", "err": f"machine {name} has ended"}
        process = await asyncio.create_subprocess_exec(
            *(
                "nsenter",
                "-t",
                str(self._machines[name].process.pid),
                "-m",
                "-u",
                "-i",
                "-n",
                "-p",
                "--",
                *words,
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        out, err = await process.communicate()
        return {
            "code": process.returncode,
            "out": out.decode(errors="replace"),
            "err": err.decode(errors="replace"),
        }


def _from_elsewhere(site: _Site, forward: Forward) -> Forward:
    """Forwards what comes from outside of a site: many routers do not lead from one of their
    machines to another.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, _ = writer.get_extra_info("peername")
        if address not in site.machines:
            await forward(reader, writer)
            return
        while await reader.read(_CHUNK):
            pass
        writer.close()

    return answer


def _copied(folder: Path, number: int) -> str:
    """A copy in memory: overlayfs refuses a layer that lies somewhere below another one, as all do
    below /.
    """
    return str(shutil.copytree(folder, FOLDER / f"software{number}", symlinks=True))


def _launched(name: str, number: int) -> _Machine:
    folder = FOLDER / f"machine{number}"
    for part in ("upper", "work", "root"):
        (folder / part).mkdir(parents=True)
    os.mkfifo(folder / "console", 0o622)
    # Open for reading and writing, so that it never reaches its end when a writer closes it.
    console = os.open(folder / "console", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    with (
        kernel.children_in_new_pid_namespace(),
        (folder / "console").open("wb", buffering=0) as errors,
    ):
        process = subprocess.Popen(
            [SYSTEM_PYTHON, "-S", "-s", "-c", "from tests.cloud.machine_init import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={"PYTHONPATH": str(_REPOSITORY), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            cwd="/",
        )
    return _Machine(name, number, process, console)


def _run(*words: str, text: str = "") -> None:
    subprocess.run(words, input=text, text=True, check=True, capture_output=True)


def _ip(*lines: str) -> None:
    _run("ip", "-batch", "-", text="\n".join(lines))


def main() -> None:
    control, owner, root = (int(word) for word in sys.argv[1:4])
    hypervisor = Hypervisor(socket.socket(fileno=control), root, sys.argv[4], sys.argv[5:])
    hypervisor.prepare()
    asyncio.run(hypervisor.serve(owner))


if __name__ == "__main__":
    main()
