"""Launches of planned jobs, shown while they run: what `spotctl launch` and `spotctl.launch` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotctl.cli.session import Session
    from spotctl.files.job.spec import JobSpec
    from spotctl.notify.webhook import Delivery
    from spotctl.planning.values import JobPlan
    from spotctl.run.concurrent_runs import Launched
    from spotctl.run.runs import RunObserver
    from spotctl.runlog.events import BudgetExceeded, RunEnded
    from spotctl.runlog.state import RunState


@dataclass(frozen=True, slots=True)
class Prepared:
    """Jobs that can be launched: their plans, and whether the runner moves to a machine.

    A job `on_ray` rents nothing, has no plan, and is alone.
    """

    plans: Sequence[JobPlan]
    moves: bool
    on_ray: JobSpec | None = None


def prepared(session: Session, specs: Sequence[JobSpec], max_cost: str, *, attached: bool) -> Prepared:
    """Checks and plans jobs; nothing is rented yet."""
    from spotctl.cli import elsewhere
    from spotctl.run import concurrent_runs, runs
    from spotctl.run.local_market import on_one_market
    from spotctl.run.planned_jobs import plans_to_launch

    for spec in specs:
        runs.check_launchable(spec)
    limit = runs.parse_max_cost(max_cost)
    if len(specs) == 1 and specs[0].on_ray:
        return Prepared((), moves=False, on_ray=specs[0])
    concurrent_runs.check_together(specs)
    specs, remarks = on_one_market(specs)
    session.remark(*remarks)
    moves = not attached and elsewhere.moves(specs, session)
    return Prepared(plans_to_launch(specs, session.settings, limit).plans, moves)


def run(session: Session, jobs: Prepared, *, fresh: bool, metrics: str = "") -> list[Launched]:
    """Runs jobs to their end. A job with neither ending nor error goes on without this computer.

    `metrics` is a file or a port, where the figures of the runs are published.
    """
    from spotctl.show.metrics.publisher import published
    from spotctl.show.run_figures import RunMarkets

    with published(metrics, RunMarkets(session.settings), session.remark) as publish:
        return _run(session, jobs, publish, fresh=fresh)


def _run(session: Session, jobs: Prepared, publish: Callable[[RunState], None], *, fresh: bool) -> list[Launched]:
    from spotctl.cli import elsewhere
    from spotctl.run import concurrent_runs, runs
    from spotctl.run.concurrent_runs import Launched
    from spotctl.run.live_strategy import expectation

    spec = jobs.on_ray
    if spec is not None:
        with live_view(session, publish=publish) as callbacks:
            return [Launched(spec, runs.launch(spec, session.settings, callbacks, fresh=fresh))]
    plan = jobs.plans[0]
    if jobs.moves:
        return [Launched(plan.job.spec, elsewhere.launch(session, plan, publish, fresh=fresh))]
    with live_view(session, publish=publish) as callbacks:
        if len(jobs.plans) > 1:
            return concurrent_runs.launch(jobs.plans, session.settings, callbacks, fresh=fresh)
        spec, expected = plan.job.spec, expectation(plan)
        return [Launched(spec, runs.launch(spec, session.settings, callbacks, fresh=fresh, expected=expected))]


@contextmanager
def live_view(
    session: Session,
    *,
    from_here: bool = False,
    leaving: Event | None = None,
    publish: Callable[[RunState], None] = lambda _: None,
) -> Iterator[RunObserver]:
    """A live view if stderr is a terminal; `from_here` leaves out events from before this call.

    `publish` gets each state of the runs.

    The first Ctrl-C asks the runs to stop, a second one ends this process. With `leaving`, the first only sets that.
    """
    from rich.console import Group
    from rich.live import Live

    from spotctl.run import runs
    from spotctl.run.stop_signals import stop_signals
    from spotctl.runlog.state import RunState
    from spotctl.show import run_tables
    from spotctl.show.run_figures import RunFigures, RunMarkets

    began, stopped, seen, remarked = time.monotonic(), leaving or Event(), dict[str, RunState](), set[str]()
    markets, shown = RunMarkets(session.settings), dict[str, RunFigures]()
    with stop_signals(stopped), Live(console=session.err, transient=True, refresh_per_second=4) as live:

        def turned(state: RunState) -> None:
            assert state.began is not None
            publish(state)
            if leaving is None and stopped.is_set() and state.stopping is None:
                runs.request_stop(state.began.job, session.settings)
            seconds = time.monotonic() - began
            for action in state.over_budget.keys() - remarked:
                remarked.add(action)
                session.remark(f"{state.run}: {run_tables.short_budget(state.over_budget[action])}")
            if session.err.is_terminal:
                prefix = f"{state.began.job}: " if seen.keys() - {state.run} else ""
                for line in run_tables.happened(seen.get(state.run, state if from_here else RunState()), state):
                    live.console.print(f"{seconds:5.0f} s   {prefix}{line}")
                seen[state.run] = state
                shown[state.run] = markets.figures(state)
                live.update(Group(*(run_tables.live(one, seconds) for one in list(shown.values()))))

        yield runs.RunObserver(turned, partial(_notify, session), partial(_notify_of_short_budget, session))


def _notify_of_short_budget(session: Session, spec: JobSpec, state: RunState, exceeded: BudgetExceeded) -> None:
    from spotctl.notify.runs import notify_of_short_budget

    def done(delivery: Delivery) -> None:
        if delivery.failure:
            session.remark(delivery.text)

    notify_of_short_budget(spec, state, exceeded, done)


def _notify(session: Session, spec: JobSpec, state: RunState, ended: RunEnded) -> None:
    from spotctl.notify.runs import notify_of_end

    delivery = notify_of_end(spec, state, ended)
    if delivery is not None and delivery.failure:
        session.remark(delivery.text)
