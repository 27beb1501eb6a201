"""Launches a run whose runner lives on a rented machine: this computer rents the first reliable machine, then moves the
runner there."""

import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bidbrain.strategies.base import Decision, Situation, Strategy
from spotctl.agent.data.stores import StoreRefused
from spotctl.clouds.link import MachineSupplies
from spotctl.files.job.spec import JobSpec, ProgramKind
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.log.events import Planned, StopRequested
from spotctl.log.jobs import JobLock
from spotctl.log.outcomes import FAILED, AlreadyRunning
from spotctl.log.state import RunState
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from spotctl.planning.values import JobPlan
from spotctl.run.environment import LAUNCHER, RunEnvironment, secrets_of
from spotctl.run.remote_runner import homes
from spotctl.run.remote_runner.fence import Fence
from spotctl.run.remote_runner.homes import LogCopier, add_missing
from spotctl.run.remote_runner.installing import RunnerArchives, RunnerMachine
from spotctl.run.remote_runner.place import RunPlace, keep, place_of_run, publish
from spotctl.run.remote_runner.start import JOB, RunnerStart
from spotctl.run.start import runs
from spotctl.run.start.observing import RunEnd, RunObserver
from spotctl.run.start.workloads import check_checkpoint_is_free, prepare_places, workload_of
from spotctl.run.stored_data.storing import store_data
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.live_strategy import rules_of
from spotctl.run.turn.reconcile import StrategyTerms
from spotctl.run.turn.service import Runner
from spotctl.run.work import resume_state
from spotctl.run.work.workload import Workload

LOOK_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Launch:
    """A job to launch. `on_turn` gets the state after each turn, `stopped` says whether the user wants to stop, and
    `note` gets a line for each step of the move."""

    plan: JobPlan
    expected: Planned
    settings: Settings
    on_turn: Callable[[RunState], None]
    stopped: Callable[[], bool]
    note: Callable[[str], None]
    fresh: bool = False

    @property
    def spec(self) -> JobSpec:
        return self.plan.job.spec


class OnlyReliable:
    """A strategy that wants nothing besides the reliable machines: everything else is the moved runner's decision."""

    name = "only reliable"

    def decide(self, _: Situation) -> Decision:
        return Decision(reason="the runner is about to move to the reliable machine")


