"""`spotctl lab backtest deadline`: replays jobs with a deadline over availability traces."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.missing_extras import require_plots

if TYPE_CHECKING:
    from bidbrain.backtest.deadline import DeadlineJobs, DeadlineOutcome
    from spotctl.lab.backtest.deadline import ReplayRequest


def deadline(
    context: typer.Context,
    traces: Annotated[str, typer.Option(help="Glob over availability traces: 'availability/*1-node*.json.gz'.")],
    hours: Annotated[float, typer.Option(help="Hours of work per job.")] = 48,
    slack: Annotated[str, typer.Option(help="Deadlines, as multiples of the work.")] = "1.1,1.25,1.5,2",
    on_demand_ratio: Annotated[float, typer.Option(help="Ratio of on-demand to spot price.")] = 3,
    delay: Annotated[str, typer.Option(help="Time lost on each change of machine: 0.2h, 5m, 0s.")] = "0.2h",
    starts: Annotated[int, typer.Option(help="Jobs per trace and slack, spread evenly over the trace.", min=1)] = 30,
    out: Annotated[
        Path | None, typer.Option(help="Output folder for plots: cost by slack, and one replay over time.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Replay jobs with a deadline over availability traces: spot when it pays, on demand when necessary.

    Strategies: greedy, uniform-progress, deadline (this project's, online) and optimal (perfect foresight). Costs are
    fractions of running on demand only. A trace of several machines counts as available while all machines are.

    Example: spotctl lab backtest deadline --traces 'traces/*.json.gz' --hours 48 --slack 1.1,1.5 --delay 0.2h
    """
    from spotctl.lab.backtest import deadline as analysis

    session: Session = context.obj
    require_plots(out)
    started = time.monotonic()
    request = analysis.request_of(traces, hours, slack, on_demand_ratio, delay)
    jobs = analysis.jobs_of(request, starts)
    outcomes = _replay(session, request, jobs)
    summaries = analysis.summaries(jobs, outcomes)
    seconds = time.monotonic() - started
    if out is not None:
        analysis.write(out, request, jobs, outcomes, summaries)
    session.remark(*analysis.left_out(request, jobs))
    session.answer(
        json_,
        analysis.deadline_json(summaries, seconds),
        analysis.table(summaries),
        f"{len(jobs):,} jobs per strategy in {seconds:.1f} s" + (f", plots in {out}" if out else ""),
    )


def _replay(session: Session, request: ReplayRequest, jobs: DeadlineJobs) -> dict[str, DeadlineOutcome]:
    from bidbrain.backtest.deadline import Greedy, UniformProgress, optimal, replay
    from bidbrain.backtest.deadline_decided import decided
    from spotctl.cli.progress import counting

    outcomes = {scheme.name: replay(jobs, scheme) for scheme in (Greedy(), UniformProgress())}
    with counting(session, "deadline", len(jobs)) as step:
        outcomes["deadline"] = decided(jobs, request.histories, on_job=step)
    with counting(session, "optimal", len(jobs)) as step:
        outcomes["optimal"] = optimal(jobs, step)
    return outcomes
