"""The log of a night: one file per night with lines that begin with the local time."""

import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import date, timedelta, tzinfo
from pathlib import Path

from pricing_data.units import to_datetime
from spotctl.home.paths import KEPT_DAYS

MOST_BYTES = 1 << 20

_FULL = "this log is full; see the event log (spotctl status, spotctl report) for the rest"


class NightLog:
    """Appends to the log of a night, which all starts of the same night share.

    A night is not lost because its log cannot be written.
    """

    def __init__(self, folder: Path, day: date, zone: tzinfo, clock: Callable[[], int]) -> None:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = folder / f"{day.isoformat()}.log"
        self._zone = zone
        self._clock = clock

    def write(self, lines: Iterable[str]) -> None:
        """Appends lines with the current time."""
        now = f"{to_datetime(self._clock()).astimezone(self._zone):%Y-%m-%d %H:%M:%S %Z}"
        with suppress(OSError):
            for line in lines:
                self._append(f"{now}  {line}\n".encode())

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            size = file.tell()
            if size + len(line) <= MOST_BYTES:
                file.write(line)
            elif size <= MOST_BYTES:
                # The last line exceeds the limit, so that no further line is written.
                file.write(f"{_FULL}\n".encode().ljust(MOST_BYTES - size + 1))


def delete_old(folder: Path, today: date, kept: Collection[date]) -> None:
    """Deletes the files of nights that are older than `KEPT_DAYS`, except those of the days in `kept`."""
    for path in folder.glob("????-??-??.*"):
        with suppress(ValueError, OSError):
            day = date.fromisoformat(path.stem)
            if day < today - timedelta(days=KEPT_DAYS) and day not in kept:
                path.unlink()
