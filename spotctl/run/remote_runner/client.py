"""The launcher as client of a run whose runner lives on a rented machine.

Its event log follows the copy of the run's, and the runner's machine carries out commands over ssh,
with the terminal of this computer. The client ends the run, through the runner or in its place, and
removes what the run leaves.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial

from agileml.errors import AgileMLError
from pricing_data.units import SECOND, bid_usd, counted, format_time
from spotctl.agent.data.stores import StoreRefused
from spotctl.agent.data.transfer import PATIENCE_SECONDS, is_temporary
from spotctl.clouds.errors import ProviderError, Unanswered
from spotctl.clouds.link import Invocation
from spotctl.clouds.provider import CloudProvider, Machine, MachineState
from spotctl.clouds.wiring import provider_of
from spotctl.files.job.reader import restored
from spotctl.files.job.spec import JobSpec
from spotctl.home.callbacks import never
from spotctl.home.config import Settings
from spotctl.home.installation import INSTALLATION_TAG, RUN_TAG, installation_id
from spotctl.home.paths import Paths
from spotctl.log.budget import hourly
from spotctl.log.folding import fold
from spotctl.log.state import LogRow, RunState
from spotctl.log.store import EventLog
from spotctl.run.environment import LAUNCHER
from spotctl.run.following import UNPRICED, RunEnd, RunObserver, end_awaited, in_time, waits_said
from spotctl.run.remote_runner.fence import (
    SETTLE_SECONDS,
    SILENT_SECONDS,
    STALE_SECONDS,
    Claim,
    Fence,
    FencedProvider,
    Watch,
    settle,
)
from spotctl.run.remote_runner.homes import LogCopier, LogCopy, add_missing, fetch_output
from spotctl.run.remote_runner.place import RunnerLost, RunPlace
from spotctl.run.remote_runner.start import COMMAND
from spotctl.run.start import runs

LOOK_SECONDS = 3.0
LEFTOVER_SECONDS = 90.0

_ASK_SECONDS, _LOOK_SECONDS = 10.0, 5.0

_CLEAR_SECONDS = 30.0
"""How long a machine that was returned from here may take to be gone, and the looks and fetches in
addition."""

HEAR_SECONDS, CLAIM_SECONDS, RETURN_SECONDS = 38.0, 15.0, 15.0
"""How long a runner may take to hear that its run ends, the object store to take the claim after
that, and then the cloud to return the machines: less than `REACH_SECONDS`, as a store that answers
does so at once."""


class RunnerClient:
    """A run whose runner lives on a machine, from a computer that has the run's ssh key in a home
    of its own.

    The log of the computer's own home, which `own_settings` name, follows that of the run.
    """

    def __init__(self, place: RunPlace, own_settings: Settings) -> None:
        self.place = place
        self.own_settings = own_settings
        self.settings = replace(own_settings, home=Paths(own_settings.home).elsewhere(place.job))
        """Settings with the home of the run."""
        self.ways_out = f"'spotctl stop {place.job}' returns its machines from this computer"
        """The command that helps a user whose run has no runner any more."""
        self._copy = LogCopy(place.store(LAUNCHER))

    @cached_property
    def state(self) -> RunState:
        """The state of the run when this was first asked."""
        return self.read_state()

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

    def claim(self) -> Claim | None:
        """Who runs the run. RunnerLost: the object store does not say."""
        try:
            stored = self.place.claim(LAUNCHER).read()
        except StoreRefused as error:
            raise RunnerLost(f"run {self.place.run}: {error}") from error
        return None if stored is None else Claim.from_bytes(stored.data)

    def rows(self) -> list[LogRow]:
        """The rows of the run's log. RunnerLost: they cannot be read."""
        try:
            return self._copy.rows()
        except (OSError, AgileMLError) as error:
            raise RunnerLost(
                f"run {self.place.run}: the copy of its log cannot be read: {error}"
            ) from error

    def read_state(self) -> RunState:
        """The state of the run, which is also in the home's log now. RunnerLost: it cannot be
        read."""
        rows = self.rows()
        with EventLog(Paths(self.own_settings.home).log) as log:
            add_missing(log, self.place.run, rows)
            return fold(log.of_run(self.place.run))

    def follow(
        self,
        on_turn: Callable[[RunState], None],
        left: Callable[[], bool],
        note: Callable[[str], None],
    ) -> RunEnd | None:
        """Waits for the end of the run; None if the user has `left` before. `note` is told when the
        store fails.

        RunnerLost: its runner is not there, or the object store fails for longer than its machines
        wait for it.
        """
        watch = Watch()
        answered_at = time.monotonic()
        is_noted = False
        state = self.state
        with waits_said(lambda: end_awaited(state), note):
            while not left():
                try:
                    state = self._look(watch)
                except RunnerLost as error:
                    if (
                        not is_temporary(error)
                        or time.monotonic() - answered_at >= PATIENCE_SECONDS
                    ):
                        raise
                    if not is_noted:
                        note(f"{error}; trying again")
                    # The runner cannot renew its claim either.
                    watch = Watch()
                    is_noted = True
                else:
                    answered_at = time.monotonic()
                    is_noted = False
                    on_turn(state)
                    if state.ended is not None:
                        return state, state.ended
                time.sleep(LOOK_SECONDS)

        return None

    def _look(self, watch: Watch) -> RunState:
        """The state of the run. RunnerLost: no runner is at work on it."""
        state = self.read_state()
        claim = self.claim()
        if state.ended is None and claim is not None:
            if claim.failure:
                raise RunnerLost(
                    f"run {self.place.run}: its runner has failed: {claim.failure}; {self.ways_out}"
                )
            if watch.is_stale(claim, time.monotonic()):
                raise RunnerLost(
                    f"run {self.place.run}: its runner on {claim.holder} is silent; {self.ways_out}"
                )

        return state

    def runner(self) -> str:
        """The machine of the runner. RunnerLost: there is none."""
        claim = self.claim()
        if claim is None or not claim.holder:
            raise RunnerLost(
                f"run {self.place.run}: its runner is not on any machine; {self.ways_out}"
            )
        if claim.failure:
            raise RunnerLost(
                f"run {self.place.run}: its runner has failed: {claim.failure}; {self.ways_out}"
            )

        return claim.holder

    def machines(self) -> tuple[Machine, ...]:
        """The machines of the run that are not gone, as the cloud lists them. Raises
        ProviderError."""
        return tuple(
            machine
            for machine in self.provider.list(self.tags)
            if machine.state is not MachineState.GONE
        )

    def call(self, words: Sequence[str], *, terminal: bool = False) -> int:
        """Runs a command of spotctl on the runner's machine; returns its exit code. RunnerLost: no
        connection.
        """
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
                f"run {self.place.run}: the connection to its runner failed; if the public address "
                "of this computer"
                f" has changed: spotctl ssh {self.place.job} --admit ADDRESS/32; or {self.ways_out}"
            )

        return code

    def ask(self, words: Sequence[str], seconds: float) -> bool:
        """Runs a command of spotctl there silently; returns whether the command has succeeded in
        that time.
        """
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

        return done.returncode == 0

    def _invocation(self, words: Sequence[str]) -> Invocation:
        provider = self.provider
        machine = self.runner()
        try:
            return provider.invocation(machine, words)
        except ProviderError as error:
            raise RunnerLost(f"run {self.place.run}: {error}; {self.ways_out}") from None


