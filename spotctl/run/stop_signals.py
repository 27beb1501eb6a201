"""SIGINT and SIGTERM while a run goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread, current_thread, main_thread

_LOOK_SECONDS = 0.1


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


@contextmanager
def noticing(stopped: Event, noticed: Callable[[], None]) -> Iterator[None]:
    """Calls `noticed` once `stopped` is set: in another thread, since this one may be waiting for a cloud."""
    over = Event()

    def watch() -> None:
        while not over.wait(_LOOK_SECONDS):
            if stopped.is_set():
                noticed()
                return

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
