"""Work in C libraries, which neither Ctrl-C nor a time limit can end by itself."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread, current_thread, enumerate as running_threads, main_thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

_LEFT = "left behind"
_STOP_SECONDS = 1.0
"""How long work may take to stop once it was asked to."""


def interruptible(
    work: Callable[[], T], stop: Callable[[], None], seconds: float | None = None
) -> T:
    """The result of `work`, which runs in another thread. After `seconds`, and at Ctrl-C, `stop`
    asks it to end.

    Raises TimeoutError or KeyboardInterrupt then, even if the work continues: its result is not
    used.
    """
    from concurrent.futures import Future  # every command imports this module

    result: Future[T] = Future()
    thread = Thread(target=_run, args=(work, result), daemon=True)
    thread.start()
    try:
        return result.result(seconds)
    finally:
        if not result.done():
            stop()
            thread.join(_STOP_SECONDS)
            thread.name = _LEFT


def is_work_left() -> bool:
    """Whether work that was asked to stop still runs: then the interpreter cannot shut down
    cleanly.
    """
    return any(thread.name == _LEFT for thread in running_threads())


def _run(work: Callable[[], T], result: Future[T]) -> None:
    try:
        result.set_result(work())
    except BaseException as error:  # noqa: BLE001  # raised again in the thread that waits
        result.set_exception(error)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Lets Ctrl-C wait: a compiled module that is interrupted while it is imported aborts the
    process.
    """
    if current_thread() is not main_thread():
        yield
        return

    received = list[int]()
    before = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

    if received:
        signal.raise_signal(signal.SIGINT)