def stop_run(
    client: RunnerClient, on_turn: Callable[[RunState], None], note: Callable[[str], None]
) -> RunEnd:
    """Stops a run and returns its machines. If the runner is gone, this process takes its place.
    RunnerLost: it cannot, because the object store does not answer."""
    runner = f"the runner of {client.place.run}"
    hears = (
        f"to hear that its run ends; if it does not, or is silent for {SILENT_SECONDS:.0f} s, this "
        "computer returns its machines"
    )
    costs = f"they cost at most {bid_usd(hourly(client.state))} an hour meanwhile"

    try:
        if runner not in in_time({runner: partial(_ask, client)}, HEAR_SECONDS, hears, costs, note):
            raise RunnerLost(f"run {client.place.run}: its runner has not heard that its run ends")
        ending = client.follow(on_turn, never, note)
        assert ending is not None
    except RunnerLost as error:
        note(str(error))
        ending = take_over(client, on_turn, note)

    clear_up(client, note)
    return ending


def take_over(
    client: RunnerClient, on_turn: Callable[[RunState], None], note: Callable[[str], None]
) -> RunEnd:
    """Becomes the runner, and ends the run: returns every machine that the copied log or the cloud
    knows. RunnerLost: the object store does not take the claim of this process."""
    name = f"the claim of run {client.place.run}"
    costs = f"{bid_usd(hourly(client.state))} an hour at most meanwhile"
    calls = {name: lambda: (client.claim(), Fence(client.place.claim(LAUNCHER), ""))}

    try:
        taken = in_time(
            calls,
            CLAIM_SECONDS,
            "to be taken by its object store",
            f"its machines cost {costs}",
            note,
        )
    except StoreRefused as error:
        raise RunnerLost(f"run {client.place.run}: {error}") from error

    if name not in taken:
        raise RunnerLost(f"{name} was not taken within {CLAIM_SECONDS:.0f} s")

    earlier, fence = taken[name]

    def returned() -> set[str]:
        ids = [machine.id for machine in client.machines()]
        client.provider.terminate(ids)
        return set(ids)

    try:
        cloud = client.provider.name
        answers = in_time(
            {cloud: returned}, RETURN_SECONDS, "to return the machines", f"they cost {costs}", note
        )
        if cloud not in answers:
            raise Unanswered(f"{cloud}: no answer within {RETURN_SECONDS:.0f} s")
        note(f"{counted(len(answers[cloud]), 'machine')} returned")
        is_gone = (
            earlier is None
            or not earlier.holder
            or bool(earlier.failure)
            or earlier.holder not in answers[cloud]
        )
    except ProviderError as error:
        leases = ", ".join(
            f"{held.id} at {format_time(held.lease_until)}" for held in client.state.alive
        )
        note(
            f"not all machines could be returned: {error}; those left end with their leases: "
            f"{leases}; they cost {costs}"
        )
        is_gone = False

    if not is_gone:
        note(
            f"machines that its runner has just ordered may still appear: waiting "
            f"{SETTLE_SECONDS:.0f} s for them"
        )
        settle(fence)

    start = len(client.rows())
    own_log = Paths(client.settings.home).log
    run = client.place.run
    with EventLog(own_log) as log:
        add_missing(log, run, client.rows())
    copier = LogCopier(client.place.store(LAUNCHER), own_log, run, fence.epoch, start)

    def fenced(provider: CloudProvider) -> CloudProvider:
        return FencedProvider(provider, fence, copier.copy, "", never, 0)

    observer = RunObserver(on_turn=on_turn, on_remark=lambda _, line: note(line))
    ending = runs.resume(client.place.job, client.settings, observer, runs.ON_REQUEST, fenced)
    with suppress(OSError):
        copier.copy()
        fence.renew(ended=True)

    with EventLog(own_log) as log, EventLog(Paths(client.own_settings.home).log) as own:
        add_missing(own, run, log.of_run(run))
    return ending


