"""The launcher as client of a run whose runner lives on a rented machine: its event log follows the copy of the run's,
and the runner's machine carries out commands over ssh, with the terminal of this computer."""

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from agileml.errors import AgileMLError
from spotctl.agent.blobs.bucket import StoreRefused
from spotctl.agent.store_patience import PATIENCE_SECONDS, is_temporary
from spotctl.clouds.base import CloudProvider, Machine, MachineState
from spotctl.clouds.capabilities import Invocation, TakesCommands
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.installation import installation_id
from spotctl.clouds.tags import INSTALLATION_TAG, RUN_TAG
from spotctl.clouds.wiring import provider_of
from spotctl.files.job.reader import restored
from spotctl.files.job.spec import JobSpec
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.log.folding import fold
from spotctl.log.state import RunState
from spotctl.log.store import EventLog
from spotctl.run.elsewhere.errors import RunnerLost
from spotctl.run.elsewhere.fence import Claim, Watch
from spotctl.run.elsewhere.log_copy import CopiedRow, LogCopy, add_missing
from spotctl.run.elsewhere.place import RunPlace
from spotctl.run.elsewhere.runner_start import COMMAND
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


class RunnerClient:
    """A run whose runner lives on a machine, from a computer that has the run's ssh key in a home of its own."""

    def __init__(self, place: RunPlace, settings: Settings) -> None:
        self.place, self._settings = place, settings
        self.follower = Follower(place, settings)

    @cached_property
    def settings(self) -> Settings:
        """Settings with the home of the run."""
        return replace(self._settings, home=Paths(self._settings.home).elsewhere(self.place.job))

    @cached_property
    def state(self) -> RunState:
        """The state of the run when this was first asked."""
        return self.follower.state()

    @cached_property
    def spec(self) -> JobSpec:
        """The job. RunnerLost: the run did not get as far as a runner elsewhere."""
        if self.state.began is None:
            raise RunnerLost(f"run {self.place.run}: no files of this run at {self.place.location}")
        return restored(self.state.began.spec, self.settings.home)

    @cached_property
    def provider(self) -> CloudProvider:
        return provider_of(self.settings, self.spec)

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the run's machines."""
        return {INSTALLATION_TAG: installation_id(self.settings.home), RUN_TAG: self.place.run}

    def runner(self) -> str:
        """The machine of the runner. RunnerLost: there is none."""
        claim = self.follower.claim()
        if claim is None or not claim.holder:
            raise RunnerLost(f"run {self.place.run}: its runner is not on any machine; {self.follower.ways_out}")
        if claim.failure:
            raise RunnerLost(f"run {self.place.run}: its runner has failed: {claim.failure}; {self.follower.ways_out}")
        return claim.holder

    def machines(self) -> tuple[Machine, ...]:
        """The machines of the run that are not gone, as the cloud lists them. Raises ProviderError."""
        return tuple(machine for machine in self.provider.list(self.tags) if machine.state is not MachineState.GONE)

    def call(self, words: Sequence[str], *, terminal: bool = False) -> int:
        """Runs a command of spotctl on the runner's machine; returns its exit code. RunnerLost: no connection."""
        invocation = self._invocation([COMMAND, *words])
        stdin = None if terminal else subprocess.DEVNULL
        process = subprocess.Popen(
            invocation.words, env=dict(invocation.environment), cwd=invocation.folder, stdin=stdin
        )
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if invocation.lost(code) is not None:
            raise RunnerLost(
                f"run {self.place.run}: the connection to its runner failed; if the public address of this computer"
                f" has changed: spotctl admit {self.place.job} ADDRESS/32; or {self.follower.ways_out}"
            )
        return code

    def ask(self, words: Sequence[str], seconds: float) -> bool:
        """Runs a command of spotctl there silently; returns whether the command has ended by itself in that time."""
        invocation = self._invocation([COMMAND, *words])
        try:
            done = subprocess.run(
                invocation.words,
                env=dict(invocation.environment),
                cwd=invocation.folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return invocation.lost(done.returncode) is None

    def _invocation(self, words: Sequence[str]) -> Invocation:
        provider, machine = self.provider, self.runner()
        assert isinstance(provider, TakesCommands)
        try:
            return provider.invocation(machine, words)
        except ProviderError as error:
            raise RunnerLost(f"run {self.place.run}: {error}; {self.follower.ways_out}") from None
