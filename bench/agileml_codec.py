"""The time that AgileML's message codec needs for the messages of a simulated job.

    python -m bench.agileml_codec

The codec turns a message into a header and a list of arrays, and back, with every type checked.
Framing is not measured.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import is_dataclass

from agileml.apps.registry import TrainerSource
from agileml.core.events import ControllerSettings
from agileml.engines.sim.fleet import Simulation
from agileml.protocol import messages
from agileml.roles.node import JobSettings
from agileml.transport import codec as codec_module
from agileml.transport.codec import Codec

CLOCKS, ROUNDS = 30, 7


def capture_messages() -> list[object]:
    """Every message of a short matrix factorization on four nodes; one joins late and one
    leaves."""
    trainer = TrainerSource("mf", {"ratings": 20_000, "users": 400, "items": 300, "rank": 8}).load()
    sent: list[object] = []

    def collect(simulation: Simulation) -> None:
        last = simulation.messages.last
        if last is not None and (not sent or sent[-1] is not last[2]):
            sent.append(last[2])

    simulation = Simulation(
        trainer, ControllerSettings(1, 3, CLOCKS), JobSettings(), observe=collect
    )
    for number in range(4):
        simulation.join(reliable=number == 0)
    simulation.time.at(3.0, lambda: simulation.warn("t2", 100.0))
    simulation.time.at(4.0, lambda: _join(simulation))
    simulation.run()
    return [message for message in sent if type(message) in _kinds()]


def _kinds() -> list[type]:
    return [
        kind for kind in vars(messages).values() if isinstance(kind, type) and is_dataclass(kind)
    ]


def _join(simulation: Simulation) -> None:
    simulation.join(reliable=False)


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
    sent = capture_messages()
    codec = Codec(_kinds())
    names = Counter(type(message).__name__ for message in sent)
    print(
        f"{len(sent)} messages: "
        + ", ".join(f"{count} {name}" for name, count in names.most_common(6))
    )
    frames = [codec.encode(message) for message in sent]
    size = sum(len(header) for _, header, _ in frames) / len(sent)
    writing = best(lambda: [codec.encode(message) for message in sent])
    reading = best(lambda: [codec.decode(*frame) for frame in frames])
    print(
        f"encode {1e6 * writing / len(sent):.2f} us, decode {1e6 * reading / len(sent):.2f} us,"
        f" header {size:.0f} bytes, {len(inspect.getsource(codec_module).splitlines())} lines"
    )


if __name__ == "__main__":
    main()
