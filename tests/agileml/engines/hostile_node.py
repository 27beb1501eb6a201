"""A hostile node: a process with all that a node has, which does what its seed says.

    python -m tests.agileml.engines.hostile_node FIRST COUNT

A `Talker` speaks to the processes of a training by itself: over sockets of its own, with its own
credentials. It never takes part. A turncoat is a node that has joined as others do, and falsifies
what it sends from some message on.
"""

from __future__ import annotations

import dataclasses
import math
import os
import random
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from agileml.errors import AgileMLError
from agileml.pipeline.run.fleet_job import PIPELINE_MESSAGES
from agileml.protocol.actions import CONTROLLER, JOB_LOOP
from agileml.protocol.messages import Hello, Ready
from agileml.runtime.attach import code_version
from agileml.runtime.mailbox import codec
from agileml.runtime.remote_blobs import BLOB_MESSAGES, BlobPiece, BlobRequest, NextPiece
from agileml.runtime.rendezvous import Directory
from agileml.transport import FrameLimits, Identity, TcpAddress, new_instance
from agileml.transport.certificates import Credentials, contexts_of, credentials_of
from agileml.transport.codec import BUCKET, Codec
from agileml.transport.framing import Array, encode
from agileml.transport.handshake import BLOB_CLIENT, Failure, Handshake
from tests.agileml.engines.attached_jobs import (
    PACE,
    SECRET,
    AttachedTraining,
    free_port,
    secret_file,
    write_trainer,
)

HOSTNAME = "job.agileml"
PATIENCE_SECONDS = 20.0
TURNCOAT_SECONDS = 4.0
READY_SECONDS = 120.0
LOOK_SECONDS = 0.03
"""How long a talker waits for what its victim does."""

WIRE = codec((*PIPELINE_MESSAGES, *BLOB_MESSAGES))
KINDS = sorted(WIRE._kinds, key=lambda kind: kind.__name__)
ANY_SIZE = FrameLimits(
    header_bytes=1 << 30, body_bytes=1 << 34, arrays=1 << 20, dimensions=64, kind_length=1 << 16
)

NUMBERS = (-1, 0, 1, 2, 3, 7, 100, 10**6, 2**31, 2**53, 2**63 - 1, -(2**63))
FLOATS = (0.0, -1.0, 1.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324)
TEXTS = (
    "",
    "controller",
    "job-loop",
    "..",
    "../node.job",
    "/etc/passwd",
    "node.job",
    "a/b",
    "\0",
    "\x1b[2J\a\r\n",
    "é" * 40,
)
DTYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<f2", "<i4", "<u4", "<f4", "<i8", "<u8", "<f8")


@dataclass(frozen=True)
class Target:
    """The training that is attacked: where its processes listen, and what a node knows of it."""

    controller: TcpAddress
    nodes: dict[str, TcpAddress]
    code: str
    epoch: Callable[[], int]
    clock: Callable[[], int]
    mark: Path
    """A file that nothing but a planted pickle makes."""


