"""Launches a run whose runner lives on a rented machine: this computer rents the first reliable
machine, then moves the runner there."""

import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from bidbrain.strategies.base import Decision, Situation, Strategy
from spotctl.agent import layout
from spotctl.agent.data.stores import StoreRefused
from spotctl.clouds.link import MachineSupplies
from spotctl.clouds.remote.bundle import packages_for
from spotctl.clouds.remote.platforms import REPORT, here, platform_of
from spotctl.files.job.spec import ProgramKind
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
from spotctl.run.following import RunEnd, RunObserver
from spotctl.run.remote_runner import homes
from spotctl.run.remote_runner.fence import Fence
from spotctl.run.remote_runner.homes import LogCopier, add_missing
from spotctl.run.remote_runner.installing import RunnerMachine, packages_on, packed_runner
from spotctl.run.remote_runner.place import keep, place_of_run, publish
from spotctl.run.remote_runner.start import JOB, PACKAGES, RunnerStart
from spotctl.run.start import runs
from spotctl.run.start.admission import check_checkpoint_is_free
from spotctl.run.start.workloads import workload_of
from spotctl.run.stored_data.storing import prepare_places, store_data
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.live_strategy import rules_of
from spotctl.run.turn.reconcile import StrategyTerms
from spotctl.run.turn.service import Runner
from spotctl.run.work import resume_state
from spotctl.run.work.workload import Workload

LOOK_SECONDS = 0.3


class OnlyReliable:
    """A strategy that wants nothing besides the reliable machines: everything else is the moved
    runner's decision.
    """

    name = "only reliable"

    def decide(self, _: Situation) -> Decision:
        return Decision(reason="the runner is about to move to the reliable machine")


