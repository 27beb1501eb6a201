"""Launches and resumes runs in this process: the first Ctrl-C stops them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from spotctl.cli import planned_launches
from spotctl.cli.endings import finish, finish_all, finish_withdrawn
from spotctl.cli.live_runs import live_view
from spotctl.cli.run_lines import NO_LINES, RunLines
from spotctl.home.paths import Paths
from spotctl.log.waiting import left_behind
from spotctl.run.start import runs
from spotctl.run.start.late_begin import begin_late
from spotctl.show.metrics.publisher import publishing
from spotctl.show.runs.reading import RunViews

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
    """Resumes a run in this process, or begins a job whose launcher was killed while it waited."""
    waits = left_behind(Paths(session.settings.home), job)
    with (
        publishing(metrics, RunViews(session.settings), session.remark) as publish,
        live_view(session, from_here=waits is None, publish=publish) as callbacks,
    ):
        ending = (
            begin_late(waits, session.settings, callbacks) if waits else runs.resume(job, session.settings, callbacks)
        )
    if ending is None:
        finish_withdrawn(session, job, json_=json_)
    finish(session, ending, json_=json_)