class NotYet(Workload):
    """The workload of a run while its runner moves: machines are prepared for the work, but the work does not begin.

    Machines boot without a payload, which could not wait for as long as the move takes, and get no tunnels to here.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def supplies(self) -> MachineSupplies:
        return replace(self._workload.supplies(), reach=())

    def close(self) -> None:
        self._workload.close()


@dataclass(frozen=True, slots=True)
class Moved:
    """A run whose runner lives on a machine now."""

    place: RunPlace
    machine: str


def launch_and_hand_over(given: Launch) -> Moved | RunEnd:
    """Launches the job. Returns where the runner lives now, or the end of the run if the run ended before the move."""
    spec, paths = given.spec, Paths(given.settings.home)
    with JobLock(paths.locks, spec.name):
        with EventLog(paths.log) as own_log:
            check_checkpoint_is_free(spec, own_log)
            before = latest_run(own_log, spec.name)
        if before is not None and before.ended is None:
            raise AlreadyRunning(
                f"run {before.run} of job {spec.name} has not ended: spotctl status {spec.name} shows it, spotctl stop"
                f" {spec.name} ends it"
            )
        spec = store_data(spec, given.settings, given.note, given.stopped)
        prepare_places(spec, fresh=given.fresh)
        if given.fresh:
            resume_state.forget(paths.kept(spec.name))
        settings = homes.new_home(spec.name, given.settings)
        with JobLock(Paths(settings.home).locks, spec.name), EventLog(Paths(settings.home).log) as log:
            journal, environment = runs.begin_run(spec, settings, log, plan=given.plan, expected=given.expected)
            move = _Move(given, settings, log, journal, environment)
            if (machine := move.carry_out()) is not None:
                return Moved(move.place, machine)
        # The machines are returned from here.
        observer = RunObserver(on_turn=move.report_turn)
        ending = runs.resume(spec.name, settings, observer)
        move.close()
        return ending


class _Move:
    """One launch: the run is under way in a home of its own, whose settings are `settings`."""

    def __init__(
        self, given: Launch, settings: Settings, log: EventLog, journal: Journal, environment: RunEnvironment
    ) -> None:
        self._given, self._settings, self._log = given, settings, log
        self._journal, self._environment = journal, environment
        self.place = place_of_run(given.spec, journal.run)
        try:
            self._fence = Fence(self.place.claim(LAUNCHER), "")
            publish(self.place, environment.installation, LAUNCHER)
        except StoreRefused as error:
            raise BadRequest(f"the runner cannot keep its log at {self.place.location}: {error}") from error
        keep(self.place, given.settings)

    def carry_out(self) -> str | None:
        """Moves the runner, and returns its machine. None: the log says why the run is to end."""
        given, environment = self._given, self._environment
        resume_state.make_rendezvous(environment.rendezvous)
        if given.spec.kind is ProgramKind.AGILEML:
            resume_state.restore(given.spec, environment.rendezvous, Paths(given.settings.home).kept(given.spec.name))
        try:
            target = self._installed_runner()
            if target is None:
                return None
            spec, run = self._given.spec, self._journal.run
            with tempfile.TemporaryDirectory(prefix="spotctl-") as scratch:
                home = Path(scratch) / "home"
                homes.copy_home(self._settings, run, JOB, home)
                target.give_home(home)
                LogCopier(self.place.store(LAUNCHER), Paths(home).log, run, self._fence.epoch, 0).copy()
            self._given.note("starting the runner")
            target.start(RunnerStart(spec.name, run, self.place.location, target.id, secrets_of(spec)))
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the machines are returned
            why = str(error) or type(error).__name__
            self._journal.write(StopRequested(FAILED, f"the runner could not move to a machine: {why}"))
            return None
        return target.id

    def report_turn(self, state: RunState) -> None:
        """Brings the launcher's own log up to date, from which its commands and `gc` read what is under way."""
        with EventLog(Paths(self._settings.home).log) as log, EventLog(Paths(self._given.settings.home).log) as own:
            add_missing(own, self._journal.run, log.of_run(self._journal.run))
        self._given.on_turn(state)

    def close(self) -> None:
        """Notes that the run has ended without a runner elsewhere."""
        with suppress(OSError):
            self._fence.renew(ended=True)

    def _installed_runner(self) -> RunnerMachine | None:
        """The first reliable machine whose agent answers, with a runner; None if the run is to stop.

        The run goes on while the runner is sent there, so that no lease ends.
        """
        given, journal, environment = self._given, self._journal, self._environment
        rules = rules_of(given.spec, journal, environment, lambda: given.plan)

        def strategy() -> tuple[Strategy, StrategyTerms]:
            return OnlyReliable(), rules.strategy()[1]

        with closing(NotYet(workload_of(given.spec, environment, lambda: given.plan))) as workload:
            runner = Runner(journal, environment, workload, replace(rules, strategy=strategy))
            sending: _Sending | None = None
            while runner.state.stopping is None:
                runner.turn()
                self.report_turn(runner.state)
                if sending is None:
                    sending = self._begin_sending(runner.state)
                elif sending.is_over():
                    return sending.target
                if given.stopped():
                    journal.write(runs.ON_REQUEST)
                time.sleep(LOOK_SECONDS)
        return None

    def _begin_sending(self, state: RunState) -> "_Sending | None":
        """Sends a runner to the first reliable machine whose agent answers, if there is one."""
        provider, (cloud,) = self._environment.provider, self._given.spec.resources.clouds
        reliable = (held.id for held in state.alive if held.running and state.allocations[held.allocation].reliable)
        machine = next(reliable, None)
        if machine is None:
            return None
        target = RunnerMachine(machine, provider, self._given.note)
        folder, rendezvous = homes.archives_of(self._given.settings.home), self._environment.rendezvous

        def send() -> None:
            self._given.note("packing the runner")
            target.install(RunnerArchives.pack(self._given.spec, rendezvous, folder, cloud, target.platform()))

        return _Sending(target, send)


class _Sending:
    """A runner on its way to a machine, in a thread of its own that does not keep this process from ending."""

    def __init__(self, target: RunnerMachine, send: Callable[[], None]) -> None:
        self.target, self._send = target, send
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def is_over(self) -> bool:
        """Whether the runner has arrived. Raises what kept it from that."""
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def _work(self) -> None:
        try:
            self._send()
        except Exception as error:  # noqa: BLE001 - the run says it, and returns its machines
            self._failure = error
