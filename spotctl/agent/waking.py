"""`WakeUps`: pauses of a process that watches children, ended early by a child's death or a signal."""

import os
import select
import signal
from collections.abc import Callable


class WakeUps:
    """Pauses that signals end, through a pipe, so that no signal arrives unseen just before a pause begins."""

    def __init__(self) -> None:
        self._pipe = os.pipe()

    @property
    def descriptors(self) -> tuple[int, int]:
        """The pipe's ends, which children must close."""
        return self._pipe

    def listen(self, on_signal: Callable[..., None]) -> None:
        """Has `on_signal` called from now on when this process is asked to end."""
        for end in self._pipe:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, on_signal)

    def pause(self, seconds: float) -> None:
        if select.select([self._pipe[0]], [], [], seconds)[0]:
            os.read(self._pipe[0], 4096)
