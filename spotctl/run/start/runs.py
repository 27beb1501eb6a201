"""Launches, resumes and stops runs.

Everything known of a run is in the event log and in its rendezvous folder, so that any process can
take over from one that was killed. The rendezvous folder is outside of the home: sockets need short
paths, and the secret by which a run's processes authenticate each other is not kept next to the
log.
"""

import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from pricing_data.errors import StoreError
from pricing_data.fetched_rows import FetchedRows
from spotctl.agent.data.locations import StoreIdentity
from spotctl.clouds.provider import CloudProvider
from spotctl.clouds.wiring import library, price_store, provider_of
from spotctl.files.job.programs import Command
from spotctl.files.job.reader import restored, written
from spotctl.files.job.spec import JobSpec, ProgramKind
from spotctl.files.job.values import RAY
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest, SpotctlError, UnreadableJob
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log.events import Planned, RunBegan, RunEnded, RunResumed, StopRequested
from spotctl.log.folding import fold
from spotctl.log.jobs import JobLock, is_running, remove_waiting, runner_of
from spotctl.log.observed import availability_of
from spotctl.log.outcomes import DONE, STOPPED, AlreadyRunning
from spotctl.log.state import RunState
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.offers import on_demand_price
from spotctl.planning.values import JobPlan
from spotctl.run.environment import LAUNCHER, RunEnvironment, environment_of, secrets_of
from spotctl.run.following import RunEnd, RunObserver, end_awaited, turn_reports, waits_said
from spotctl.run.machine_output import delete_old
from spotctl.run.start import ray_training
from spotctl.run.start.admission import check_checkpoint_is_free
from spotctl.run.start.live_markets import OtherRuns, begin_market, continue_market, fresh_prices
from spotctl.run.start.shared_queue import queue_of
from spotctl.run.start.workloads import workload_of
from spotctl.run.stored_data.regional import RegionalCopies
from spotctl.run.stored_data.storing import prepare_places, store_data
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.live_strategy import rules_of
from spotctl.run.turn.service import Runner
from spotctl.run.work import resume_state

LOOK_SECONDS = 0.2
ON_REQUEST = StopRequested(STOPPED, "stopped on request")


def launch(
    spec: JobSpec,
    settings: Settings,
    observer: RunObserver,
    *,
    fresh: bool = False,
    expected: Planned | None = None,
) -> RunEnd:
    """Runs a job from start to end. A `fresh` run does not resume from the checkpoint of an
    earlier, stopped run.

    `expected` is the forecast that the user has seen: it is logged as it was, and not played again
    while the market's clock runs.
    """
    with JobLock(Paths(settings.home).locks, spec.name):
        return launch_locked(spec, settings, observer, fresh=fresh, expected=expected)


def launch_locked(
    spec: JobSpec,
    settings: Settings,
    observer: RunObserver,
    *,
    fresh: bool = False,
    plan: JobPlan | None = None,
    expected: Planned | None = None,
    is_as_planned: bool = True,
) -> RunEnd:
    """Runs a job whose lock this process holds.

    `plan` is given if the job was planned together with others; the local market then runs already.
    Unless it begins `is_as_planned`, it is planned again, within the parts of the quotas that the
    plan gives it.
    """
    paths = Paths(settings.home)
    with EventLog(paths.log) as log:
        check_ended(spec.name, log)
        remove_waiting(paths, spec.name)
        check_checkpoint_is_free(spec, log)
        spec = store_data(
            spec, settings, partial(observer.on_remark, spec.name), observer.is_stopped
        )
        prepare_places(spec, fresh=fresh)
        if fresh:
            resume_state.forget(paths.kept(spec.name))
        if plan is None and spec.is_local:
            begin_market(spec, settings)
        journal, environment = begin_run(spec, settings, log, plan=plan, expected=expected)
        return _conduct(journal, environment, settings, observer, plan if is_as_planned else None)


