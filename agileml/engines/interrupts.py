"""Ctrl-C as a request: code that handles messages must not be interrupted in the middle of one."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

ONE_PRESS_SECONDS = 0.5
"""A signal that follows sooner is the same press: programs that run others pass on what a terminal
sends to all."""


def until_done(turn: Callable[[], T | None], stop: Callable[[], None]) -> tuple[T, bool]:
    """Repeats `turn` until it has a result; `stop` is called once if Ctrl-C is pressed. Also
    returns whether it was.
    """
    stopping = False
    with requested_by_ctrl_c() as requested:
        while (result := turn()) is None:
            if requested() and not stopping:
                stopping = True
                stop()
    return result, stopping


@contextmanager
def requested_by_ctrl_c(
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed. Pressed again, it raises KeyboardInterrupt as usual.

    Changes nothing in other threads than the main one, and where the caller has a handler of its
    own.
    """
    pressed_at: float | None = None

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed_at
        if pressed_at is None:
            pressed_at = clock()
        elif clock() - pressed_at >= ONE_PRESS_SECONDS:
            signal.default_int_handler(number, frame)

    own = threading.current_thread() is threading.main_thread()
    own = own and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if own:
        signal.signal(signal.SIGINT, press)

    try:
        yield lambda: pressed_at is not None
    finally:
        if own:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def ignored_by_children() -> Iterator[None]:
    """Processes that begin within the block ignore Ctrl-C, which a terminal sends to all: their
    parent ends them.

    The parent notices it at the end of the block: it would not know of a process that is only half
    begun.
    """
    pressed: list[int] = []
    own = threading.current_thread() is threading.main_thread()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    # The mask is that of one thread, and children inherit it. Any other thread may still receive
    # the signal.
    handler = (
        signal.signal(signal.SIGINT, lambda number, _: pressed.append(number)) if own else None
    )
    try:
        yield
    finally:
        if own:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if pressed:
            signal.raise_signal(signal.SIGINT)


def end_with_parent() -> None:
    """Waits in a child until the process that began it has ended, however that came about, and ends
    the child: otherwise it would wait for work for ever.
    """
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
