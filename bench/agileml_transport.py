"""Push and pull of 64 MiB between two processes: ours, a bare socket that copies the same bytes,
and others.
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agileml.transport import (
    Address,
    Connected,
    Endpoint,
    FrameLimits,
    Identity,
    Lost,
    Received,
    TcpAddress,
    TransportSettings,
    UnixAddress,
    parse_address,
)
from agileml.transport.certificates import HOSTNAME, contexts_of
from agileml.transport.codec import Codec
from agileml.transport.framing import BufferPool, FrameReader, encode, scratch_for
from agileml.transport.sockets import tune
from bench.agileml_throughput import descendants
from bench.harness import Row, shown, table

FLOATS = 16 << 20
ROUNDS = 15
_SECRET = b"only for this benchmark, on loopback"

Floats = NDArray[np.float32]
Cycle = Callable[[], None]
"""Pushes all floats and pulls as many."""


@dataclass(frozen=True)
class Contender:
    """Somebody who carries the floats, on one kind of link."""

    name: str
    link: str
    adds: bool
    client: Callable[[ExitStack, Address, bool], Cycle]


def run() -> str:
    """Measures everything in turns and returns the section."""
    contenders = [
        Contender(name, link, adds, client)
        for link in ("Unix", "TLS")
        for name, client in (("ours", _ours), ("bare", _bare))
        for adds in (False, True)
    ]
    if has_zmq := importlib.util.find_spec("zmq") is not None:
        contenders.append(Contender("pyzmq", "Unix", False, _zmq))
    if has_gloo := importlib.util.find_spec("torch") is not None:
        contenders.append(Contender("gloo", "TLS", False, _gloo))
    times = _in_turns(contenders)
    absent = [
        name for name, is_there in (("pyzmq", has_zmq), ("torch gloo", has_gloo)) if not is_there
    ]
    return table(
        f"Parameters between two processes: push and pull of {FLOATS * 4 >> 20} MiB float32",
        "A push and a pull after each other, both counted, in GB per second of processor time, "
        "user and system, of both"
        f" processes; the best of {ROUNDS} rounds in which all take turns, forwards and backwards. "
        "The ratio is the median of those within a round, in brackets that of the best rounds."
        " Next to it is a bare blocking socket that copies the same bytes into"
        " prepared memory, the limit; the ratio is of our speed to the other's. `+=`: the server "
        "adds what was pushed"
        f" to what is pulled.{' Not installed here: ' + ', '.join(absent) + '.' if absent else ''}",
        [*_rows(times), _small_messages()],
    )


def _rows(times: dict[tuple[str, str, bool], list[float]]) -> list[Row]:
    rows = []
    for (name, link, adds), measured in times.items():
        if name == "ours":
            continue
        bare = "a bare socket" if link == "Unix" else "a bare one with TLS"
        other = {"bare": bare, "gloo": "gloo, which does not encrypt"}.get(name, name)
        on = "Unix socket" if link == "Unix" else "TCP socket with TLS 1.3"
        what = f"{on}{', with +=' if adds else ''}, against {other}"
        ours, others = times["ours", link, adds], measured
        ratio = statistics.median(other / own for own, other in zip(ours, others, strict=True))
        best = min(others) / min(ours)
        rows.append(Row(what, _speed(min(ours)), _speed(min(others)), f"{ratio:.2f} ({best:.2f})"))
    return rows


def _speed(seconds: float) -> str:
    return f"{2 * FLOATS * 4 / seconds / 1e9:.2f} GB/s"


def _in_turns(contenders: list[Contender]) -> dict[tuple[str, str, bool], list[float]]:
    """The times of all, round by round; a machine that is slow for a while is slow for
    everybody."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        cycles = {}
        for number, contender in enumerate(contenders):
            unix = UnixAddress(str(Path(folder) / f"{number}"))
            address = unix if contender.link == "Unix" else TcpAddress("127.0.0.1", 0)
            key = contender.name, contender.link, contender.adds
            cycles[key] = contender.client(stack, address, contender.adds)
        times: dict[tuple[str, str, bool], list[float]] = {key: [] for key in cycles}
        for number in range(ROUNDS + 2):
            for key in list(cycles)[:: -1 if number % 2 else 1]:
                start = _used_seconds()
                cycles[key]()
                if number >= 2:
                    times[key].append(_used_seconds() - start)
    return times


