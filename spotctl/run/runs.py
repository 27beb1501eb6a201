"""A run put together: from a job to its runner, and the same again for whoever goes on with it.

All that is known of a run lies in the event log and in its meeting folder, so that a process that was killed can be
followed by any other. The meeting folder is outside of the home: sockets need short paths, and the secret by which a
run's processes know each other is not kept where the log is.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pricing_data.units import format_time, parse_usd
from spotctl.errors import BadRequest
from spotctl.files.job.reader import restored, written
from spotctl.files.job.spec import JobSpec, Kind
from spotctl.machines.tags import RUN_TAG
from spotctl.paths import Paths
from spotctl.run import rendezvous, resume_state
from spotctl.run.execute import Executor, Journal, Patience
from spotctl.run.live_strategy import brief_of
from spotctl.run.reconcile import Pace
from spotctl.run.service import Runner
from spotctl.run.workloads import Whereabouts, secrets_of, work_of
from spotctl.runlog.errors import AlreadyRunning
from spotctl.runlog.events import RunBegan, RunEnded, RunResumed, StopRequested
from spotctl.runlog.outcomes import DONE, STOPPED
from spotctl.runlog.state import RunState, fold
from spotctl.runlog.statuses import latest_run, statuses
from spotctl.runlog.store import EventLog, JobLock, is_running
from spotctl.wiring import library, local_provider

if TYPE_CHECKING:
    from agileml.core.events import Iteration
    from spotctl.config import Settings
    from spotctl.machines.base import CloudProvider, Resource
    from spotctl.machines.local import LocalProvider
    from spotctl.planning.values import JobPlan

LOOK_SECONDS = 0.2
ON_REQUEST = StopRequested(STOPPED, "stopped on request")


Ending = tuple["RunState", RunEnded]
"""A run's last state, and how it ended."""


@dataclass(frozen=True, slots=True)
class Watching:
    """Who looks on: told of every finished clock, of the run's state between turns, and of the run's end."""

    heard: Callable[[Iteration], None] = lambda _: None
    turned: Callable[[RunState], None] = lambda _: None
    ended: Callable[[JobSpec, RunState, RunEnded], None] = lambda *_: None


def launch(
    spec: JobSpec,
    settings: Settings,
    watching: Watching,
    max_cost: int | None = None,
    *,
    fresh: bool = False,
    plan: JobPlan | None = None,
) -> Ending:
    """Runs a job from its beginning to its end; `fresh`: not from where an earlier run of it was stopped.

    `plan` is one that was made together with those of other jobs, on whose market it runs.
    """
    from spotctl.run.command_setup import begin_anew

    paths = Paths(settings.home)
    with JobLock(paths.locks, spec.name), EventLog(paths.log) as log:
        before = latest_run(log, spec.name)
        if before is not None and before.ended is None:
            raise AlreadyRunning(
                f"run {before.run} of job {spec.name} was interrupted: spotctl resume {spec.name} goes on with it,"
                f" spotctl down {spec.name} gives back what it holds"
            )
        begin_anew(spec, fresh=fresh)
        if fresh:
            resume_state.forget(paths.kept(spec.name))
        if plan is None:
            begin_market(spec, settings)
        provider = local_provider(settings, spec)
        run = f"{spec.name}-{secrets.token_hex(3)}"
        folder = rendezvous.named()
        journal = Journal(log, run, provider.now)
        budget = min((limit for limit in (spec.budget, max_cost) if limit is not None), default=None)
        kept = {**written(spec), **({} if budget is None else {"budget": _dollars(budget)})}
        deadline = _deadline_of(spec, provider.now()) if plan is None else plan.job.deadline
        journal.write(RunBegan(spec.name, provider.name, kept, str(folder), _wall_us(), deadline))
        return _conduct(journal, provider, settings, watching, plan)


