"""SIGINT, SIGTERM and SIGHUP while a run goes on."""

import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread, current_thread, main_thread

_LOOK_SECONDS = 0.1


@contextmanager
def stop_signals(stopped: Event) -> Iterator[None]:
    """The first signal sets `stopped`, so that the run can stop; a second one ends this process.

    A terminal that is closed sends SIGHUP, perhaps more than once: it never ends the process that
    returns machines. A process that was started to ignore it, such as by nohup, goes on ignoring
    it.

    Only the main thread receives signals; elsewhere this does nothing.
    """
    if current_thread() is not main_thread():
        yield
        return

    def received(number: int, _: object) -> None:
        if number == signal.SIGHUP:
            _leave_terminal()
        elif stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, received) for number in numbers}

    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_terminal() -> None:
    """Sends what is printed from now on nowhere: writing to a terminal that is closed fails."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        # A closed terminal is none any more, but still a device.
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            os.dup2(nowhere, descriptor)
    os.close(nowhere)


@contextmanager
def noticing(stopped: Event, noticed: Callable[[], None]) -> Iterator[None]:
    """Calls `noticed` once `stopped` is set: in another thread, since this one may be waiting for a
    cloud.
    """
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