def _used_seconds() -> float:
    """Processor time of this process and those that it has started."""
    processes = [os.getpid(), *descendants(os.getpid())]
    tasks = [task for process in processes for task in Path(f"/proc/{process}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


# The server's own.
def _start(stack: ExitStack, serve: Callable[..., None], *arguments: Any) -> str:  # noqa: ANN401
    """Starts a server in a process of its own, which tells where it listens."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there, *arguments), daemon=True)
    process.start()
    there.close()
    stack.callback(process.join)
    stack.callback(process.terminate)
    return str(here.recv())


# -- ours ------------------------------------------------------------------------------------------


def _ours(stack: ExitStack, address: Address, adds: bool) -> Cycle:
    endpoint = Endpoint(Identity("client"), _SECRET)
    stack.callback(endpoint.close)
    endpoint.connect("server", parse_address(_start(stack, _serve_ours, str(address), adds)))
    assert isinstance(endpoint.poll(10)[0], Connected)
    floats = np.ones(FLOATS, np.float32)

    def cycle() -> None:
        endpoint.send("server", "push", arrays=[floats])
        (event,) = endpoint.poll(60)
        assert isinstance(event, Received)
        assert event.arrays[0].size == FLOATS

    return cycle


def _serve_ours(ready: Connection, address: str, adds: bool) -> None:
    endpoint = Endpoint(Identity("server"), _SECRET)
    state = np.ones(FLOATS, np.float32)
    ready.send(str(endpoint.listen(parse_address(address))))
    while True:
        for event in endpoint.poll():
            if isinstance(event, Received):
                if adds:
                    np.add(state, event.arrays[0], out=state)
                endpoint.send("client", "state", arrays=[state])
            elif isinstance(event, Lost):
                endpoint.close()
                return


# -- a bare socket ---------------------------------------------------------------------------------


def _bare(stack: ExitStack, address: Address, adds: bool) -> Cycle:
    where = parse_address(_start(stack, _serve_bare, str(address), adds))
    family, place = (
        (socket.AF_UNIX, where.path) if isinstance(where, UnixAddress) else where.resolve()
    )
    sock = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
    _as_ours(sock, where)
    sock.connect(place)
    if isinstance(where, TcpAddress):
        _, context = contexts_of(_SECRET)
        sock = stack.enter_context(context.wrap_socket(sock, server_hostname=HOSTNAME))
    floats, memory = np.ones(FLOATS, np.float32), np.ones(FLOATS, np.float32)

    def cycle() -> None:
        sock.sendall(floats.data)
        assert _received(sock, memory)

    return cycle


def _serve_bare(ready: Connection, address: str, adds: bool) -> None:
    where = parse_address(address)
    family, place = (
        (socket.AF_UNIX, where.path) if isinstance(where, UnixAddress) else where.resolve()
    )
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind(place)
        listener.listen()
        ready.send(
            str(
                where
                if isinstance(where, UnixAddress)
                else TcpAddress(where.host, listener.getsockname()[1])
            )
        )
        sock, _ = listener.accept()
    _as_ours(sock, where)
    if isinstance(where, TcpAddress):
        context, _ = contexts_of(_SECRET)
        sock = context.wrap_socket(sock, server_side=True)
    state, memory = np.ones(FLOATS, np.float32), np.ones(FLOATS, np.float32)
    with sock:
        while _received(sock, memory):
            if adds:
                np.add(state, memory, out=state)
            sock.sendall(state.data)


def _as_ours(sock: socket.socket, address: Address) -> None:
    """Set like a socket of ours, except that it waits."""
    tune(sock, TransportSettings().buffer_bytes(address))
    sock.setblocking(True)


def _received(sock: socket.socket, memory: Floats) -> bool:
    left = memory.data.cast("B")
    while left:
        count = sock.recv_into(left)
        if not count:
            return False
        left = left[count:]
    return True


# -- others, where installed -----------------------------------------------------------------------


def _zmq(stack: ExitStack, address: Address, _: bool) -> Cycle:
    zmq = importlib.import_module("zmq")

    sock = stack.enter_context(stack.enter_context(zmq.Context()).socket(zmq.PAIR))
    sock.connect(_start(stack, _serve_zmq, str(address)))
    floats = np.ones(FLOATS, np.float32)

    def cycle() -> None:
        sock.send(floats, copy=False)
        assert np.frombuffer(sock.recv(copy=False), np.float32).size == FLOATS

    return cycle


def _serve_zmq(ready: Connection, address: str) -> None:
    zmq = importlib.import_module("zmq")

    state = np.ones(FLOATS, np.float32)
    with zmq.Context() as context, context.socket(zmq.PAIR) as sock:
        sock.bind(f"ipc://{address.removeprefix('unix:')}")
        ready.send(sock.getsockopt_string(zmq.LAST_ENDPOINT))
        while True:
            sock.recv(copy=False)
            sock.send(state, copy=False)


def _gloo(stack: ExitStack, _: Address, __: bool) -> Cycle:
    torch, distributed = (
        importlib.import_module("torch"),
        importlib.import_module("torch.distributed"),
    )

    store = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "store"
    # The other process has to end first: it would complain about the end of this one.
    stack.callback(distributed.destroy_process_group)
    _start(stack, _serve_gloo, str(store))
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=2)
    floats, memory = torch.ones(FLOATS), torch.ones(FLOATS)

    def cycle() -> None:
        distributed.send(floats, 1)
        distributed.recv(memory, 1)

    return cycle


def _serve_gloo(ready: Connection, store: str) -> None:
    torch, distributed = (
        importlib.import_module("torch"),
        importlib.import_module("torch.distributed"),
    )

    ready.send(store)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=1, world_size=2)
    state, memory = torch.ones(FLOATS), torch.ones(FLOATS)
    while True:
        distributed.recv(memory, 0)
        distributed.send(state, 0)


# -- small messages --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    partition: int
    rows: NDArray[np.int32] | None
    values: NDArray[np.float32]


@dataclass(frozen=True)
class _Push:
    epoch: int
    worker: str
    clock: int
    covers: tuple[tuple[int, int, int], ...]
    want: int
    seconds: float
    parts: tuple[_Part, ...]


def _small_messages() -> Row:
    """The time of a message in Python, to a frame and back, without the socket."""
    rows = np.arange(100, dtype=np.int32)
    parts = tuple(_Part(number, rows, np.ones((100, 4), np.float32)) for number in range(3))
    message = _Push(1, "worker-1", 7, ((0, 0, 4), (5, 0, 4)), 8, 0.25, parts)
    codec, limits = Codec([_Push]), FrameLimits()
    reader = FrameReader(limits, BufferPool(0), scratch_for(limits))

    def there_and_back() -> None:
        kind, header, arrays = codec.encode(message)
        pieces, length = encode(kind, header, arrays, limits)
        reader.room()[:length] = b"".join(pieces)
        (frame,) = reader.took(length)
        codec.decode(frame.kind, frame.header, frame.arrays)

    times = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(1000):
            there_and_back()
        times.append((time.perf_counter() - start) / 1000)
    return Row(
        "a message of 7 fields and 6 small arrays to a frame and back", shown(min(times)), ""
    )