def go_on(job: str, settings: Settings, watching: Watching, stop: StopRequested | None = None) -> Ending:
    """Goes on with a run whose process is gone; or only ends it and gives everything back."""
    paths = Paths(settings.home)
    with JobLock(paths.locks, job), EventLog(paths.log) as log:
        state = latest_run(log, job)
        if state is None or state.ended is not None or state.began is None:
            raise BadRequest(f"job {job} has no run to go on with (spotctl status shows what there is)")
        if stop is None and state.orders and not Path(state.began.folder).is_dir():
            raise BadRequest(
                f"run {state.run} cannot go on: {state.began.folder}, where its processes met, is gone, as after a"
                f" restart of the computer (spotctl down {job} closes it, spotctl launch begins anew)"
            )
        spec = restored(state.began.spec, paths.home)
        provider = local_provider(settings, spec)
        journal = Journal(log, state.run, provider.now)
        journal.write(RunResumed(_wall_us()))
        if stop is not None:
            journal.write(stop)
        return _conduct(journal, provider, settings, watching)


def end(job: str, settings: Settings, watching: Watching) -> Ending:
    """Ends a run and gives everything back: asks the process that works on it, or does it in its place."""
    paths = Paths(settings.home)
    stop = ON_REQUEST
    with EventLog(paths.log) as log:
        state = latest_run(log, job)
        if state is None:
            raise BadRequest(f"no job named {job!r} was launched (spotctl status shows those that were)")
        if state.ended is None and is_running(paths.locks, job):
            log.append(state.run, state.at, stop)
        while state.ended is None and is_running(paths.locks, job):
            time.sleep(LOOK_SECONDS)
            state = fold(log.of_run(state.run, state.last_row), state)
            watching.turned(state)
        state = fold(log.of_run(state.run, state.last_row), state)
    return go_on(job, settings, watching, stop) if state.ended is None else (state, state.ended)


def request_stop(job: str, settings: Settings, stop: StopRequested = ON_REQUEST) -> None:
    """Asks the process that runs a job to end it."""
    with EventLog(Paths(settings.home).log) as log:
        state = latest_run(log, job)
        if state is not None and state.ended is None:
            log.append(state.run, state.at, stop)


def unowned(settings: Settings) -> tuple[CloudProvider, list[Resource]]:
    """What exists on the local market though no run that goes on has it."""
    from spotctl.machines.local import LocalProvider
    from spotctl.machines.replayed import Replayed

    # Nothing is rented here, so that no price is asked for.
    provider = LocalProvider(settings.home / "local", lambda: Replayed.of(()))
    going_on = {one.state.run for one in statuses(settings) if one.state.ended is None}
    found = provider.resources({}) if provider.has_begun else ()
    return provider, [one for one in found if one.tags.get(RUN_TAG) not in going_on]


def output(job: str, settings: Settings, *, follow: bool) -> Iterator[str]:
    """What the machines of a job's latest run print, machine by machine; with `follow` as it comes."""
    paths = Paths(settings.home)
    read: dict[str, int] = {}
    with EventLog(paths.log) as log:
        state = latest_run(log, job)
        if state is None or state.began is None:
            raise BadRequest(f"no job named {job!r} was launched (spotctl status shows those that were)")
        provider = local_provider(settings, restored(state.began.spec, paths.home))
        while True:
            for machine in state.machines:
                text = _output_of(provider, machine, read.get(machine, 0))
                read[machine] = read.get(machine, 0) + len(text)
                yield from (f"{machine}: {line}\n" for line in text.decode(errors="replace").splitlines())
            if not follow or state.ended is not None:
                return
            time.sleep(LOOK_SECONDS)
            state = fold(log.of_run(state.run, state.last_row), state)


def _output_of(provider: LocalProvider, machine: str, after: int) -> bytes:
    from spotctl.machines.base import NotFound

    try:
        return provider.output(machine, after)
    except NotFound:
        # The provider keeps machines that are gone for some days.
        return b""


def check_launchable(spec: JobSpec) -> None:
    """Refuses what cannot be run yet, before anything is rented."""
    from spotctl.run.command_setup import check_places

    if not spec.is_local:
        raise BadRequest(f"{spec.name}: this version rents on the local market only; write clouds: [local]")
    check_places(spec)
    secrets_of(spec)


def parse_max_cost(text: str) -> int | None:
    """Nano-dollars of `--max-cost`."""
    return parse_usd(text, "--max-cost") if text else None