def check_ended(job: str, log: EventLog) -> None:
    """Refuses to launch a job whose latest run was interrupted."""
    before = latest_run(log, job)
    if before is not None and before.ended is None:
        raise AlreadyRunning(
            f"run {before.run} of job {job} was interrupted: 'spotctl resume {job}' resumes it, "
            f"'spotctl stop {job}' returns its machines"
        )


def begin_run(
    spec: JobSpec,
    settings: Settings,
    log: EventLog,
    *,
    plan: JobPlan | None = None,
    expected: Planned | None = None,
) -> tuple[Journal, RunEnvironment]:
    """Writes a new run to the log; nothing is rented yet."""
    from spotctl.run.start.launch_plans import stored_plans
    from spotctl.run.start.stored_facts import deadline_of, read_account

    if spec.resources.reliable.machines is None:
        # The run keeps what is decided now, also when its machines are planned again.
        planned = plan or stored_plans([spec], settings).plans[0]
        spec = spec.with_reliable(planned.job.spec.resources.reliable.machines or 0)

    if plan is not None and plan.job.reserved is not None:
        # So it keeps its part of reservations that other jobs of the launch name, too.
        spec = replace(spec, resources=replace(spec.resources, reservations=plan.job.reserved))

    spec = replace(spec, tags={**settings.tags, **spec.tags})
    paths = Paths(settings.home)
    provider = provider_of(settings, spec)
    run = f"{spec.name}-{secrets.token_hex(3)}"
    folder = resume_state.new_rendezvous()
    environment = environment_of(spec, run, folder, provider, paths)
    journal = Journal(log, run, environment.clock)
    deadline = deadline_of(spec, provider.now()) if plan is None else plan.job.deadline

    if plan is None:
        # What running jobs of this home leave of the known quotas.
        quotas = read_account(settings, wall_us()).left(library(settings).catalog)
    else:
        quotas = (*(share.slice for share in plan.share.quotas), *plan.share.on_demand_quotas)

    quota_text = ", ".join(map(str, quotas))
    rented_from = RAY if spec.on_ray else provider.name
    journal.write(
        RunBegan(
            spec.name, rented_from, written(spec), str(folder), wall_us(), deadline, quota_text
        )
    )

    delete_old(paths.runs, time.time())
    if expected is not None:
        journal.write(expected)
    return journal, environment


def resume(
    job: str,
    settings: Settings,
    observer: RunObserver,
    stop: StopRequested | None = None,
    around: Callable[[CloudProvider], CloudProvider] = lambda provider: provider,
    identity: StoreIdentity = LAUNCHER,
) -> RunEnd:
    """Resumes a run whose process is gone; with `stop`, only returns its machines and ends it.

    A runner that is itself on a rented machine wraps the provider with `around`, and has an
    identity of its own.
    """
    paths = Paths(settings.home)
    with JobLock(paths.locks, job), EventLog(paths.log) as log:
        state = latest_run(log, job)
        if state is None or state.ended is not None or state.began is None:
            raise BadRequest(f"job {job} has no run to resume ('spotctl status' lists all jobs)")
        folder = Path(state.began.folder)
        if stop is None and state.orders and not folder.is_dir():
            raise BadRequest(
                f"run {state.run} cannot be resumed: its folder {folder} is gone, for example "
                "after a restart of the"
                f" computer ('spotctl stop {job}' closes it, 'spotctl launch' starts from scratch)"
            )
        if stop is None:
            resume_state.check_rendezvous(folder)
        spec = restored(state.began.spec, paths.home)
        ending = stop is not None or state.stopping is not None
        if not ending:
            # Opening a cloud takes seconds, and a missing secret is known at once.
            secrets_of(spec)
            if spec.is_local:
                continue_market(state, spec, settings)
        provider = around(provider_of(settings, spec))
        environment = environment_of(
            spec, state.run, folder, provider, paths, ending=ending, identity=identity
        )
        journal = Journal(log, state.run, environment.clock)
        journal.write(RunResumed(wall_us()))
        if stop is not None:
            journal.write(stop)
        return _conduct(journal, environment, settings, observer)


