"""`spotctl lab backtest regions`: replays one job that may run in many zones."""

import time
from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.missing_extras import require_plots


def regions(
    context: typer.Context,
    scenario: Annotated[Path, typer.Argument(help="Scenario file: zones, prices, jobs, starts, policies (YAML).")],
    out: Annotated[
        Path | None, typer.Option(help="Output folder for a picture of the places where the job ran.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Replay jobs with a deadline that may run in many zones, regions and clouds.

    Policies: on-demand, up-one-zone and up-switch (uniform progress in one zone, and with failover), skynomad (our
    reading of the published method), regions (this project's, online), optimal (perfect foresight, exact), and
    optimal-published (as the published simulator plans it).

    Example: spotctl lab backtest regions examples/backtest_regions.yaml --out results
    """
    from spotctl.cli.progress import counting
    from spotctl.lab.backtest import regions as replay
    from spotctl.lab.backtest.regions_scenario import load
    from spotctl.show.columns import as_json, table

    session: Session = context.obj
    require_plots(out)
    started = time.monotonic()
    loaded = load(scenario)
    with counting(session, "windows", len(loaded.windows)) as step:
        results = replay.play_all(loaded, step)
    summaries = replay.summarize(results)
    seconds = time.monotonic() - started
    if out is not None:
        replay.write(out, results)
    session.answer(
        json_,
        as_json(replay.REGIONS, {"results": results, "policies": summaries, "wall_seconds": seconds}),
        table(replay.POLICIES, summaries),
        f"{len(loaded.windows):,} windows in {seconds:.1f} s" + (f", picture in {out}" if out else ""),
    )
