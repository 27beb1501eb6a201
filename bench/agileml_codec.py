"""AgileML's message codec against msgspec, on the messages that a simulated job really sends.

    python -m bench.agileml_codec        (needs msgspec, which the product does not)

Both turn a message into a JSON header and a list of arrays, and back, with every type checked. Framing is not measured.
"""

from __future__ import annotations

import inspect
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from agileml.apps.registry import TrainerSource
from agileml.core.events import ControllerSettings
from agileml.engines.sim.simulation import Simulation
from agileml.protocol import messages
from agileml.roles.node import JobSettings
from agileml.transport import codec as codec_module
from agileml.transport.codec import Codec

CLOCKS, ROUNDS = 30, 7


def captured() -> list[object]:
    """Every message of a short matrix factorization on four nodes, one of which joins and one of which leaves."""
    trainer = TrainerSource("mf", {"ratings": 20_000, "users": 400, "items": 300, "rank": 8}).load()
    found: list[object] = []

    def collect(simulation: Simulation) -> None:
        if simulation.last_message is not None and (not found or found[-1] is not simulation.last_message[2]):
            found.append(simulation.last_message[2])

    simulation = Simulation(trainer, ControllerSettings(1, 3, CLOCKS), JobSettings(), observe=collect)
    for number in range(4):
        simulation.join(reliable=number == 0)
    simulation.at(3.0, lambda: simulation.warn("t2", 100.0))
    simulation.at(4.0, lambda: _join(simulation))
    simulation.run()
    return [message for message in found if type(message) in _kinds()]


def _kinds() -> list[type]:
    return [kind for kind in vars(messages).values() if isinstance(kind, type) and is_dataclass(kind)]


def _join(simulation: Simulation) -> None:
    simulation.join(reliable=False)


class MsgspecCodec:
    """The same contract on msgspec: headers are objects with field names, arrays are numbers."""

    def __init__(self, kinds: Sequence[type]) -> None:
        import msgspec

        self._arrays: list[np.ndarray] = []
        self._next = 0
        self._encoder = msgspec.json.Encoder(enc_hook=self._put)
        self._decoders: dict[type, Any] = {kind: msgspec.json.Decoder(kind, dec_hook=self._take) for kind in kinds}

    def _put(self, value: object) -> int:
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{type(value).__name__} cannot be sent")
        self._arrays.append(value)
        return len(self._arrays) - 1

    def _take(self, kind: Any, value: object) -> np.ndarray:  # noqa: ANN401 - an annotation
        if value != self._next or self._next >= len(self._arrays):
            raise ValueError("not the number of the next array")
        self._next += 1
        array = self._arrays[self._next - 1]
        scalar = kind.__args__[1].__args__[0] if getattr(kind, "__args__", None) else np.generic
        if scalar not in (np.generic, Any) and not issubclass(array.dtype.type, scalar):
            raise ValueError(f"an array of {array.dtype}")
        return array

    def encode(self, message: object) -> tuple[bytes, list[np.ndarray]]:
        """Header and arrays."""
        self._arrays = []
        return self._encoder.encode(message), self._arrays

    def decode(self, kind: type, header: bytes, arrays: list[np.ndarray]) -> object:
        """The message."""
        self._arrays, self._next = arrays, 0
        return self._decoders[kind].decode(header)


def best(work: Callable[[], object]) -> float:
    """The shortest of several rounds, in seconds."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Prints microseconds and bytes per message, and lines of code."""
    found = captured()
    kinds = _kinds()
    ours = Codec(kinds)
    write = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
    names = Counter(type(message).__name__ for message in found)
    print(f"{len(found)} messages: " + ", ".join(f"{count} {name}" for name, count in names.most_common(6)))

    def encoded(message: object) -> tuple[str, bytes, list[np.ndarray]]:
        kind, header, arrays = ours.encode(message)
        return kind, write(header).encode(), arrays

    frames = [encoded(message) for message in found]
    report(
        "ours",
        len(found),
        frames,
        lambda: [encoded(message) for message in found],
        lambda: [ours.decode(kind, json.loads(header), arrays) for kind, header, arrays in frames],
    )
    theirs = MsgspecCodec(kinds)
    others = [(type(message), *theirs.encode(message)) for message in found]
    report(
        "msgspec",
        len(found),
        others,
        lambda: [theirs.encode(message) for message in found],
        lambda: [theirs.decode(kind, header, arrays) for kind, header, arrays in others],
    )
    print(
        f"lines: ours {len(inspect.getsource(codec_module).splitlines())},"
        f" msgspec {len(inspect.getsource(MsgspecCodec).splitlines())} without its error messages and unions"
    )


def report(
    name: str,
    count: int,
    frames: Sequence[tuple[Any, bytes, Any]],
    encode: Callable[[], object],
    decode: Callable[[], object],
) -> None:
    """One line of the table."""
    size = sum(len(header) for _, header, _ in frames) / count
    print(
        f"{name:<8} encode {1e6 * best(encode) / count:6.2f} us, decode {1e6 * best(decode) / count:6.2f} us,"
        f" header {size:6.0f} bytes"
    )


if __name__ == "__main__":
    main()