def market_now(specs: Sequence[JobSpec], settings: Settings) -> int | None:
    """The local market's time while machines run on it; None if the next launch starts the market again."""
    from spotctl.machines.base import MachineState

    if not all(spec.is_local for spec in specs):
        return None
    provider = local_provider(settings, specs[0])
    if provider.has_begun and any(one.state is not MachineState.GONE for one in provider.list({})):
        return provider.now()
    return None


def _deadline_of(spec: JobSpec, moment: int) -> int | None:
    from spotctl.planning.planner import computer_zone

    return None if spec.deadline is None else spec.deadline.moment(moment, computer_zone())


def plan_of_run(began: RunBegan, settings: Settings, started: int) -> JobPlan:
    """The plan of a run that has begun: every process that works on the run makes the same one."""
    from spotctl.planning.learning.read import lessons
    from spotctl.planning.planner import market_data
    from spotctl.planning.request import PlanRequest, plans_of

    spec, known = restored(began.spec, settings.home), library(settings)
    deadlines = {} if began.deadline is None else {spec.name: began.deadline}
    request = PlanRequest((spec,), started, UTC, deadlines=deadlines)
    learnt = lessons(settings, known, (spec,), began.wall_us)
    (found,) = plans_of(request, market_data(known, (spec,)), learnt)
    return found


def _conduct(
    journal: Journal, provider: LocalProvider, settings: Settings, watching: Watching, made: JobPlan | None = None
) -> Ending:
    began = journal.state.began
    assert began is not None
    spec, paths, pace = restored(began.spec, settings.home), Paths(settings.home), Pace.local(provider.speed)
    if not journal.state.orders and journal.state.stopping is None:
        rendezvous.make(Path(began.folder))
        if spec.kind is Kind.AGILEML:
            resume_state.take_up(spec, Path(began.folder), paths.kept(spec.name))
    at = Whereabouts(paths.cache, paths.results(journal.state.run), watching.heard)
    # Made when it is needed: who only gives everything back needs none.
    plan = cache(lambda: made or plan_of_run(began, settings, journal.state.started))
    with closing(work_of(journal.state, spec, provider, plan, at)) as work:
        executor = Executor(journal, provider, work, pace, Patience())
        brief = brief_of(spec, journal, provider, plan, pace)
        runner = Runner(journal, provider, executor, work, brief)
        ended = runner.run(lambda: watching.turned(runner.state), _wall_us)
    watching.turned(runner.state)
    if spec.kind is Kind.AGILEML:
        _keep(spec, runner.state, ended, paths.kept(spec.name))
    if began.folder:
        shutil.rmtree(began.folder, ignore_errors=True)
    watching.ended(spec, runner.state, ended)
    return runner.state, ended


def _keep(spec: JobSpec, state: RunState, ended: RunEnded, place: Path) -> None:
    """What is done needs nothing kept; what was ended early can be gone on with."""
    assert state.began is not None
    if ended.outcome == DONE:
        resume_state.forget(place)
    else:
        clock = 0 if state.progress is None else state.progress.clock
        resume_state.keep(spec, state.machines, clock, Path(state.began.folder), place)


def begin_market(spec: JobSpec, settings: Settings) -> None:
    """Sets the market's clock, unless other jobs run on it: then this one joins them."""
    from spotctl.machines.local import MarketBusy
    from spotctl.planning.planner import local_market_start

    provider, start = local_provider(settings, spec), spec.local.start
    moment = local_market_start(library(settings)) if start is None else start
    try:
        provider.begin(moment, spec.local.speed)
    except MarketBusy:
        if provider.speed != spec.local.speed:
            raise BadRequest(
                f"local.speed is {spec.local.speed:g}, but jobs run on a local market at {provider.speed:g}, where the"
                f" time is {format_time(provider.now())}; wait for them, or give the same speed"
            ) from None


def _dollars(nanos: int) -> str:
    from spotctl.files.job.forms import money_text

    return money_text(nanos)


def _wall_us() -> int:
    return time.time_ns() // 1000
