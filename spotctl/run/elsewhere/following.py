"""The launcher as a client: its event log follows the copy of a run whose runner lives on a rented machine."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agileml.errors import AgileMLError
from spotctl.agent.blobs.bucket import StoreRefused
from spotctl.agent.store_patience import PATIENCE_SECONDS, is_temporary
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.log.folding import fold
from spotctl.log.state import RunState
from spotctl.log.store import EventLog
from spotctl.run.elsewhere.errors import RunnerLost
from spotctl.run.elsewhere.fence import Claim, Watch
from spotctl.run.elsewhere.log_copy import CopiedRow, LogCopy, add_missing
from spotctl.run.elsewhere.place import RunPlace
from spotctl.run.launcher_identity import LAUNCHER
from spotctl.run.start.observing import RunEnd

LOOK_SECONDS = 3.0


@dataclass(slots=True)
class Follower:
    """Copies the log of a run elsewhere into the log of a home."""

    place: RunPlace
    settings: Settings
    _copy: LogCopy = field(init=False)

    def __post_init__(self) -> None:
        self._copy = LogCopy(self.place.store(LAUNCHER))

    def claim(self) -> Claim | None:
        """Who runs the run. RunnerLost: the object store does not say."""
        try:
            stored = self.place.claim(LAUNCHER).read()
        except StoreRefused as error:
            raise RunnerLost(f"run {self.place.run}: {error}") from error
        return None if stored is None else Claim.from_bytes(stored.data)

    def rows(self) -> list[CopiedRow]:
        """The rows of the run's log. RunnerLost: they cannot be read."""
        try:
            return self._copy.rows()
        except (OSError, AgileMLError) as error:
            raise RunnerLost(f"run {self.place.run}: the copy of its log cannot be read: {error}") from error

    def state(self) -> RunState:
        """The state of the run, which is also in the home's log now. RunnerLost: it cannot be read."""
        rows = self.rows()
        with EventLog(Paths(self.settings.home).log) as log:
            add_missing(log, self.place.run, rows)
            return fold(log.of_run(self.place.run))

    def add(self, path: Path) -> None:
        """Adds the rows that another log of this computer has of the run."""
        with EventLog(path) as other, EventLog(Paths(self.settings.home).log) as log:
            add_missing(log, self.place.run, other.of_run(self.place.run))

    def follow(
        self, on_turn: Callable[[RunState], None], left: Callable[[], bool], note: Callable[[str], None]
    ) -> RunEnd | None:
        """Waits for the end of the run; None if the user has `left` before. `note` is told when the store fails.

        RunnerLost: its runner is not there, or the object store fails for longer than its machines wait for it.
        """
        watch, answered_at, is_noted = Watch(), time.monotonic(), False
        while not left():
            try:
                state = self._look(watch)
            except RunnerLost as error:
                if not is_temporary(error) or time.monotonic() - answered_at >= PATIENCE_SECONDS:
                    raise
                if not is_noted:
                    note(f"{error}; trying again")
                # The runner cannot renew its claim either.
                watch, is_noted = Watch(), True
            else:
                answered_at, is_noted = time.monotonic(), False
                on_turn(state)
                if state.ended is not None:
                    return state, state.ended
            time.sleep(LOOK_SECONDS)
        return None

    def _look(self, watch: Watch) -> RunState:
        """The state of the run. RunnerLost: no runner is at work on it."""
        state, claim = self.state(), self.claim()
        if state.ended is None and claim is not None:
            if claim.failure:
                raise RunnerLost(f"run {self.place.run}: its runner has failed: {claim.failure}; {self.ways_out}")
            if watch.is_stale(claim, time.monotonic()):
                raise RunnerLost(f"run {self.place.run}: its runner on {claim.holder} is silent; {self.ways_out}")
        return state

    @property
    def ways_out(self) -> str:
        """The command that helps a user whose run has no runner any more."""
        return f"'spotctl stop {self.place.job}' returns its machines from this computer"