class Deferred(Workload):
    """The workload of a run while its runner moves: machines are prepared for the work, but the
    work does not begin.

    Machines boot without a payload, which could not wait for as long as the move takes, and get no
    tunnels to here.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def supplies(self) -> MachineSupplies:
        return replace(self._workload.supplies(), reach=())

    def close(self) -> None:
        self._workload.close()


def launch_and_hand_over(
    plan: JobPlan,
    expected: Planned,
    settings: Settings,
    observer: RunObserver,
    *,
    fresh: bool = False,
) -> "RunnerMove | RunEnd":
    """Launches a planned job. Returns the move, whose `machine` the runner lives on now, or the end
    of the run if the run ended before the move. The observer gets a remark for each step of the
    move."""
    spec = plan.job.spec
    paths = Paths(settings.home)
    with JobLock(paths.locks, spec.name):
        with EventLog(paths.log) as own_log:
            check_checkpoint_is_free(spec, own_log)
            before = latest_run(own_log, spec.name)
        if before is not None and before.ended is None:
            raise AlreadyRunning(
                f"run {before.run} of job {spec.name} has not ended: spotctl status {spec.name} "
                f"shows it, spotctl stop {spec.name} ends it"
            )
        spec = store_data(
            spec, settings, partial(observer.on_remark, spec.name), observer.is_stopped
        )
        prepare_places(spec, fresh=fresh)
        if fresh:
            resume_state.forget(paths.kept(spec.name))
        run_settings = homes.new_home(spec.name, settings)
        with (
            JobLock(Paths(run_settings.home).locks, spec.name),
            EventLog(Paths(run_settings.home).log) as log,
        ):
            journal, environment = runs.begin_run(
                spec, run_settings, log, plan=plan, expected=expected
            )
            move = RunnerMove(plan, settings, observer, run_settings, journal, environment)
            move.carry_out()
            if move.machine:
                return move
        # The machines are returned from here.
        ending = runs.resume(spec.name, run_settings, RunObserver(on_turn=move.report_turn))
        move.close()
        return ending


class RunnerMove:
    """One launch: the run is under way in a home of its own, which `run_settings` name. `machine`
    is empty until the runner lives there.
    """

    def __init__(
        self,
        plan: JobPlan,
        settings: Settings,
        observer: RunObserver,
        run_settings: Settings,
        journal: Journal,
        environment: RunEnvironment,
    ) -> None:
        self._plan = plan
        self._spec = plan.job.spec
        self._observer = observer
        self._settings = settings
        self._run_settings = run_settings
        self._journal = journal
        self._environment = environment
        self._note = partial(observer.on_remark, self._spec.name)
        self.place = place_of_run(self._spec, journal.run)
        self.machine = ""

        try:
            self._fence = Fence(self.place.claim(LAUNCHER), "")
            publish(self.place, environment.installation, LAUNCHER)
        except StoreRefused as error:
            raise BadRequest(
                f"the runner cannot keep its log at {self.place.location}: {error}"
            ) from error

        keep(self.place, settings)

    def carry_out(self) -> None:
        """Moves the runner to a machine. Without one, the log says why the run is to end."""
        spec = self._spec
        run = self._journal.run
        environment = self._environment
        resume_state.make_rendezvous(environment.rendezvous)
        if spec.kind is ProgramKind.AGILEML:
            resume_state.restore(
                spec, environment.rendezvous, Paths(self._settings.home).kept(spec.name)
            )

        try:
            # No machine is paid for meanwhile. One with another system or Python gets packages for
            # it once it answers.
            self._note("packing the runner")
            (cloud,) = spec.resources.clouds
            archives = homes.archives_of(self._settings.home)
            target = self._installed_runner(
                packed_runner(spec, environment.rendezvous, archives, cloud, here())
            )
            if target is None:
                return
            with tempfile.TemporaryDirectory(prefix="spotctl-") as scratch:
                home = Path(scratch) / "home"
                homes.copy_home(self._run_settings, run, JOB, home)
                target.give_home(home)
                LogCopier(
                    self.place.store(LAUNCHER), Paths(home).log, run, self._fence.epoch, 0
                ).copy()
            self._note("starting the runner")
            target.start(
                RunnerStart(spec.name, run, self.place.location, target.id, secrets_of(spec))
            )
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the machines are returned
            why = str(error) or type(error).__name__
            self._journal.write(
                StopRequested(FAILED, f"the runner could not move to a machine: {why}")
            )
            return

        self.machine = target.id

    def report_turn(self, state: RunState) -> None:
        """Brings the launcher's own log up to date, from which its commands and `gc` read what is
        under way.
        """
        with (
            EventLog(Paths(self._run_settings.home).log) as log,
            EventLog(Paths(self._settings.home).log) as own,
        ):
            add_missing(own, self._journal.run, log.of_run(self._journal.run))
        self._observer.on_turn(state)

    def close(self) -> None:
        """Notes that the run has ended without a runner elsewhere."""
        with suppress(OSError):
            self._fence.renew(ended=True)

    def _installed_runner(self, packed: Mapping[str, bytes]) -> RunnerMachine | None:
        """The first reliable machine whose agent answers, with a runner; None if the run is to
        stop.

        The run goes on while the runner is sent there, so that no lease ends.
        """
        spec = self._spec
        plan = self._plan
        journal = self._journal
        environment = self._environment
        rules = rules_of(spec, journal, environment, lambda: plan)

        def strategy() -> tuple[Strategy, StrategyTerms]:
            return OnlyReliable(), rules.strategy()[1]

        with closing(Deferred(workload_of(spec, environment, lambda: plan))) as workload:
            runner = Runner(journal, environment, workload, replace(rules, strategy=strategy))
            sending: Future[RunnerMachine] | None = None
            while runner.state.stopping is None:
                if self._observer.is_stopped():
                    journal.write(runs.ON_REQUEST)
                    break
                runner.turn()
                self.report_turn(runner.state)
                if sending is None:
                    sending = self._begin_sending(runner.state, packed)
                elif sending.done():
                    return sending.result()
                time.sleep(LOOK_SECONDS)

        return None

    def _begin_sending(
        self, state: RunState, packed: Mapping[str, bytes]
    ) -> "Future[RunnerMachine] | None":
        """Sends a runner to the first reliable machine whose agent answers, if there is one, in a
        thread that does not keep this process from ending. The result is the machine, once the
        runner has arrived."""
        provider, (cloud,) = self._environment.provider, self._spec.resources.clouds
        reliable = (
            held.id
            for held in state.alive
            if held.running and state.allocations[held.allocation].reliable
        )

        machine = next(reliable, None)
        if machine is None:
            return None

        target = RunnerMachine(machine, provider, self._note)
        sending = Future[RunnerMachine]()
        folder = homes.archives_of(self._settings.home)

        def send() -> None:
            try:
                report = target.run((layout.PYTHON, "-I", "-S", "-c", REPORT))
                there = platform_of(report.split())
                archives = packed
                if not there.runs_packages_of(here()):
                    packages = packages_for(folder, packages_on(cloud, self._spec.notify), there)
                    archives = {**packed, PACKAGES: packages.pack().path.read_bytes()}
                target.install(archives)
                sending.set_result(target)
            # The run says it, and returns its machines.
            except BaseException as error:  # noqa: BLE001
                sending.set_exception(error)

        threading.Thread(target=send, daemon=True).start()
        return sending
