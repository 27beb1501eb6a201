"""`KeptOutput`: the output of rented machines, kept on this computer beyond the life of the machines."""

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from pricing_data.units import DAY, SECOND
from spotctl.agent.files import read_from
from spotctl.agent.output_times import times_file
from spotctl.clouds.base import CloudProvider
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.link import printed, printed_at
from spotctl.home.paths import KEPT_DAYS

EVERY_SECONDS = 2.0
"""How often a machine is asked for new output."""

CLUSTER = "ray"
"""The name, in the place of a machine's, under which the output of a training on a Ray cluster is kept."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")


class KeptOutput:
    """Two files per machine in a folder of the run: the output, and its times.

    There is one writer, the run's process, and any number of readers.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._due: dict[str, float] = {}

    def fetch(self, provider: CloudProvider, machine: str, *, now: bool = False) -> None:
        """Adds what the machine has printed since the last time, if that was long enough ago, or `now`.

        A machine that does not answer is asked again the next time. A full disk loses output, and must not keep a
        machine from being returned.
        """
        if not now and time.monotonic() < self._due.get(machine, 0.0):
            return
        self._due[machine] = time.monotonic() + EVERY_SECONDS
        path = self._path(machine)
        with suppress(ProviderError, OSError):
            if new := printed(provider, machine, _size(path)):
                self._add(path, new)
                self._add(times_file(path), printed_at(provider, machine, _size(times_file(path))))

    def _add(self, path: Path, new: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
            file.write(new)

    def output(self, machine: str, after: int = 0) -> bytes:
        """The kept output of a machine, from a byte offset on."""
        return read_from(self._path(machine), after)

    def output_times(self, machine: str, after: int = 0) -> bytes:
        """The times of the kept output; see `KeepsOutput`."""
        return read_from(times_file(self._path(machine)), after)

    def _path(self, machine: str) -> Path:
        return self._folder / _NOT_IN_NAMES.sub("_", machine)


def delete_old(runs: Path, now: float) -> None:
    """Deletes the output that machines of earlier runs printed more than `KEPT_DAYS` ago, but no results."""
    for times in runs.glob("*/output/*.times"):
        with suppress(OSError):
            if times.stat().st_mtime < now - KEPT_DAYS * DAY / SECOND:
                times.with_suffix("").unlink(missing_ok=True)
                times.unlink()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