def stop(job: str, settings: Settings, observer: RunObserver, *, takes_over: bool = True) -> RunEnd:
    """Stops a run and returns its machines: through its process, or here if that process is gone.
    AlreadyRunning: it is gone, and this process may not take over."""
    paths = Paths(settings.home)
    with EventLog(paths.log) as log:
        # A process that holds the lock is about to begin a run, or has just ended one.
        def awaited() -> str:
            process = f"process {runner_of(paths.locks, job)}"
            if state is None or state.ended is not None:
                return (
                    f"waiting for {process}, which is about to begin a run or has just ended one; "
                    "it is stopped as soon as it begins, and nothing is rented before that"
                )

            ends = end_awaited(state)
            return (
                ends
                and f"{ends}; {process} ends the run, and this command does if that process is killed"
            )

        state: RunState | None = None
        with waits_said(awaited, partial(observer.on_remark, job)):
            while (
                (state := latest_run(log, job)) is None or state.ended is not None
            ) and is_running(paths.locks, job):
                time.sleep(LOOK_SECONDS)
            if state is None:
                raise BadRequest(
                    f"no job named {job!r} was launched ('spotctl status' lists all jobs)"
                )
            if state.ended is None and is_running(paths.locks, job):
                log.append(state.run, state.at, ON_REQUEST)
            while state.ended is None and is_running(paths.locks, job):
                time.sleep(LOOK_SECONDS)
                state = fold(log.of_run(state.run, state.last_row), state)
                observer.on_turn(state)
        state = fold(log.of_run(state.run, state.last_row), state)

    if state.ended is not None:
        return state, state.ended
    if not takes_over:
        raise AlreadyRunning(
            f"job {job}: its runner on this machine is gone; stop the run from where it was "
            "launched"
        )

    return resume(job, settings, observer, ON_REQUEST)


def end_unread(job: str, settings: Settings, why: UnreadableJob) -> None:
    """Writes the end of a run whose job cannot be read, and whose machines are returned."""
    with EventLog(Paths(settings.home).log) as log:
        state = latest_run(log, job)
        if state is not None and state.ended is None:
            log.append(state.run, state.at, RunEnded(STOPPED, str(why), wall_us()))


def request_stop(job: str, settings: Settings, request: StopRequested = ON_REQUEST) -> None:
    """Asks the process that runs a job to stop it; returns at once."""
    with EventLog(Paths(settings.home).log) as log:
        state = latest_run(log, job)
        if state is not None and state.ended is None:
            log.append(state.run, state.at, request)


def _conduct(
    journal: Journal,
    environment: RunEnvironment,
    settings: Settings,
    observer: RunObserver,
    made: JobPlan | None = None,
) -> RunEnd:
    began = journal.state.began
    assert began is not None
    spec = restored(began.spec, settings.home)
    kept = Paths(settings.home).kept(began.job)
    if spec.on_ray:
        ended = ray_training.train(
            spec, journal, environment, lambda: observer.on_turn(journal.state), wall_us
        )
        observer.on_turn(journal.state)
        if began.folder:
            shutil.rmtree(began.folder, ignore_errors=True)
        observer.on_end(spec, journal.state, ended)
        return journal.state, ended

    if not journal.state.orders and journal.state.stopping is None:
        resume_state.make_rendezvous(environment.rendezvous)
        if spec.kind is ProgramKind.AGILEML:
            resume_state.restore(spec, environment.rendezvous, kept)

    environment.provider.attend(starting="" if journal.state.orders else "the run")
    environment = replace(
        environment,
        lists=lambda: library(settings).catalog.lists,
        list_price=lambda market: (
            on_demand_price(library(settings).catalog, market, journal.now()) or 0
        ),
    )

    plan = _planner(journal, settings, made)
    queue = queue_of(spec, settings)
    others = OtherRuns(settings)
    rules = replace(
        rules_of(spec, journal, environment, plan), shared=others.shared, fits=others.leave_room
    )
    rules = replace(rules, quotas=queue.changed_parts, surplus=queue.surplus)
    say = partial(observer.on_remark, spec.name)
    runner: Runner | None = None

    def awaited() -> str:
        if journal.state.ended is not None:
            return (
                "waiting for connections and copies of the run to be closed, for some seconds; "
                "nothing costs any more"
            )
        return end_awaited(journal.state, "" if runner is None else runner.awaited)

    with (
        waits_said(awaited, say),
        closing(environment.provider),
        closing(workload_of(spec, environment, plan)) as workload,
        _fresh_prices(environment, plan, settings),
        closing(
            RegionalCopies(spec, environment.installation, environment.identity, say)
        ) as copies,
    ):
        runner = Runner(journal, environment, workload, rules)
        # The first turn orders machines, which may take long; from here on, users know which run
        # they can stop.
        observer.on_turn(runner.state)
        report = turn_reports(spec, runner, observer)

        def between_turns() -> None:
            environment.provider.attend(
                starting="programs" if awaits_programs(spec, runner.state) else ""
            )
            report()
            copies.look(runner.state)

        ended = runner.run(between_turns, wall_us, lambda: observer.on_turn(runner.state))

    queue.leave(began.job)
    observer.on_turn(runner.state)
    _keep_for_later_runs(spec, runner.state, ended, settings, environment.rendezvous)
    if began.folder:
        shutil.rmtree(began.folder, ignore_errors=True)
    observer.on_end(spec, runner.state, ended)

    return runner.state, ended


