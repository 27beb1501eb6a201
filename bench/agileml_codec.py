"""What AgileML's message codec takes for the messages that a simulated job really sends.

    python -m bench.agileml_codec

The codec turns a message into a header and a list of arrays, and back, with every type checked. Framing is not
measured.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import is_dataclass

from agileml.apps.registry import TrainerSource
from agileml.core.events import ControllerSettings
from agileml.engines.sim.simulation import Simulation
from agileml.protocol import messages
from agileml.roles.node import JobSettings
from agileml.transport import codec as codec_module
from agileml.transport.codec import Codec

CLOCKS, ROUNDS = 30, 7


def captured() -> list[object]:
    """Every message of a short matrix factorization on four nodes; one joins late and one leaves."""
    trainer = TrainerSource("mf", {"ratings": 20_000, "users": 400, "items": 300, "rank": 8}).load()
    found: list[object] = []

    def collect(simulation: Simulation) -> None:
        last = simulation.messages.last
        if last is not None and (not found or found[-1] is not last[2]):
            found.append(last[2])

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
    codec = Codec(_kinds())
    names = Counter(type(message).__name__ for message in found)
    print(f"{len(found)} messages: " + ", ".join(f"{count} {name}" for name, count in names.most_common(6)))
    frames = [codec.encode(message) for message in found]
    size = sum(len(header) for _, header, _ in frames) / len(found)
    writing = best(lambda: [codec.encode(message) for message in found])
    reading = best(lambda: [codec.decode(*frame) for frame in frames])
    print(
        f"encode {1e6 * writing / len(found):.2f} us, decode {1e6 * reading / len(found):.2f} us,"
        f" header {size:.0f} bytes, {len(inspect.getsource(codec_module).splitlines())} lines"
    )


if __name__ == "__main__":
    main()
