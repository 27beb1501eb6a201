"""`spotctl lab backtest`: replays strategies over recorded markets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest, require_plots

if TYPE_CHECKING:
    from bidbrain.lab.backtest.results import JobResult
    from bidbrain.lab.backtest.scenario import Scenario

app = typer.Typer(help="Replay strategies over recorded markets.", no_args_is_help=True)


@app.command()
def run(
    context: typer.Context,
    scenario: Annotated[
        Path,
        typer.Argument(
            help="Scenario file: prices, time spans, jobs, strategies (YAML).", show_default=False
        ),
    ],
    schemes: Annotated[
        str,
        typer.Option(
            help="Comma-separated strategies.",
            show_default="those of the scenario; with --frontier, all",
        ),
    ] = "",
    against: Annotated[
        str, typer.Option(help="Also compare each strategy, job by job, with this one.")
    ] = "",
    frontier: Annotated[
        bool,
        typer.Option(
            "--frontier",
            help="Find the strategies and settings that no other beats in cost and run time.",
        ),
    ] = False,
    cuts: Annotated[int, typer.Option(help="Number of additional train/test splits.", min=0)] = 0,
    vary: Annotated[
        str, typer.Option(help="Overheads to halve and double: lambda,startup,sigma.")
    ] = "",
    starts: Annotated[
        int, typer.Option(help="Jobs per zone and length; 0: as in the scenario.", min=0)
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Output folder for plots and a CSV with one row per job.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Worker processes; 0: one per core.", min=0)] = 0,
    json_: JsonOption = False,
) -> None:
    """Replay strategies over a price history and compare cost and run time.

    The same decision code runs live. Strategies are those of a job file, `auto` included, and a few
    baselines. Costs and run times are relative to the same work on demand. With a deadline in the
    scenario (under job, in multiples of its hours), jobs turn to on-demand machines as a launch
    does, and those that are late count as unfinished.

    With --against, a second table has the difference of each strategy to that one: cost in
    percentage points of on-demand, and run time as a fraction of the baseline's, each with a 95%
    interval over resampled days. Negative means cheaper or faster.

    With --frontier, strategies play with all their settings. One is on the frontier if no other is
    both 0.15 points of the on-demand cost cheaper and as fast. The bound knows the future: it is
    the lowest cost of finishing as early, without refunds and with the reliable machines. Compare
    the bound with the column "gross", the cost with refunds added back.

    --cuts repeats either in other windows of the history, --vary a comparison with other overheads.
    Strategies learn only from prices before a window.

    A scenario that lists generated markets, in which hosts run the highest bid, compares ways of
    bidding there, under two rules: a machine costs its bid, or what its host asks without it.
    Column "saved" is what BidBrain saves against each, in points of the cost on demand with the
    value of time; below 0, BidBrain loses.

    Example: spotctl lab backtest run examples/backtest_2016.yaml --out results

    Example: spotctl lab backtest run examples/backtest_today.yaml --against proteus --cuts 3 --vary
    lambda,startup

    Example: spotctl lab backtest run examples/backtest_today.yaml --frontier --starts 20 --out
    pictures

    Example: spotctl lab backtest run examples/backtest_bids.yaml --starts 10
    """
    from bidbrain.lab.backtest.frontier import settings_of
    from bidbrain.lab.backtest.results import variants
    from spotctl.lab.backtest import bids
    from spotctl.lab.backtest.scenario import load
    from spotctl.lab.option_values import names

    session: Session = context.obj
    require_plots(out)
    if frontier and (against or vary):
        raise BadRequest(
            "run: --frontier compares all strategies with each other; leave out --against and "
            "--vary"
        )
    if (cuts or vary) and not (against or frontier):
        raise BadRequest(
            "run: --cuts and --vary repeat a comparison; name the strategy to compare with: "
            "--against"
        )

    started = time.monotonic()
    if bids.is_of_bids(scenario):
        if schemes or against or frontier or out is not None:
            raise BadRequest(
                f"{scenario} compares ways of bidding: only --starts, --workers and --json apply"
            )

        from bidbrain.lab.bids.results import play_portion
        from spotctl.cli.progress import in_processes
        from spotctl.show.columns import as_json

        portions = bids.portions_of(scenario, starts)
        began = time.monotonic()
        tried = in_processes(session, "bidding", play_portion, portions, workers)
        seconds = time.monotonic() - began
        answer = bids.answer_of(tried, seconds)
        said = f"{len(portions):,} jobs per way of bidding in {seconds:.1f} s"
        shown = bids.view(answer, session.out.width)
        session.answer(json_, as_json(bids.BIDS_ANSWER, answer), shown, bids.GENERATED, said)
        return

    loaded, own_schemes = load(scenario, session.library, session.remark)
    chosen = replace(loaded, starts=starts or loaded.starts)
    if frontier:
        named = names(schemes) or settings_of(chosen)
    else:
        named = tuple(dict.fromkeys([*names(against), *(names(schemes) or own_schemes)]))

    windows = variants(chosen, cuts, names(vary))
    played = _play(session, windows, named, workers)
    if frontier:
        _answer_frontier(session, windows, played, out, started, json_=json_)
    else:
        _answer_results(session, windows, played, against, out, started, json_=json_)


def _answer_results(
    session: Session,
    windows: Sequence[tuple[str, Scenario]],
    played: Sequence[Sequence[JobResult]],
    against: str,
    out: Path | None,
    started: float,
    *,
    json_: bool,
) -> None:
    import numpy as np

    from bidbrain.lab.backtest.results import PairedDifference, differences, notes, summarize
    from spotctl.lab.backtest import strategies
    from spotctl.show.columns import as_json, table

    results, (_, original) = played[0], windows[0]
    billing = original.billing.name
    summaries = summarize(results)
    compared = list[PairedDifference]()
    if against:
        for (name, scenario), of_window in zip(windows, played, strict=True):
            rng = np.random.default_rng(scenario.seed)
            compared += differences(name, of_window, against, rng)

    seconds = time.monotonic() - started
    if out is not None:
        strategies.write(out, original, results, summaries)
    if json_:
        answer = strategies.results_json(summaries, billing, seconds, notes(results))
        more = as_json(strategies.COMPARISON, {"differences": compared}) if against else {}
        session.answer_json(answer | more)
        return

    session.out.print(table(strategies.SUMMARIES, summaries, session.out.width))
    if against:
        session.out.print(f"\ndifferences from {against}")
        session.out.print(table(strategies.DIFFERENCES, compared, session.out.width, names=2))

    session.remark(
        f"{sum(map(len, played)):,} jobs in {seconds:.1f} s"
        + (f", plots and jobs.csv in {out}" if out else ""),
        *notes(results),
        *strategies.choice(summaries, billing),
    )


def _answer_frontier(
    session: Session,
    windows: Sequence[tuple[str, Scenario]],
    played: Sequence[Sequence[JobResult]],
    out: Path | None,
    started: float,
    *,
    json_: bool,
) -> None:
    from bidbrain.lab.backtest.frontier import points
    from bidbrain.lab.backtest.results import notes
    from spotctl.lab.backtest import frontier as shown

    frontiers = [
        points(scenario, results) for (_, scenario), results in zip(windows, played, strict=True)
    ]
    seconds = time.monotonic() - started
    _, original = windows[0]
    billing = original.billing.name
    if out is not None:
        shown.write(out, *frontiers[0])

    if json_:
        by_window = {
            name: frontier for (name, _), (frontier, _) in zip(windows, frontiers, strict=True)
        }
        session.answer_json(shown.frontier_json(by_window, frontiers[0][1], billing, seconds))
        return

    for (name, _), results, (frontier, _) in zip(windows, played, frontiers, strict=True):
        if len(windows) > 1:
            session.out.print(f"\n{name}")
        session.out.print(shown.table(frontier, session.out.width))
        session.remark(*notes(results), shown.verdict(frontier, billing))

    count = sum(map(len, played))
    session.remark(f"{count:,} jobs in {seconds:.1f} s" + (f", pictures in {out}" if out else ""))


def _play(
    session: Session,
    windows: Sequence[tuple[str, Scenario]],
    schemes: Sequence[str],
    workers: int,
) -> list[list[JobResult]]:
    """The jobs of each window under each strategy, replayed in `workers` processes (0: one per
    core) with a progress bar."""
    from bidbrain.lab.backtest.run import portions, run_portion
    from spotctl.cli.progress import in_processes

    by_window = [portions(scenario, schemes) for _, scenario in windows]
    parts = [part for of_window in by_window for part in of_window]
    results = in_processes(session, "replaying", run_portion, parts, workers)

    # The results are in the order of the parts.
    in_order = iter(results)
    return [[result for _ in of_window for result in next(in_order)] for of_window in by_window]


@app.command()
def deadline(
    context: typer.Context,
    traces: Annotated[
        str, typer.Option(help="Glob over availability traces: 'availability/*1-node*.json.gz'.")
    ],
    hours: Annotated[float, typer.Option(help="Hours of work per job.")] = 48,
    slack: Annotated[
        str, typer.Option(help="Deadlines, as multiples of the work.")
    ] = "1.1,1.25,1.5,2",
    on_demand_ratio: Annotated[float, typer.Option(help="Ratio of on-demand to spot price.")] = 3,
    delay: Annotated[
        str, typer.Option(help="Time lost on each change of machine: 0.2h, 5m, 0s.")
    ] = "0.2h",
    starts: Annotated[
        int, typer.Option(help="Jobs per trace and slack, spread evenly over the trace.", min=1)
    ] = 30,
    out: Annotated[
        Path | None,
        typer.Option(help="Output folder for plots: cost by slack, and one replay over time."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Replay jobs with a deadline over availability traces: spot when it pays, on demand when
    necessary.

    Strategies: greedy, uniform-progress, deadline (this project's, online) and optimal (perfect
    foresight). Costs are fractions of running on demand only. A trace of several machines counts as
    available while all machines are.

    Example: spotctl lab backtest deadline --traces 'traces/*.json.gz' --hours 48 --slack 1.1,1.5
    --delay 0.2h
    """
    from bidbrain.lab.backtest.deadline import BASELINES, decided, optimal, published, summarize
    from spotctl.cli.progress import counting
    from spotctl.lab.backtest import deadline as analysis

    session: Session = context.obj
    require_plots(out)
    started = time.monotonic()
    jobs, left_out = analysis.jobs_of(traces, hours, slack, on_demand_ratio, delay, starts)
    outcomes = {name: published(jobs, name) for name in BASELINES}
    with counting(session, "deadline", len(jobs)) as step:
        outcomes["deadline"] = decided(jobs, step)
    with counting(session, "optimal", len(jobs)) as step:
        outcomes["optimal"] = optimal(jobs, step)
    summaries = [
        line for scheme, outcome in outcomes.items() for line in summarize(jobs, scheme, outcome)
    ]
    seconds = time.monotonic() - started
    if out is not None:
        analysis.write(out, jobs, outcomes, summaries)
    session.remark(*left_out)
    session.answer(
        json_,
        analysis.deadline_json(summaries, seconds),
        analysis.table(summaries),
        f"{len(jobs):,} jobs per strategy in {seconds:.1f} s"
        + (f", plots in {out}" if out else ""),
    )


