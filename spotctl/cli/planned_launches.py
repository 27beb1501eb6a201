"""Launches of planned jobs: what `spotctl launch` and `spotctl.launch` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotctl.cli.session import Session
    from spotctl.files.job.spec import JobSpec
    from spotctl.log.state import RunState
    from spotctl.planning.values import JobPlan
    from spotctl.run.start.concurrent_runs import Launched
    from spotctl.run.start.launch_plans import JobPlans


@dataclass(frozen=True, slots=True)
class Prepared:
    """Jobs that can be launched: their plans, and whether the runner moves to a machine.

    A job `on_ray` rents nothing, has no plan, and is alone.
    """

    planned: JobPlans
    moves: bool
    on_ray: JobSpec | None = None

    @property
    def plans(self) -> Sequence[JobPlan]:
        return self.planned.plans


def prepare(session: Session, specs: Sequence[JobSpec], max_cost: str, *, attached: bool) -> Prepared:
    """Checks and plans jobs; nothing is rented yet."""
    from spotctl.cli import elsewhere
    from spotctl.run.start import concurrent_runs, runs
    from spotctl.run.start.launch_plans import JobPlans, plans_to_launch
    from spotctl.run.start.local_market import on_one_market

    for spec in specs:
        runs.check_launchable(spec)
    limit = runs.parse_max_cost(max_cost)
    if len(specs) == 1 and specs[0].on_ray:
        return Prepared(JobPlans(), moves=False, on_ray=specs[0])
    concurrent_runs.check_together(specs)
    specs, remarks = on_one_market(specs)
    session.remark(*remarks)
    moves = not attached and elsewhere.moves(specs, session)
    return Prepared(plans_to_launch(specs, session.settings, limit), moves)


def run(session: Session, jobs: Prepared, *, fresh: bool, metrics: str = "") -> list[Launched]:
    """Runs jobs to their end. A job with neither ending nor error goes on without this computer.

    `metrics` is a file or a port, where the figures of the runs are published.
    """
    from spotctl.show.metrics.publisher import publishing
    from spotctl.show.runs.figures import RunMarkets

    with publishing(metrics, RunMarkets(session.settings), session.remark) as publish:
        return _run(session, jobs, publish, fresh=fresh)


def _run(session: Session, jobs: Prepared, publish: Callable[[RunState], None], *, fresh: bool) -> list[Launched]:
    from spotctl.cli import elsewhere
    from spotctl.cli.live_runs import live_view
    from spotctl.run.start import concurrent_runs, runs
    from spotctl.run.start.concurrent_runs import Launched
    from spotctl.run.turn.live_strategy import expectation

    spec = jobs.on_ray
    if spec is not None:
        with live_view(session, publish=publish) as callbacks:
            return [Launched(spec, runs.launch(spec, session.settings, callbacks, fresh=fresh))]
    plan = jobs.plans[0]
    if jobs.moves:
        return [Launched(plan.job.spec, elsewhere.launch(session, plan, publish, fresh=fresh))]
    with live_view(session, several=len(jobs.plans) > 1, publish=publish) as callbacks:
        if len(jobs.plans) > 1:
            return concurrent_runs.launch(jobs.plans, session.settings, callbacks, fresh=fresh)
        spec, expected = plan.job.spec, expectation(plan)
        return [Launched(spec, runs.launch(spec, session.settings, callbacks, fresh=fresh, expected=expected))]
