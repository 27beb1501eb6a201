"""`spotctl lab backtest run`: replays strategies over a price history."""

import time
from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.missing_extras import require_plots


def run(
    context: typer.Context,
    scenario: Annotated[Path, typer.Argument(help="Scenario file: prices, time spans, jobs, strategies (YAML).")],
    out: Annotated[Path | None, typer.Option(help="Output folder for plots and a CSV with one row per job.")] = None,
    workers: Annotated[int, typer.Option(help="Worker processes; 0: one per core.", min=0)] = 0,
    json_: JsonOption = False,
) -> None:
    """Replay strategies over a price history and compare cost and run time.

    The same decision code runs live. Costs and run times are relative to the same work on demand.

    Example: spotctl lab backtest run examples/backtest_2016.yaml --out results
    """
    from bidbrain.backtest.results import notes, summarize
    from bidbrain.backtest.run import portions
    from spotctl.cli.backtest.pool import replay
    from spotctl.lab.backtest import strategies
    from spotctl.lab.backtest.scenario import load
    from spotctl.show.columns import table

    session: Session = context.obj
    require_plots(out)
    started = time.monotonic()
    loaded = load(scenario, session.library)
    session.remark(*loaded.remarks)
    portion_results = replay(session, portions(loaded.scenario, loaded.schemes), workers)
    results = [result for portion in portion_results for result in portion]
    summaries, billing = summarize(results), loaded.scenario.billing.name
    seconds = time.monotonic() - started
    if out is not None:
        strategies.write(out, loaded.scenario, results, summaries)
    session.answer(
        json_,
        strategies.results_json(summaries, billing, seconds, notes(results)),
        table(strategies.SUMMARIES, summaries, session.out.width),
        f"{len(results):,} jobs in {seconds:.1f} s" + (f", plots and jobs.csv in {out}" if out else ""),
        *notes(results),
        *strategies.choice(summaries, billing),
    )
