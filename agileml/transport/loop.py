"""A selector loop that another thread can wake."""

import contextlib
import selectors
import socket
from collections.abc import Callable

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
OnReady = Callable[[int], None]
"""Called with READ, WRITE or both."""


class Loop:
    """Calls back for ready descriptors. Only `wake` may be called from another thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._waker, self._alarm = socket.socketpair()
        for sock in (self._waker, self._alarm):
            sock.setblocking(False)
        self.woken = False
        self.watch(self._alarm.fileno(), READ, self._on_alarm)

    def watch(self, descriptor: int, mask: int, ready: OnReady) -> None:
        """Starts watching a descriptor."""
        self._selector.register(descriptor, mask, ready)

    def change(self, descriptor: int, mask: int) -> None:
        """Changes what a descriptor is watched for."""
        key = self._selector.get_key(descriptor)
        if key.events != mask:
            self._selector.modify(descriptor, mask, key.data)

    def forget(self, descriptor: int) -> None:
        """Stops watching a descriptor. Call it before closing the descriptor."""
        self._selector.unregister(descriptor)

    def turn(self, wait: float) -> None:
        """Waits up to `wait` seconds for ready descriptors, and calls back."""
        for key, mask in self._selector.select(wait):
            key.data(mask)

    def wake(self) -> None:
        """Interrupts the wait; may be called from any thread at any time."""
        # A full buffer wakes the loop as well, and a closed loop needs no waking.
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        """Closes the loop's own descriptors."""
        self._selector.close()
        self._alarm.close()
        self._waker.close()

    def _on_alarm(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._alarm.recv(4096):
                pass
        self.woken = True
