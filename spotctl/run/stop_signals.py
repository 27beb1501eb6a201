"""SIGINT and SIGTERM while a run goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, current_thread, main_thread


@contextmanager
def stop_signals(stopped: Event) -> Iterator[None]:
    """The first signal sets `stopped`, so that the run can stop; a second one ends this process.

    Only the main thread receives signals; elsewhere this does nothing.
    """
    if current_thread() is not main_thread():
        yield
        return

    def received(*_: object) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    before = {number: signal.signal(number, received) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
