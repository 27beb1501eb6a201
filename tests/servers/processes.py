"""Servers of other authors as processes of their own."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_SECONDS = 60.0
_PLACE = re.compile(r"https?://127\.0\.0\.1:(\d+)")


@contextmanager
def listening(command: Sequence[str], log: Path) -> Iterator[int]:
    """The port of 127.0.0.1 on which a server says that it listens. What it prints goes to the
    log."""
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield _port(process, log)
        finally:
            process.kill()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < give_up:
        place = _PLACE.search(log.read_text(encoding="utf-8"))
        if place:
            return int(place[1])
        assert process.poll() is None, log.read_text(encoding="utf-8")
        time.sleep(0.05)
    raise AssertionError(f"it does not listen: {log.read_text(encoding='utf-8')}")
