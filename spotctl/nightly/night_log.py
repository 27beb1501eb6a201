"""The log of a night: lines with the time on the clock, in one file a night, of which the newest are kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import date, tzinfo
from pathlib import Path

from pricing_data.units import to_datetime

MOST_NIGHTS = 60
MOST_BYTES = 1 << 20

_FULL = "this log is full; the event log (spotctl status, spotctl report) has the rest"


class NightLog:
    """Appends to a night's log; starts of the same night share one."""

    def __init__(self, folder: Path, day: date, zone: tzinfo, clock: Callable[[], int]) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = folder / f"{day.isoformat()}.log"
        self._zone = zone
        self._clock = clock
        for old in sorted({*folder.glob("*.log"), self.path})[:-MOST_NIGHTS]:
            old.unlink(missing_ok=True)

    def write(self, lines: Iterable[str]) -> None:
        """Adds lines."""
        now = f"{to_datetime(self._clock()).astimezone(self._zone):%Y-%m-%d %H:%M:%S %Z}"
        for line in lines:
            self._append(f"{now}  {line}\n".encode())

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            size = file.tell()
            if size + len(line) <= MOST_BYTES:
                file.write(line)
            elif size <= MOST_BYTES:
                # One line passes the limit, so that none comes after it.
                file.write(f"{_FULL}\n".encode().ljust(MOST_BYTES - size + 1))
