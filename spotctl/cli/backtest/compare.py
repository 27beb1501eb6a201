"""`spotctl lab backtest compare`: whether a strategy's lead holds in other windows and with other overheads."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotctl.cli.session import JsonOption, Session

if TYPE_CHECKING:
    from bidbrain.backtest.results import PairedDifference, Variant


def compare(
    context: typer.Context,
    scenario: Annotated[Path, typer.Argument(help="Scenario file: prices, time spans, jobs, strategies (YAML).")],
    against: Annotated[str, typer.Option(help="Strategy to compare the others with.")] = "proteus",
    schemes: Annotated[str, typer.Option(help="Comma-separated strategies. Default: those of the scenario.")] = "",
    cuts: Annotated[int, typer.Option(help="Number of additional train/test splits.", min=0)] = 0,
    vary: Annotated[str, typer.Option(help="Overheads to halve and double: lambda,startup,sigma.")] = "",
    starts: Annotated[int, typer.Option(help="Jobs per zone and length; 0: as in the scenario.", min=0)] = 0,
    workers: Annotated[int, typer.Option(help="Worker processes; 0: one per core.", min=0)] = 0,
    json_: JsonOption = False,
) -> None:
    """Compare strategies job by job, also over other windows of the history and with other overheads.

    A difference is the strategy minus the --against strategy: cost in percentage points of on-demand, and run time as a
    fraction of the baseline's, each with a 95% interval over resampled days. Negative means cheaper or faster.

    Example: spotctl lab backtest compare examples/backtest_today.yaml --against proteus --cuts 3 --vary lambda,startup
    """
    from bidbrain.backtest.results import variants
    from spotctl.lab.backtest.scenario import load
    from spotctl.lab.backtest.strategies import COMPARISON, DIFFERENCES
    from spotctl.lab.option_values import names
    from spotctl.show.columns import as_json, table

    session: Session = context.obj
    started = time.monotonic()
    loaded = load(scenario, session.library)
    session.remark(*loaded.remarks)
    chosen = replace(loaded.scenario, starts=starts or loaded.scenario.starts)
    named = names(schemes) or loaded.schemes
    compared = _differences(session, variants(chosen, cuts, names(vary)), named, against, workers)
    seconds = time.monotonic() - started
    session.answer(
        json_,
        as_json(COMPARISON, {"differences": compared, "wall_seconds": seconds}),
        table(DIFFERENCES, compared, session.out.width, names=2),
        f"differences from {against}; {seconds:.1f} s",
    )


def _differences(
    session: Session, chosen: list[Variant], schemes: tuple[str, ...], against: str, workers: int
) -> list[PairedDifference]:
    import numpy as np

    from bidbrain.backtest.results import differences
    from bidbrain.backtest.run import portions
    from spotctl.cli.backtest.pool import replay

    named = tuple(dict.fromkeys((against, *schemes)))
    by_variant = [portions(variant.scenario, named) for variant in chosen]
    results = iter(replay(session, [part for parts in by_variant for part in parts], workers))
    compared = []
    for variant, parts in zip(chosen, by_variant, strict=True):
        of_variant = [result for _ in parts for result in next(results)]
        rng = np.random.default_rng(variant.scenario.seed)
        compared += differences(variant.name, of_variant, against, rng)
    return compared
