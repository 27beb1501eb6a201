"""A spotctl whose clocks run faster than this computer's: python -m tests.cloud.fast_clock COMMAND...

SPOTCTL_TESTS_CLOCK is `BEGIN SPEED`: the moment, in seconds since 1970, since which a second of this
computer is SPEED seconds. Its waits are as much shorter. Programs that it starts have the usual
clock.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

VARIABLE = "SPOTCTL_TESTS_CLOCK"


def faster(real: Callable[[], float], begin: float, speed: float) -> Callable[[], float]:
    """A clock that is at `begin` when this one is."""
    return lambda: begin + (real() - begin) * speed


def hasten(begin: float, speed: float) -> None:
    """Makes the clocks and the waits of this process faster."""
    clock = faster(time.time, begin, speed)
    lasting = faster(time.monotonic, time.monotonic(), speed)
    pause, wait = time.sleep, threading.Condition.wait

    def waited(self: threading.Condition, timeout: float | None = None) -> bool:
        return wait(self, None if timeout is None else timeout / speed)

    time.time = clock
    time.time_ns = lambda: round(clock() * 1e9)
    time.monotonic = lasting
    time.sleep = lambda seconds: pause(float(seconds) / speed)
    threading.Condition.wait = waited  # type: ignore[method-assign]


def main() -> Any:  # noqa: ANN401 - as the command line has it
    """Runs the command."""
    begin, speed = map(float, os.environ[VARIABLE].split())
    hasten(begin, speed)
    # Modules that take the clocks by name get the faster ones.
    from spotctl.cli.app import main as command_line

    return command_line()


if __name__ == "__main__":
    main()