def refresh_run(client: RunnerClient, note: Callable[[str], None]) -> set[str]:
    """Reads the state of a run; returns the run if a runner attends to it. Removes what an ended
    run left.

    `note` gets a line if the runner seems silent: clocks of two computers may differ, so no figure
    depends on that. RunnerLost: the state cannot be read, or the runner has failed.
    """
    state = client.read_state()
    if state.ended is not None:
        clear_up(client, note, 0.0)
        return set()

    client.runner()
    claim = client.claim()
    if claim is not None and claim.at and time.time() - claim.at > STALE_SECONDS:
        heard = format_time(round(claim.at) * SECOND)
        until = max((held.lease_until for held in state.alive), default=state.at)
        note(
            f"run {client.place.run}: its runner on {claim.holder} was last heard of at {heard}, "
            "by its clock. Unless"
            f" another machine takes over, the last lease ends at {format_time(until)}; "
            f"{client.ways_out}"
        )

    return {client.place.run}


def clear_up(
    client: RunnerClient, note: Callable[[str], None], seconds: float = LEFTOVER_SECONDS
) -> None:
    """Fetches what the machines of an ended run printed, and removes what the runner's machine was
    still using.

    Once nothing of the run is left elsewhere, its home with its keys is removed. A machine that the
    runner has not returned after `seconds`, perhaps because its call failed, is returned from here;
    with 0 this is only a look. If it takes longer, the next command tries again.
    """

    def cleared() -> bool:
        nothing_left = False
        for patience in (seconds, _CLEAR_SECONDS) if seconds > 0 else (0.0,):
            give_up = time.monotonic() + patience
            while not (nothing_left := _nothing_left(client)) and time.monotonic() < give_up:
                time.sleep(_LOOK_SECONDS)
            # The runner copies the output after the end of the run is in the log, and before its
            # machine is gone. If it cannot be fetched, it stays in the object store.
            with suppress(OSError):
                fetch_output(
                    client.place.location,
                    Paths(client.own_settings.home).output(client.place.run),
                    LAUNCHER,
                )
            if nothing_left:
                break
            if seconds > 0:
                with suppress(ProviderError):
                    client.provider.terminate([machine.id for machine in client.machines()])

        return nothing_left

    # The wait ends even if the cloud or the store does not answer.
    name = f"the machine of the runner of {client.place.run}"
    limit = max(seconds, 0.0) + 2 * _CLEAR_SECONDS
    answers = in_time(
        {name: cleared}, limit, "to be gone after the run's end, and for its output", UNPRICED, note
    )
    if answers.get(name):
        shutil.rmtree(client.settings.home, ignore_errors=True)


def _nothing_left(client: RunnerClient) -> bool:
    try:
        if client.machines():
            return False
        client.provider.remove(client.provider.resources(client.tags))
        return not client.provider.resources(client.tags)
    except ProviderError:
        return False


def _ask(client: RunnerClient) -> None:
    """Asks the runner to stop until it has heard. RunnerLost: it is silent, or its machine is
    gone."""
    watch = Watch(SILENT_SECONDS)
    while not client.ask(["stop", client.place.job], _ASK_SECONDS):
        state = client.read_state()
        claim = client.claim()
        if state.stopping is not None or state.ended is not None:
            return

        # Its machine is gone, or there never was one; the cloud may not say.
        try:
            runner = client.runner()
            is_gone = all(machine.id != runner for machine in client.machines())
        except RunnerLost:
            is_gone = True
        except ProviderError:
            is_gone = False
        if is_gone:
            raise RunnerLost(f"run {client.place.run}: the machine of its runner is gone")
        if claim is not None and watch.is_stale(claim, time.monotonic()):
            raise RunnerLost(f"run {client.place.run}: its runner is silent")
        time.sleep(LOOK_SECONDS)
