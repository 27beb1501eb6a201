"""A deliberate bug of a cloud's provider, and the trial that detects it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch


@dataclass(frozen=True)
class ProviderMutant:
    """A bug: what it replaces, and a trial in a folder that raises if it meets the bug.

    Trials are tests of the contract (`tests.spotctl.clouds.contract`), or ask the cloud's server
    what is left.
    """

    cloud: str
    name: str
    where: object
    attribute: str
    fault: object
    trial: Callable[[Path], None]

    def alive(self) -> AbstractContextManager[object]:
        """Introduces the bug for the duration of the context."""
        return patch.object(self.where, self.attribute, self.fault)

    def caught(self, folder: Path) -> str | None:
        """How the trial fails with the bug; None if it passes."""
        try:
            with self.alive():
                self.trial(folder)
        # Whatever a trial raises counts, as pytest's own outcomes do.
        except BaseException as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"
        return None
