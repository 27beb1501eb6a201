"""Launches and resumes runs in this process: the first Ctrl-C stops them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from spotctl.cli import planned_launches
from spotctl.cli.endings import finish, finish_all
from spotctl.cli.live_runs import live_view
from spotctl.cli.run_lines import NO_LINES, RunLines
from spotctl.run.start import runs
from spotctl.show.metrics.publisher import publishing
from spotctl.show.runs.figures import RunMarkets

if TYPE_CHECKING:
    from spotctl.cli.planned_launches import LaunchOrder
    from spotctl.cli.session import Session
    from spotctl.planning.values import JobPlan


def launch_here(
    session: Session,
    order: LaunchOrder,
    plans: Sequence[JobPlan] = (),
    *,
    json_: bool = False,
    lines: RunLines = NO_LINES,
) -> NoReturn:
    """Carries out a launch in this process."""
    show = lines.printer(session.settings, several=len(order.specs) > 1)
    launched = planned_launches.run(session, order, plans, show)
    if len(launched) > 1:
        finish_all(session, launched, json_=json_, is_said=lines.json)
    finish(session, launched[0].ending, json_=json_, is_said=lines.json)


def resume_here(session: Session, job: str, metrics: str = "", *, json_: bool = False) -> NoReturn:
    """Resumes a run in this process."""
    with (
        publishing(metrics, RunMarkets(session.settings), session.remark) as publish,
        live_view(session, from_here=True, publish=publish) as callbacks,
    ):
        ending = runs.resume(job, session.settings, callbacks)
    finish(session, ending, json_=json_)
