"""Commands that the runner's machine carries out over ssh, with the terminal of this computer."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

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
from spotctl.log.state import RunState
from spotctl.run.elsewhere.errors import RunnerLost
from spotctl.run.elsewhere.following import Follower
from spotctl.run.elsewhere.place import RunPlace
from spotctl.run.elsewhere.runner_start import COMMAND


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