class Planted:
    """The function that unpickling it runs."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self._mark,))


# -- what a message can hold -----------------------------------------------------------------------


@dataclass
class Drawn:
    """Draws values by their types, most of them wrong and some of them plausible."""

    rng: random.Random
    own: str
    target: Target
    _left: int = 0
    """How many items may still be drawn: drawing many takes long."""

    def message(self, kind: type) -> object:
        self._left = 2000
        return self._of(msgspec.inspect.type_info(kind), "")

    def changed(self, message: object) -> object:
        """A message with one field that is drawn anew."""
        described: Any = msgspec.inspect.type_info(type(message))
        (name, info) = self.rng.choice([(f.name, f.type) for f in described.fields] or [("", None)])
        self._left = 2000
        if not name:
            return message
        return dataclasses.replace(message, **{name: self._of(info, name)})  # type: ignore[type-var]

    # One for each type.
    def _of(self, info: Any, name: str, depth: int = 0) -> Any:  # noqa: ANN401, C901, PLR0911
        match info:
            case msgspec.inspect.IntType():
                return self._number(name)
            case msgspec.inspect.FloatType():
                return self.rng.choice(FLOATS)
            case msgspec.inspect.BoolType():
                return self.rng.random() < 0.5
            case msgspec.inspect.StrType():
                return self._text(name)
            case msgspec.inspect.LiteralType():
                return self.rng.choice(info.values)
            case msgspec.inspect.NoneType():
                return None
            case msgspec.inspect.UnionType():
                return self._of(self.rng.choice(info.types), name, depth)
            case msgspec.inspect.CustomType():
                return self._array()
            case msgspec.inspect.TupleType():
                return tuple(self._of(item, name, depth + 1) for item in info.item_types)
            case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
                items = [
                    self._of(info.item_type, name, depth + 1) for _ in range(self._count(depth))
                ]
                return items if isinstance(info, msgspec.inspect.ListType) else tuple(items)
            case msgspec.inspect.DictType():
                return {
                    self._of(info.key_type, name): self._of(info.value_type, name, 2)
                    for _ in range(2)
                }
            case msgspec.inspect.DataclassType():
                return info.cls(
                    **{f.name: self._of(f.type, f.name, depth + 1) for f in info.fields}
                )
        return None

    def _number(self, name: str) -> int:
        likely = {
            "epoch": self.target.epoch(),
            "clock": self.target.clock() + self.rng.randrange(-2, 4),
        }
        if name in likely and self.rng.random() < 0.7:
            return likely[name]
        return self.rng.choice(NUMBERS) if self.rng.random() < 0.7 else self.rng.randrange(8)

    def _text(self, name: str) -> str:
        if name in ("node", "worker") and self.rng.random() < 0.7:
            return self.own
        if name == "code" and self.rng.random() < 0.7:
            return self.target.code
        if self.rng.random() < 0.02:
            return "x" * (1 << 19)
        return self.rng.choice((*TEXTS, *self.target.nodes, self.own))

    def _count(self, depth: int) -> int:
        many = 500 if depth < 2 else 5
        count = self.rng.choice((0, 1, 2, 3)) if self.rng.random() < 0.97 else many
        self._left -= count
        return count if self._left >= 0 else 0

    def _array(self) -> np.ndarray[Any, Any]:
        shape = self.rng.choice(((), (0,), (1,), (3,), (30, 3), (40, 2), (2, 2, 2), (0, 7), (500,)))
        array = np.empty(shape, self.rng.choice(DTYPES))
        array.fill(self.rng.choice((0, 1)))
        if array.dtype.kind == "f" and self.rng.random() < 0.5:
            array.fill(np.nan)
        return array


# -- links -----------------------------------------------------------------------------------------


class Refused(OSError):
    """The victim did not let this process in."""


class RawLink:
    """A TLS connection with a node's credentials, on which anything can be sent."""

    def __init__(self, credentials: Credentials, at: TcpAddress, peer: str, name: str) -> None:
        self._socket = ssl_socket(credentials, at)
        try:
            self._shake_hands(Identity(name, new_instance(), code_version()), credentials, peer)
        except (Failure, OSError) as error:
            self.close()
            raise Refused(str(error)) from error

    def _shake_hands(self, me: Identity, credentials: Credentials, peer: str) -> None:
        handshake = Handshake(me, credentials.job, expected=peer)
        self._socket.sendall(handshake.opening())
        while not handshake.done:
            data = b""
            while len(data) < handshake.wanted:
                more = self._socket.recv(handshake.wanted - len(data))
                if not more:
                    raise Refused("it closed the connection")
                data += more
            self._socket.sendall(handshake.receive(data))

    def send(self, content: bytes) -> None:
        self._socket.sendall(content)

    def frame(self, kind: str, header: bytes, arrays: Sequence[np.ndarray[Any, Any]] = ()) -> None:
        for piece in encode(kind, header, arrays, ANY_SIZE)[0]:
            self.send(bytes(piece))

    def say(self, message: object) -> None:
        self.frame(*WIRE.encode(message))

    def is_closed(self, seconds: float = LOOK_SECONDS) -> bool:
        """Whether the victim ends the connection within this time; what it sends is read."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                if not self._socket.recv(1 << 16):
                    return True
            except TimeoutError:
                break
            except OSError:
                return True
        self._socket.settimeout(PATIENCE_SECONDS)
        return False

    def close(self) -> None:
        self._socket.close()


def ssl_socket(credentials: Credentials, at: TcpAddress) -> ssl.SSLSocket:
    plain = socket.create_connection((at.host, at.port), PATIENCE_SECONDS)
    OPENED.append(
        contexts_of(credentials)[1].wrap_socket(
            plain, server_hostname=HOSTNAME, do_handshake_on_connect=False
        )
    )
    OPENED[-1].do_handshake()
    return OPENED[-1]


OPENED: list[ssl.SSLSocket] = []
"""The connections of an attack, which the victim may end while they are made."""


# -- talkers ---------------------------------------------------------------------------------------


@dataclass
class Talker:
    """One attack, by its number. `run` returns what became of it."""

    number: int
    target: Target
    rng: random.Random = field(init=False)
    name: str = field(init=False)
    credentials: Credentials = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.number)
        self.name = f"bad-{self.number}"
        self.credentials = credentials_of(SECRET.encode(), self.name)
        self.drawn = Drawn(self.rng, self.name, self.target)

    def run(self) -> str:
        attacks = [
            *[self.messages] * 12,
            *[self.messages_after_hello] * 12,
            *[self.messages_to_a_node] * 4,
            *[self.names] * 3,
            *[self.blobs] * 8,
            *[self.flood] * 4,
            *[self.raw] * 8,
            *[self.silence] * 1,
            *[self.many_links] * 1,
            *[self.directory] * 2,
        ]
        attack = attacks[self.number % len(attacks)]
        try:
            end = attack()
        except Refused:
            end = "refused"
        except OSError:
            end = "closed"
        finally:
            while OPENED:
                OPENED.pop().close()
        return f"{attack.__name__}: {end}"

    def link(self, name: str | None = None, node: str | None = None) -> RawLink:
        at = self.target.controller if node is None else self.target.nodes[node]
        return RawLink(self.credentials, at, node or CONTROLLER, name or self.name)

    def _ended(self, *links: RawLink) -> str:
        ends = [link.is_closed() for link in links]
        for link in links:
            link.close()
        return "closed" if all(ends) else "ignored"

    def messages(self) -> str:
        link = self.link(self.rng.choice((self.name, self.name, f"{self.name}@heartbeat")))
        for _ in range(self.rng.randrange(1, 4)):
            link.say(self.drawn.message(self.rng.choice(KINDS)))
        return self._ended(link)

    def messages_after_hello(self) -> str:
        link = self.link()
        link.say(Hello(self.name, self.rng.random() < 0.5, self.target.code))
        kinds = [kind for kind in KINDS if kind.__name__ not in ("Broken", "Ready")]
        reports = [kind for kind in kinds if "node" in kind.__dataclass_fields__]  # type: ignore[attr-defined]
        for _ in range(self.rng.randrange(1, 6)):
            message = self.drawn.message(
                self.rng.choice(reports if self.rng.random() < 0.8 else kinds)
            )
            if hasattr(message, "node"):
                message = dataclasses.replace(message, node=self.name)  # type: ignore[type-var]
            link.say(message)
        return self._ended(link)

    def messages_to_a_node(self) -> str:
        link = self.link(node=self.rng.choice(sorted(self.target.nodes)))
        for _ in range(3):
            link.say(self.drawn.message(self.rng.choice(KINDS)))
        return self._ended(link)

    def names(self) -> str:
        """Other names under its own certificate."""
        node = self.rng.choice((None, *self.target.nodes))
        others = (
            *self.target.nodes,
            CONTROLLER,
            JOB_LOOP,
            "r0@heartbeat",
            f"{BLOB_CLIENT}r0/1",
            f"{self.name}@x",
        )
        link = self.link(self.rng.choice(others), node)
        link.say(Hello("r0", True, self.target.code))
        return self._ended(link)

    def blobs(self) -> str:
        link = self.link(f"{BLOB_CLIENT}{self.name}/{self.number}")
        names: tuple[str, ...] = (
            "node.job",
            "../x",
            "/tmp/x",
            "",
            "controller.memory",
            "lock",
            "checkpoints/p0-c1.checkpoint",
            "a" * 300,
            "checkpoints/../node.job",
            "checkpoints/p0-c1.checkpoint.part",
            "node.job\0",
            "checkpoints/p9-c9.checkpoint",
        )
        kind = self.rng.choice(("read", "write", "write", "list", "delete"))
        link.say(BlobRequest(kind, self.rng.choice(names)))  # type: ignore[arg-type]
        planted = np.frombuffer(pickled(self.target.mark), np.uint8)
        for _ in range(self.rng.choice((0, 1, 3))):
            size = self.rng.choice((1, 1000, 1 << 20, 9 << 20))
            content = planted if size == 1 else np.zeros(size, np.uint8)
            link.say(BlobPiece(content, self.rng.choice(("", "", "00000000", "x"))))
        return self._ended(link)

    def flood(self) -> str:
        """Much, without waiting for anything."""
        if self.rng.random() < 0.5:
            link = self.link(f"{BLOB_CLIENT}{self.name}/1")
            requests = (
                BlobRequest("read", "node.job"),
                BlobPiece(np.zeros(1 << 20, np.uint8)),
                NextPiece(),
            )
            request: object = self.rng.choice(requests)
            count = 40
        else:
            link, request, count = self.link(), self.drawn.message(self.rng.choice(KINDS)), 2000
        kind, header, arrays = WIRE.encode(request)
        frame = b"".join(bytes(piece) for piece in encode(kind, header, arrays, ANY_SIZE)[0])
        count = min(count, max(2, (32 << 20) // len(frame)))
        for _ in range(count):
            link.send(frame)
        return self._ended(link)

    def raw(self) -> str:
        return self.rng.choice(
            (
                self.junk_before_tls,
                self.junk_after_tls,
                self.half_frame,
                self.drip,
                self.large_frame,
                self.bucket,
                self.bombs,
            )
        )()

    def junk_before_tls(self) -> str:
        at = self.rng.choice((self.target.controller, *self.target.nodes.values()))
        with socket.create_connection((at.host, at.port), PATIENCE_SECONDS) as plain:
            plain.sendall(self.rng.randbytes(self.rng.choice((1, 100, 100_000))))
            return "junk"

    def junk_after_tls(self) -> str:
        at = self.rng.choice((self.target.controller, *self.target.nodes.values()))
        with ssl_socket(self.credentials, at) as link:
            link.sendall(self.rng.randbytes(self.rng.choice((1, 7, 100_000))))
        return "junk"

    def half_frame(self) -> str:
        link = self.link()
        kind, header, arrays = WIRE.encode(self.drawn.message(self.rng.choice(KINDS)))
        frame = b"".join(bytes(piece) for piece in encode(kind, header, arrays, ANY_SIZE)[0])
        link.send(frame[: self.rng.randrange(len(frame))])
        return self._ended(link)

    def drip(self) -> str:
        link = self.link()
        frame = b"".join(bytes(piece) for piece in encode("Hello", b"x" * 100, [], ANY_SIZE)[0])
        for byte in frame[:20]:
            link.send(bytes([byte]))
            time.sleep(0.002)
        return self._ended(link)

    def large_frame(self) -> str:
        """A large body is announced, and sent in part."""
        size = self.rng.choice((1 << 20, 120 << 20, 128 << 20, 1 << 30, 1 << 62))
        link = self.link(
            self.rng.choice((self.name, f"{self.name}@heartbeat", f"{BLOB_CLIENT}{self.name}/1"))
        )
        table = [("|u1", (size,))]
        head = msgspec.msgpack.encode(("Collected", b"", table))
        link.send(b"AgM2" + len(head).to_bytes(4, "little") + size.to_bytes(8, "little") + head)
        for _ in range(64):
            link.send(bytes(1 << 20))
        return self._ended(link)

    def bucket(self) -> str:
        """A huge message is announced in buckets, and sent in part."""
        link = self.link(self.rng.choice((self.name, f"{BLOB_CLIENT}{self.name}/1")))
        total = self.rng.choice((1 << 20, 1 << 28, 1 << 39))
        described = self.rng.choice((1000, 1 << 20, total))
        at = 0
        for _ in range(64):
            piece = np.zeros(min(1 << 20, total - at), np.uint8)
            link.frame(BUCKET, msgspec.msgpack.encode((at, described, total)), [piece])
            at += piece.size
        return self._ended(link)

    def bombs(self) -> str:
        """Few bytes of which much is made."""
        link = self.link()
        if self.rng.random() < 0.5:
            holds = tuple((300, 300) for _ in range(100_000))
            link.frame("Hello", msgspec.msgpack.encode(Hello(self.name, False, "x", 0, 0, holds)))
        else:
            link.frame("Hello", b"\x91" * (1 << 19))
        small = b"".join(bytes(piece) for piece in encode("a", b"", [], ANY_SIZE)[0])
        link.send(small * ((4 << 20) // len(small)))
        return self._ended(link)

    def silence(self) -> str:
        """A node that is ready and does nothing."""
        link = self.link()
        link.say(Hello(self.name, False, self.target.code))
        link.say(Ready(self.name))
        return self._ended(link)

    def many_links(self) -> str:
        links: list[RawLink] = []
        with suppress(Refused):
            for number in range(60):
                links.append(self.link(f"{BLOB_CLIENT}{self.name}/{number}"))
                links[-1].send(b"AgM2" + (100).to_bytes(4, "little"))
        assert len(links) < 60, "one node has 60 links"
        return self._ended(*links)

    def directory(self) -> str:
        """Addresses of others, or without an end."""
        link = self.link()
        name = self.rng.choice((self.name, self.name, "r0", CONTROLLER))
        addresses = self.rng.choice(
            (("tcp:127.0.0.1:1",), (), ("unix:/etc/passwd",), ("x" * 10_000,), ("y",) * 10_000)
        )
        for _ in range(self.rng.choice((1, 2, 500))):
            link.say(Directory({name: addresses}))
        return self._ended(link)


def pickled(mark: Path) -> bytes:
    import pickle

    return pickle.dumps(Planted(mark))


# -- turncoats -------------------------------------------------------------------------------------

FALSIFIED = (
    *(
        "Push",
        "Push",
        "Snapshot",
        "Snapshot",
        "Handover",
        "Patch",
        "Restore",
        "NeedVersion",
        "Pull",
        "Reads",
        "TakeShard",
    ),
    *(
        "WorkDone",
        "PartitionProgress",
        "PartitionProgress",
        "Taken",
        "Adopted",
        "Routed",
        "Restored",
        "Saved",
        "Contributed",
    ),
    *(
        "Hello",
        "Collected",
        "Evaluated",
        "Unlinked",
        "Drained",
        "Heartbeat",
        "ServerTimed",
        "EndOfLife",
        "Collect",
    ),
)


def turn(seed: int, name: str) -> None:
    """From now on this process, which is about to join as a node, falsifies messages of some
    kind."""
    rng = random.Random(seed)
    kind, after, way = (
        FALSIFIED[seed % len(FALSIFIED)],
        rng.randrange(3),
        rng.choice(("change", "change", "draw", "replay")),
    )
    others = ("r0", "t1", "t2")
    somewhere = TcpAddress("127.0.0.1", 1)
    target = Target(
        somewhere,
        dict.fromkeys(others, somewhere),
        "",
        lambda: rng.randrange(1, 6),
        lambda: rng.randrange(9),
        Path(),
    )
    drawn, honest = Drawn(rng, name, target), Codec.encode
    seen, earlier = Counter[str](), list[object]()
    kinds = {each.__name__: each for each in KINDS}

    def encode(self: Codec, message: object) -> tuple[str, bytes, list[Array]]:
        of = type(message).__name__
        seen[of] += 1
        earlier.append(message)
        if of == "PartitionProgress" and kind == "Unlinked" and seen[of] > after:
            # Accuses an honest node as often as it reports.
            message = kinds["Unlinked"](name, rng.choice(others), "it sent nonsense", True)
        elif (of == kind and seen[of] > after) or (
            of in ("Push", "WorkDone")
            and kind not in others
            and seen[of] > 3 + after
            and way == "draw"
        ):
            if way == "change":
                message = drawn.changed(message)
            elif way == "draw":
                message = drawn.message(kinds[kind])
            else:
                message = rng.choice(earlier[-20:])
        with suppress(AgileMLError):
            return honest(self, message)
        return honest(self, earlier[-1])

    Codec.encode = encode  # type: ignore[method-assign]


def join_as_turncoat(seed: int, words: list[str]) -> int:
    from agileml import join

    turn(seed, words[words.index("--name") + 1])
    return join.main(words)


# -- the training that is attacked -----------------------------------------------------------------


def resident_bytes(pid: int, what: str = "VmRSS") -> int:
    with suppress(OSError):
        found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) * 1024 if found else 0
    return 0


def family(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from family(int(child))


class Attacked:
    """A training with honest nodes, whose memory, files and logs are watched."""

    NODES = (("r0", "--reliable"), ("t1",), ("t2",))

    def __init__(self, folder: Path, clocks: int, *, turncoats: bool = False) -> None:
        self.folder = folder
        # What a turncoat sends to other nodes may fail in their code; they say where.
        self.never_fails = (
            ("train",) if turncoats else ("train", *(name for name, *_ in self.NODES))
        )
        self.trainer = str(write_trainer(folder / "code"))
        if turncoats:
            # They are to send much in a short time.
            (folder / "code" / "helpers" / "pace.py").write_text(PACE.replace("0.05", "0.01"))
        self.hurry, self.mark = folder / "hurry", folder / "planted"
        self._short = tempfile.TemporaryDirectory(prefix="s-", dir="/tmp")
        self.state = Path(self._short.name) / "state"
        self.words = ("--nodes", "1+2", "--clocks", str(clocks), "--seed", "7")
        listen, more = TcpAddress("127.0.0.1", free_port()), ("--timeouts", "heartbeat=30")
        if turncoats:
            more = ("--timeouts", "heartbeat=5")
        options = (*self.words, "--state", str(self.state), "--arg", f"hurry={self.hurry}", *more)
        self.training = AttachedTraining(
            folder, listen, self.trainer, *options, secret=secret_file(folder)
        )
        ports = {name: free_port() for name, *_ in self.NODES}
        self.nodes = {
            name: self.training.join(name, *given, "--port", str(ports[name]))
            for name, *given in self.NODES
        }
        self.training.until_clock(2)
        self.target = Target(
            listen,
            {name: TcpAddress("127.0.0.1", port) for name, port in ports.items()},
            self._code(),
            self.epoch,
            self.clock,
            self.mark,
        )
        self.before = {pid: resident_bytes(pid) for pid in self.pids()}
        self.job = (self.state / "node.job").read_bytes()
        self.worst = 0

    def _code(self) -> str:
        from agileml.runtime.attach import published_in

        job = published_in(self.state)
        assert job is not None
        return job.role.job.source.code()

    def pids(self) -> list[int]:
        tops = [self.training.command.pid, *(node.pid for node in self.nodes.values())]
        return [pid for top in tops for pid in family(top)]

    def epoch(self) -> int:
        begun = re.findall(r"epoch (\d+) from", "\n".join(self.training.events))
        return int(begun[-1]) if begun else 1

    def clock(self) -> int:
        return max((line.get("clock", 0) for line in self.training.lines), default=0)

    def look(self) -> None:
        """Notes how much every process has grown, at most, and that nothing has happened that must
        not.
        """
        for pid in self.pids():
            before = self.before.setdefault(pid, resident_bytes(pid))
            self.worst = max(self.worst, resident_bytes(pid, "VmHWM") - before)
        assert not self.mark.exists(), "a planted pickle was read"
        if self.state.exists():
            # A training that ends, because it names a node that lies, takes its job away.
            with suppress(FileNotFoundError):
                assert (self.state / "node.job").read_bytes() == self.job
            strange = [
                path
                for path in self.state.rglob("*")
                if path.is_file() and not OWN_FILE.fullmatch(path.name)
            ]
            assert not strange, strange

    def join_turncoat(self, seed: int, name: str) -> subprocess.Popen[str]:
        """Starts a node that will falsify its messages."""
        at = self.target.controller
        words = [
            "-m",
            "tests.agileml.engines.hostile_node",
            "--turncoat",
            str(seed),
            f"{at.host}:{at.port}",
        ]
        words += ["--secret-file", str(secret_file(self.folder)), "--name", name]
        root = str(Path(__file__).parents[3])
        with (self.folder / f"{name}.err").open("w") as errors:
            return subprocess.Popen(
                [sys.executable, *words],
                stderr=errors,
                text=True,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": root},
            )

    def why_lost(self, name: str) -> str:
        """Why a node was given up; empty if it was not."""
        return next(
            (event for event in self.training.events if event.startswith(f"{name} lost")), ""
        )

    def stays(self) -> None:
        """Raises if the training has ended or an honest node has gone."""
        assert self.training.command.poll() is None, self.training.story()
        gone = [name for name, node in self.nodes.items() if node.poll() is not None]
        assert not gone, self.training.story()

    def finish(self) -> dict[str, Any]:
        self.look()
        self.hurry.touch()
        answer = self.training.ended()
        for name in self.never_fails:
            assert "Traceback" not in self.training.output_of(name), self.training.output_of(name)
        return answer

    def close(self) -> None:
        self.training.close()
        self._short.cleanup()


OWN_FILE = re.compile(
    r"node\.job|lock|controller\.[a-z]+|[a-z-]+\.(sock|log|out)|secret|.*\.part"
    # A checkpoint that is being written has another name until it is whole.
    r"|\.?p\d+-c\d+\.checkpoint(\.\w+)*"
)


def talk(
    folder: Path, first: int, count: int
) -> tuple[Counter[str], int, dict[str, Any], Attacked]:
    """Attacks one training many times; what became of each, the worst growth in bytes, and the
    training's answer.
    """
    attacked = Attacked(folder, 40 + count)
    outcomes = Counter[str]()
    try:
        for number in range(first, first + count):
            outcomes[Talker(number, attacked.target).run()] += 1
            if number % 10 == 0:
                attacked.look()
                attacked.stays()
        attacked.stays()
        answer = attacked.finish()
    finally:
        attacked.close()
    lost = [
        event
        for event in attacked.training.events
        for name in attacked.nodes
        if event.startswith(f"{name} lost")
    ]
    assert not lost, lost
    return outcomes, attacked.worst, answer, attacked


def betray(
    folder: Path, first: int, count: int
) -> tuple[Counter[str], int, dict[str, Any] | None, Attacked]:
    """Turncoats join one training, one after another: what became of each, and the answer, unless
    one has ended it.
    """
    attacked = Attacked(folder, 1000, turncoats=True)
    outcomes, answer = Counter[str](), None
    try:
        for seed in range(first, first + count):
            outcome = betrayal(attacked, seed)
            outcomes[outcome] += 1
            attacked.look()
            if outcome == "named":
                break
        else:
            answer = attacked.finish()
    finally:
        attacked.close()
    return outcomes, attacked.worst, answer, attacked


def betrayal(attacked: Attacked, seed: int) -> str:
    """The end of one turncoat: shut out, given up, kept until it was killed, or the training ended
    and named it.
    """
    name, training = f"turncoat-{seed}", attacked.training
    process = attacked.join_turncoat(seed, name)
    began = until = time.monotonic()
    try:
        while (
            process.poll() is None
            and training.command.poll() is None
            and not attacked.why_lost(name)
        ):
            if f"{name} ready" not in training.events and time.monotonic() < until + READY_SECONDS:
                began = time.monotonic()
            if time.monotonic() > began + TURNCOAT_SECONDS:
                break
            time.sleep(0.05)
        lost = attacked.why_lost(name)
    finally:
        process.kill()
        process.communicate()
    if training.command.poll() is not None:
        assert name in training.output_of("train").splitlines()[-1], training.story()
        return "named"
    if not lost:
        training.until(
            lambda: bool(attacked.why_lost(name)) or name not in training.events,
            f"the end of {name}",
        )
    return f"{FALSIFIED[seed % len(FALSIFIED)]}: " + (
        "shut out" if "it sent" in lost else "given up" if lost else "kept"
    )


def main(words: list[str]) -> int:
    if words[0] == "--turncoat":
        return join_as_turncoat(int(words[1]), words[2:])
    first, count = map(int, words)
    with tempfile.TemporaryDirectory() as folder:
        outcomes, worst, answer, _ = talk(Path(folder), first, count)
    for outcome, times in sorted(outcomes.items()):
        print(f"{times:6,}  {outcome}")  # noqa: T201 - a command
    print(  # noqa: T201
        f"{outcomes.total():,} cases; worst growth {worst / 1e6:.0f} MB; {answer['clocks']} clocks"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
