"""`spotctl lab backtest frontier`: cost against run time for every strategy and setting."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.missing_extras import require_plots


def frontier(
    context: typer.Context,
    scenario: Annotated[Path, typer.Argument(help="Scenario file: prices, time spans, jobs (YAML).")],
    schemes: Annotated[str, typer.Option(help="Comma-separated strategies. Default: all, with their settings.")] = "",
    starts: Annotated[int, typer.Option(help="Jobs per zone and length; 0: as in the scenario.", min=0)] = 0,
    cuts: Annotated[int, typer.Option(help="Number of additional train/test splits.", min=0)] = 0,
    depth: Annotated[int, typer.Option(help="Maximum number of machines per market; 0: no limit.", min=0)] = 0,
    out: Annotated[Path | None, typer.Option(help="Output folder for the pictures.")] = None,
    workers: Annotated[int, typer.Option(help="Worker processes; 0: one per core.", min=0)] = 0,
    json_: JsonOption = False,
) -> None:
    """Compare cost and run time of every strategy and setting, with a bound at equal run time.

    A strategy is on the frontier if no other is both 0.15 points of the on-demand cost cheaper and as fast. The bound
    knows the future: it is the lowest cost of finishing as early, without refunds and with the reliable machines.
    Compare the bound with the column "gross", the cost with refunds added back.

    --cuts adds other windows of the history. Strategies learn only from prices before a window.

    Example: spotctl lab backtest frontier examples/backtest_today.yaml --starts 20 --out pictures
    """
    from bidbrain.backtest.frontier import points, settings_of
    from bidbrain.backtest.results import notes, variants
    from bidbrain.backtest.run import portions
    from spotctl.cli.backtest.pool import replay
    from spotctl.lab.backtest import frontier as shown
    from spotctl.lab.backtest.scenario import load

    session: Session = context.obj
    require_plots(out)
    started = time.monotonic()
    loaded = load(scenario, session.library)
    session.remark(*loaded.remarks)
    chosen = replace(loaded.scenario, starts=starts or loaded.scenario.starts, depth=depth or None)
    named = tuple(dict.fromkeys(name.strip() for name in schemes.split(",") if name.strip())) or settings_of(chosen)
    windows = variants(chosen, cuts, ())
    parts = [portions(window.scenario, named) for window in windows]
    played = iter(replay(session, [part for window_parts in parts for part in window_parts], workers))
    results = [[result for _ in window_parts for result in next(played)] for window_parts in parts]
    frontiers = [points(window.scenario, rows) for window, rows in zip(windows, results, strict=True)]
    seconds, billing = time.monotonic() - started, chosen.billing.name
    if out is not None:
        shown.write(out, *frontiers[0])
    if json_:
        by_window = {window.name: frontier for window, (frontier, _) in zip(windows, frontiers, strict=True)}
        session.answer_json(shown.frontier_json(by_window, frontiers[0][1], billing, seconds))
        return
    for window, rows, (frontier, _) in zip(windows, results, frontiers, strict=True):
        if cuts:
            session.out.print(f"\n{window.name}")
        session.out.print(shown.table(frontier, session.out.width))
        session.remark(*notes(rows), shown.verdict(frontier, billing))
    count = sum(map(len, results))
    session.remark(f"{count:,} jobs in {seconds:.1f} s" + (f", pictures in {out}" if out else ""))
