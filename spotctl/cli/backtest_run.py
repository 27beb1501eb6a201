"""`spotctl backtest run`: strategies replayed over a history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotctl.cli.session import JsonOption, Session

if TYPE_CHECKING:
    from bidbrain.backtest.results import JobResult
    from spotctl.scenario_file import LoadedScenario


def run(
    context: typer.Context,
    scenario: Annotated[Path, typer.Argument(help="What to replay: prices, spans, jobs, schemes (YAML).")],
    out: Annotated[Path | None, typer.Option(help="Folder for plots and a CSV with a row per job.")] = None,
    workers: Annotated[int, typer.Option(help="Processes to spread the work over; 0: one per core.", min=0)] = 0,
    json_: JsonOption = False,
) -> None:
    """Replay strategies over a price history and compare what they paid and how long they took.

    The same decision code runs live. Costs are percent of the same work on demand; run times are shares of it.

    Example: spotctl backtest run examples/backtest_2016.yaml --out results
    """
    from bidbrain.backtest.results import summarise
    from spotctl import backtest_views, scenario_file, wiring

    session: Session = context.obj
    started = time.monotonic()
    loaded = scenario_file.load(scenario, wiring.library(session.settings))
    results = _replay(session, loaded, workers)
    summaries = summarise(results)
    seconds = time.monotonic() - started
    if out is not None:
        backtest_views.write(out, results, summaries)
    if json_:
        session.answer_json(backtest_views.answer(summaries, seconds))
    else:
        session.out.print(backtest_views.table(summaries))
        session.remark(f"{len(results):,} jobs in {seconds:.1f} s" + (f", plots and jobs.csv in {out}" if out else ""))


def _replay(session: Session, loaded: LoadedScenario, workers: int) -> list[JobResult]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from bidbrain.backtest.run import portions, run_portion
    from spotctl.cli.progress import counting

    parts = portions(loaded.scenario, loaded.schemes)
    results: list[JobResult] = []
    with counting(session, "replaying", len(parts)) as step, ExitStack() as stack:
        map_: Callable[..., Iterator[list[JobResult]]] = map
        if workers != 1:
            # Spawned, not forked: the progress bar has a thread, whose locks a fork would copy in any state.
            pool = ProcessPoolExecutor(workers or None, mp_context=get_context("spawn"))
            map_ = stack.enter_context(pool).map
        for found in map_(run_portion, parts):
            results += found
            step()
    return results
