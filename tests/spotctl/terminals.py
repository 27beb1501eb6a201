"""A command in a pseudo-terminal of its own, as a person starts it there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.waiting import PATIENCE_SECONDS, eventually

CTRL_C = "\x03"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """The screen and the keyboard of a command, which leads the session of the terminal."""

    def __init__(self, *words: str | Path) -> None:
        self._keyboard, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self.command = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *map(str, words)],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(inside)
        self._printed = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def screen(self) -> str:
        """All that was printed, without what moves the cursor."""
        return _ESCAPES.sub("", self._printed.decode(errors="replace")).replace("\r", "")

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    def wait_for(self, text: str) -> None:
        eventually(lambda: text in self.screen or self.command.poll() is not None)
        assert text in self.screen, self.screen

    def exit_code(self) -> int:
        code = self.command.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return code

    def close(self) -> None:
        """Closes the terminal, as a window or a lost connection does: the system sends SIGHUP."""
        keyboard, self._keyboard = self._keyboard, -1
        if keyboard >= 0:
            os.close(keyboard)

    def _read(self) -> None:
        keyboard = self._keyboard
        # A terminal whose last process has ended cannot be read.
        with suppress(OSError):
            while new := os.read(keyboard, 4096):
                self._printed += new


_COMMAND = """
import fcntl, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from spotctl.cli.app import main
main()
"""


@contextmanager
def terminal(*words: str | Path) -> Iterator[Terminal]:
    made = Terminal(*words)
    try:
        yield made
    finally:
        if made.command.poll() is None:
            os.killpg(made.command.pid, signal.SIGKILL)
            made.command.wait()
        made.close()