@app.command()
def regions(
    context: typer.Context,
    scenario: Annotated[
        Path, typer.Argument(help="Scenario file: zones, prices, jobs, starts, policies (YAML).")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Output folder for a picture of the places where the job ran."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Replay jobs with a deadline that may run in many zones, regions and clouds.

    Policies: on-demand, up-one-zone and up-switch (uniform progress in one zone, and with
    failover), skynomad (our reading of the published method), regions (this project's, online),
    optimal (perfect foresight, exact), and optimal-published (as the published simulator plans it).

    Example: spotctl lab backtest regions examples/backtest_regions.yaml --out results
    """
    from bidbrain.lab.regions.policies import played
    from bidbrain.lab.regions.replay import PlayedWindow
    from spotctl.cli.progress import counting
    from spotctl.lab.backtest import regions as replay
    from spotctl.lab.backtest.regions_scenario import load
    from spotctl.show.columns import as_json, table

    session: Session = context.obj
    require_plots(out)
    started = time.monotonic()
    windows, policies = load(scenario)
    with counting(session, "windows", len(windows)) as step:
        results = list[PlayedWindow]()
        for window in windows:
            for policy in policies:
                results += played(window, policy)
            step()
    summaries = replay.summarize(results)
    seconds = time.monotonic() - started
    if out is not None:
        replay.write(out, results)
    session.answer(
        json_,
        as_json(
            replay.REGIONS, {"results": results, "policies": summaries, "wall_seconds": seconds}
        ),
        table(replay.POLICIES, summaries),
        f"{len(windows):,} windows in {seconds:.1f} s" + (f", picture in {out}" if out else ""),
    )
