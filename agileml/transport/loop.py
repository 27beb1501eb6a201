"""Waiting for many sockets at once, and being woken from another thread."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
Ready = Callable[[int], None]
"""Called with READ, WRITE or both."""


class Loop:
    """Calls back for descriptors that are ready. Everything but `wake` belongs to one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._waker, self._alarm = socket.socketpair()
        for sock in (self._waker, self._alarm):
            sock.setblocking(False)
        self.woken = False
        self.watch(self._alarm.fileno(), READ, self._on_alarm)

    def watch(self, descriptor: int, mask: int, ready: Ready) -> None:
        """Begins to watch a descriptor."""
        self._selector.register(descriptor, mask, ready)

    def change(self, descriptor: int, mask: int) -> None:
        """Watches a descriptor for something else."""
        key = self._selector.get_key(descriptor)
        if key.events != mask:
            self._selector.modify(descriptor, mask, key.data)

    def forget(self, descriptor: int) -> None:
        """Watches it no more; to be said before it is closed."""
        self._selector.unregister(descriptor)

    def turn(self, wait: float) -> None:
        """Waits so long for something to be ready, and calls back."""
        for key, mask in self._selector.select(wait):
            key.data(mask)

    def wake(self) -> None:
        """Ends the wait; from any thread, at any time."""
        # A full buffer wakes it as well; a closed loop has nobody to wake.
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        """Gives its own descriptors back."""
        self._selector.close()
        self._alarm.close()
        self._waker.close()

    def _on_alarm(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._alarm.recv(4096):
                pass
        self.woken = True