def awaits_programs(spec: JobSpec, state: RunState) -> bool:
    """Whether a run has the machines that it needs, and none works: those of a training load their
    libraries until its first clock, and those of a command wait to be told what to run."""
    least = 1
    works = state.progress is not None
    if isinstance(spec.program, Command):
        least = spec.program.nodes.least
        works = state.work.runs
    staying = [
        held
        for held in state.alive
        if not held.returning and state.leaves_at(held) is None and not held.warned_until
    ]

    return not works and state.stopping is None and len(staying) >= least


def _fresh_prices(
    environment: RunEnvironment, plan: Callable[[], JobPlan], settings: Settings
) -> AbstractContextManager[None]:
    """Fetches the prices of a plan's markets while the block lasts, if these are real clouds."""
    if not environment.rented or environment.ending:
        return nullcontext()
    try:
        offers = plan().decider.offers
    except (NotInTime, OverBudget):
        # The first decision finds the same, and ends the run.
        return nullcontext()
    return fresh_prices([offer.market for offer in offers], settings)


def _planner(journal: Journal, settings: Settings, made: JobPlan | None) -> Callable[[], JobPlan]:
    """The plan within the present parts of the quotas; lazy, since a run that only returns machines
    needs no plan.
    """
    from spotctl.run.start.launch_plans import plan_of_run

    began = journal.state.began
    assert began is not None

    @cache
    def within(quotas: str) -> JobPlan:
        started = journal.state.started
        if quotas == began.quotas:
            return made or plan_of_run(began, settings, started)

        first = within(began.quotas)
        home = first.cost.choice[0].rent.offer.market
        try:
            return plan_of_run(began, settings, started, quotas, (home.cloud, home.region))
        except SpotctlError:
            return first

    return lambda: within(journal.state.quotas)


def _keep_for_later_runs(
    spec: JobSpec, state: RunState, ended: RunEnded, settings: Settings, rendezvous: Path
) -> None:
    """Keeps what a run has seen of spot markets, and a training that ended early, so that the job's
    next run can resume from it."""
    spans = availability_of(state, ended.wall_us)
    if spans:
        # If the store cannot be written, the log still has them.
        with suppress(StoreError):
            price_store(settings).commit(FetchedRows(availability=spans))

    if spec.kind is ProgramKind.AGILEML:
        kept = Paths(settings.home).kept(spec.name)
        if ended.outcome == DONE:
            resume_state.forget(kept)
        else:
            clock = 0 if state.progress is None else state.progress.clock
            resume_state.keep(spec, state.machines, clock, rendezvous, kept)
