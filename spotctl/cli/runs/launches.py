"""A launch, from its job files to its end: read, plan, admit, record, rent.

`spotctl launch`, `spotctl.launch` and a runner in a process of its own share this page.
`prepare` checks the jobs that were read, each alone and then together, plans them within the
quotas that their clouds state now, and asks the clouds whether they would admit the orders. What
it returns, the user agrees to, and any process can carry out: `launch_here` records each run in
its log, and only then rents (`runs.launch_locked`, one run; `concurrent_runs`, several).

Nothing before `run` may cost money, or change anything but what is kept of the clouds' answers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from pricing_data.units import MAX_USD, parse_usd
from spotctl.agent.errors import CannotBuild
from spotctl.cli.progress import waiting
from spotctl.cli.runs import remote_runner
from spotctl.cli.runs.live_runs import finish, finish_all, finish_withdrawn, live_view
from spotctl.files.job.reader import written
from spotctl.files.user_files import write_new
from spotctl.home import account_quotas
from spotctl.home.callbacks import unheard
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths, make_private_folder
from spotctl.home.wall_clock import wall_us
from spotctl.log.jobs import left_behind
from spotctl.run.remote_runner.installing import packages_on
from spotctl.run.start import concurrent_runs, runs
from spotctl.run.start.admission import (
    bucket_location,
    check_launchable,
    check_machine_packages,
    checked,
    far_data,
    misplaced_buckets,
    refuse,
    stored_data,
)
from spotctl.run.start.concurrent_runs import Launched, begin_late
from spotctl.run.start.earlier_runs import continued
from spotctl.run.start.launch_plans import JobPlans, plans_to_launch
from spotctl.run.start.live_markets import on_one_market
from spotctl.run.turn.live_strategy import expectation
from spotctl.run.work.environment_here import environment_here
from spotctl.show.metrics import publishing
from spotctl.show.runs.reading import RunViews
from spotctl.show.tracking import check_installed

if TYPE_CHECKING:
    from pathlib import Path

    from spotctl.cli.session import Session
    from spotctl.files.job.spec import JobSpec
    from spotctl.log.events import Planned
    from spotctl.log.state import RunState
    from spotctl.planning.values import JobPlan


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """A launch that its user has agreed to; any process can carry it out.

    `expected` are the forecasts that the user has seen, by job. `metrics` is a file or a port,
    where the figures of the runs are published.
    """

    specs: tuple[JobSpec, ...]
    files: tuple[Path, ...]
    expected: Mapping[str, Planned]
    moves: bool
    fresh: bool
    metrics: str


def prepare(
    session: Session,
    specs: Sequence[JobSpec],
    max_cost: str,
    files: Sequence[Path] = (),
    *,
    attached: bool,
    fresh: bool = False,
    metrics: str = "",
) -> tuple[LaunchOrder, JobPlans]:
    """Checks, plans and admits jobs whose files were read; nothing is rented yet, and nothing is in
    the log. A job on Ray rents nothing, has no plan, and is alone."""
    for spec in specs:
        check_launchable(spec)
        check_installed(spec)

    limit = parse_usd(max_cost, "--max-cost", MAX_USD, unit="") if max_cost else None
    if len(specs) == 1 and specs[0].on_ray:
        return LaunchOrder(tuple(specs), tuple(files), {}, False, fresh, metrics), JobPlans()

    concurrent_runs.check_together(specs)
    if not fresh:
        specs = continued(specs, session.settings, session.remark, asks=True)
    specs, remarks = on_one_market(specs)
    session.remark(*remarks)
    moves = not attached and remote_runner.moves(specs, session)

    with waiting(session, f"planning {len(specs)} jobs" if len(specs) > 1 else "planning"):
        planned = plans_to_launch(specs, session.settings, limit)

    # Refuse what the clouds would refuse, and say what else they would.
    with waiting(session, "asking the clouds about the orders"):
        orders = [checked(plan, session.settings) for plan in planned.plans]

    for findings, obstacles in orders:
        refuse(obstacles)
        bad = {finding.detail: str(finding) for finding in findings if finding.is_bad}
        session.remark(*bad.values())

    say_which_data_is_far(session, planned.plans)
    with waiting(session, "choosing the machines' packages"):
        for spec in specs:
            of_runner = packages_on(spec.resources.clouds[0], spec.notify) if moves else ()
            check_machine_packages(spec, session.settings, of_runner)

    expected = {plan.job.spec.name: expectation(plan) for plan in planned.plans}
    limited = tuple(plan.job.spec for plan in planned.plans)
    return LaunchOrder(limited, tuple(files), expected, moves, fresh, metrics), planned


def with_kept_files(session: Session, order: LaunchOrder) -> LaunchOrder:
    """The order with job files of its own, in the home: a job that waits is read again if its
    launcher is killed, and its user's file lacks what the command line gave.
    """
    folder = Paths(session.settings.home).given
    make_private_folder(folder)
    files = []
    for spec in order.specs:
        path = folder / f"{spec.name}.json"
        write_new(path, json.dumps(written(spec)), force=True)
        files.append(path)
    return replace(order, files=tuple(files))


def say_which_data_is_far(session: Session, plans: Sequence[JobPlan]) -> None:
    """Says which data is in another region than the machines. Only a launch whose machines read
    data asks for it.
    """
    reading = [plan for plan in plans if stored_data(plan.job.spec)]
    if not reading:
        return

    with waiting(session, "asking where the data is"):
        far = [line for plan in reading for line in far_data(plan, bucket_location)]
        far += [
            line for plan in reading for line in misplaced_buckets(plan.job.spec, bucket_location)
        ]

    session.remark(*far)


def launch_here(
    session: Session,
    order: LaunchOrder,
    plans: Sequence[JobPlan] = (),
    show: Callable[[RunState], None] = unheard,
    *,
    json_: bool = False,
    is_said: bool = False,
) -> NoReturn:
    """Carries out a launch in this process, and exits with its code. `show` is called with each new
    state of a run. With `is_said`, the ends of runs were printed as they came, and are not printed
    again."""
    launched = run(session, order, plans, show)
    if len(launched) > 1:
        finish_all(session, launched, json_=json_, is_said=is_said)
    if launched[0].is_withdrawn:
        finish_withdrawn(session, launched[0].spec.name, json_=json_)
    finish(session, launched[0].ending, json_=json_, is_said=is_said)


def resume_here(session: Session, job: str, metrics: str = "", *, json_: bool = False) -> NoReturn:
    """Resumes a run in this process, or begins a job whose launcher was killed while it waited."""
    waits = left_behind(Paths(session.settings.home), job)
    with (
        publishing(metrics, RunViews(session.settings), session.remark) as publish,
        live_view(session, from_here=waits is None, publish=publish) as callbacks,
    ):
        ending = (
            begin_late(waits, session.settings, callbacks)
            if waits
            else runs.resume(job, session.settings, callbacks)
        )

    if ending is None:
        finish_withdrawn(session, job, json_=json_)
    finish(session, ending, json_=json_)


def run(
    session: Session,
    order: LaunchOrder,
    plans: Sequence[JobPlan] = (),
    show: Callable[[RunState], None] = unheard,
) -> list[Launched]:
    """Runs jobs to their end. A job with neither ending nor error goes on without this computer.

    Another process than the one that made the `plans` makes them again. `show` is called with each
    new state of a run.
    """
    spec = order.specs[0]
    several = len(order.specs) > 1
    for local in (each for each in order.specs if each.is_local):
        # Before the market's clock runs.
        given, cache = {**os.environ, **local.env}, Paths(session.settings.home).cache
        try:
            environment_here(local, cache, given, session.remark)
        except CannotBuild as error:
            raise BadRequest(f"{local.name}: environment: {error}") from error
    with publishing(order.metrics, RunViews(session.settings), session.remark) as publish:

        def both(state: RunState) -> None:
            publish(state)
            show(state)

        limited = several or order.moves or bool(account_quotas.known(session.settings, wall_us()))
        if limited:
            plans = plans or plans_to_launch(order.specs, session.settings).plans
        if order.moves:
            seen = order.expected[spec.name]
            return [
                Launched(
                    spec, remote_runner.launch(session, plans[0], seen, both, fresh=order.fresh)
                )
            ]
        with live_view(session, several=several, publish=both) as callbacks:
            if limited:
                return concurrent_runs.launch(
                    plans,
                    session.settings,
                    callbacks,
                    files=order.files,
                    fresh=order.fresh,
                    expected=order.expected,
                )
            expected = order.expected.get(spec.name)
            ending = runs.launch(
                spec, session.settings, callbacks, fresh=order.fresh, expected=expected
            )
            return [Launched(spec, ending)]
