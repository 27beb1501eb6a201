"""A machine that was taken over: it knows the secret of its link, and answers what it likes. Each
seed is a case.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from spotctl.agent.errors import AgentError
from spotctl.agent.link.output import OUTPUT_CHUNK
from spotctl.agent.link.wire import MAX_FRAME_BYTES, AgentHandshake, LinkFrameReader

MACHINE, SECRET = "m-0", bytes(range(32))
DRIP_SECONDS = 0.02

_NESTED = b"[" * 100_000 + b"]" * 100_000
_VALUES: tuple[bytes, ...] = (
    *(b"null", b"true", b'""', b"{}", b"[]", b"-1", b"3.5", b"NaN", b"-Infinity", b"1e999", b"-0"),
    *(b"1" + b"0" * power for power in (9, 17, 18, 19, 40, 5000)),
    *(
        b'"\\ud800"',
        b'"\\u0000\\u001b]0;x\\u0007"',
        b'"m-1"',
        b'"../../x"',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        b'"NaN"',
    ),
    b'"' + b"x" * 700_000 + b'"',
    b"[" + b"{}," * 200_000 + b"{}]",
    *(_NESTED, b"[" * 900 + b"]" * 900, b'{"a":' * 900 + b"1" + b"}" * 900),
    b'[{"kind": "evict", "until": %d, "source": "m-1"}]' % 10**18,
    b'[{"kind": "evict", "until": -1, "source": "m-1"}]',
    b'[{"kind": "evict", "until": 99999999999999999, "source": "m-1"}]',
    b'{"busy": 1e999, "memory": -1}',
    b'{"received": %d, "sent": 1}' % 10**17,
)


def _honest(rng: Random) -> dict[str, dict[str, Any]]:
    """The parts that a whole machine would answer, by request."""
    text = base64.b64encode(rng.randbytes(200)).decode()
    return {
        "status": {
            "work": "w",
            "exit_code": None,
            "lease_until": 10**15,
            "notices": 1,
            "cards": {"busy": 1, "memory": 2},
            "traffic": {"received": 1, "sent": 2},
        },
        "notices": {"notices": [{"kind": "evict", "until": 10**15, "source": "cloud"}]},
        "output": {"output": text},
        "output_times": {"times": base64.b64encode(b"100 1700000000000000\n").decode()},
        "exec": {"id": 1},
        "exec_read": {"out": "", "err": "", "code": 0},
        "assign": {},
        "renew": {},
        "notify": {},
    }


class HostileMachine:
    """Serves links on a port of this computer, until it is closed."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._ways: tuple[Callable[[str], bytes | None], ...] = (
            *(self._changed,) * 6,
            *(self._flooded,) * 3,
            *(
                self._raw,
                self._refused,
                self._announced,
                self._half,
                self._unsigned,
                self._endless,
                self._dripping,
            ),
        )
        self.way = self._rng.choice(self._ways)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._open: list[socket.socket] = []
        self._closed = threading.Event()
        self._hostile_greeting = self._rng.random() < 0.15
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._listener.close()
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                self._open.append(caller)
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with suppress(OSError, AgentError), caller:
            if self._hostile_greeting:
                caller.sendall(self._greeting())
                caller.recv(1 << 16)
                caller.sendall(_framed(b'{"proof": "\\u00e9"}'))
                return
            handshake, reader = AgentHandshake(SECRET, MACHINE), LinkFrameReader()
            caller.sendall(handshake.hello)
            last, self._seal, receiving = handshake.finish(_received(caller, reader))
            caller.sendall(last)
            reader.limit = MAX_FRAME_BYTES
            while True:
                self._answer(caller, str(receiving.verify(_received(caller, reader))["do"]))

    def _greeting(self) -> bytes:
        hello = json.dumps({"spotctl": 1, "machine": MACHINE, "challenge": "c"}).encode()
        value = self._rng.choice([value for value in _VALUES if len(value) < 900])
        return self._rng.choice(
            [
                _framed(hello.replace(b'"c"', value)),
                _framed(hello.replace(b'"m-0"', value)),
                _framed(hello.replace(b"1", value)),
                _framed(value),
                _framed(b'{"refused": ' + value + b"}"),
                (1 << 31).to_bytes(4, "big"),
                self._rng.randbytes(100),
                hello[:3],
                b"",
            ]
        )

    def _answer(self, caller: socket.socket, operation: str) -> None:
        # Some requests are answered as they should be, so that the next ones are asked.
        way = self.way if self._rng.random() < 0.7 else self._signed_honest
        sent = way(operation)
        if sent is None:
            raise OSError("closes")
        if way == self._dripping:
            for byte in sent:
                if self._closed.is_set():
                    return
                caller.sendall(bytes([byte]))
                time.sleep(DRIP_SECONDS)
            return
        caller.sendall(sent)

    def _signed(self, body: bytes) -> bytes:
        body = body[: MAX_FRAME_BYTES - 32]
        return _framed(self._seal._mac(body) + body)

    def _signed_honest(self, operation: str) -> bytes:
        return self._signed(json.dumps(_honest(self._rng)[operation]).encode())

    def _dripping(self, operation: str) -> bytes:
        return self._signed_honest(operation)

    def _changed(self, operation: str) -> bytes:
        """An answer in which one part is something else, or missing, or one more."""
        parts = {
            key: json.dumps(part).encode() for key, part in _honest(self._rng)[operation].items()
        }
        key = self._rng.choice([*parts, "refused", "ending", "other"])
        if self._rng.random() < 0.2:
            parts.pop(key, None)
        else:
            parts[key] = self._rng.choice(_VALUES)
        return self._signed(
            b"{"
            + b", ".join(b'"%s": %s' % (name.encode(), part) for name, part in parts.items())
            + b"}"
        )

    def _flooded(self, operation: str) -> bytes:
        """Output, times and notices without end."""
        lines = self._rng.choice(
            [b"\n", b"\r", b"\0", b"x", b"99 1\n", b"9" * 5000 + b" 1\n", b"1 99999999999999999\n"]
        )
        part = base64.b64encode((lines * (OUTPUT_CHUNK // len(lines) + 1))[:OUTPUT_CHUNK]).decode()
        notices = [{"kind": "evict", "until": n, "source": ""} for n in range(20_000)]
        full = {
            "output": part,
            "times": part,
            "out": part,
            "err": part,
            "code": None,
            "id": 1,
            "notices": notices,
        }
        kept = _honest(self._rng)[operation]
        return self._signed(
            json.dumps({**kept, **{key: full[key] for key in kept if key in full}}).encode()
        )

    def _raw(self, _: str) -> bytes:
        return self._signed(self._rng.choice([*_VALUES, self._rng.randbytes(1000), b""]))

    def _refused(self, _: str) -> bytes:
        ending = self._rng.choice([b"false", b"true", b"{}", b'"x"'])
        return self._signed(b'{"refused": %s, "ending": %s}' % (self._rng.choice(_VALUES), ending))

    def _announced(self, _: str) -> bytes:
        return (
            self._rng.choice([1 << 21, 1 << 31, (1 << 32) - 1, 0, 5]).to_bytes(4, "big")
            + b"x" * 100
        )

    def _half(self, operation: str) -> bytes | None:
        """A part of an answer, after which nothing comes, or the connection closes."""
        whole = self._signed_honest(operation)
        return None if self._rng.random() < 0.3 else whole[: self._rng.randrange(len(whole))]

    def _unsigned(self, operation: str) -> bytes:
        whole = bytearray(self._signed_honest(operation))
        whole[self._rng.randrange(4, len(whole))] ^= 1
        return self._rng.choice(
            [bytes(whole), self._signed_honest(operation)[:-1] + b"!", _framed(b"{}")]
        )

    def _endless(self, operation: str) -> bytes:
        """One answer, and thousands that nobody has asked for."""
        return b"".join(self._signed_honest(operation) for _ in range(3000))


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def _received(caller: socket.socket, reader: LinkFrameReader) -> bytes:
    while (body := reader.next()) is None:
        received = caller.recv(1 << 16)
        if not received:
            raise OSError("closed")
        reader.feed(received)
    return body


def peak_bytes() -> int:
    """The most memory of this process since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def forget_peak() -> int:
    """Sets the peak back to what this process has now, and returns that."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()
