"""`spotctl lab gavel analyze`: cost of training on markets with changing prices."""

import time
from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.missing_extras import require_plots


def analyze(
    context: typer.Context,
    throughputs: Annotated[Path, typer.Option(help="Throughputs by accelerator and job type (JSON, plain or gzip).")],
    prices: Annotated[
        list[Path] | None, typer.Option(help="File of price changes. Default: stored prices. Repeatable.")
    ] = None,
    markets: Annotated[str, typer.Option(help="Glob over markets: '*/us-*'.")] = "*",
    on_demand: Annotated[list[Path] | None, typer.Option(help="Table of on-demand prices. Repeatable.")] = None,
    jobs: Annotated[str, typer.Option(help="Comma-separated globs over job types: 'ResNet-*,A3C'.")] = "*",
    home: Annotated[str, typer.Option(help="Cloud and region for strategies that do not move.")] = "aws/us-east-1",
    baseline: Annotated[
        str, typer.Option(help="Accelerator of the fixed type; job lengths are days on this accelerator.")
    ] = "V100",
    days: Annotated[str, typer.Option(help="Job lengths in days.")] = "0.5,1,2,4,7",
    starts: Annotated[int, typer.Option(help="Starts per job type and length, evenly spread.", min=1)] = 20,
    dataset_gb: Annotated[float, typer.Option(help="Size of the dataset (default: ImageNet).")] = 150,
    checkpoint_gb: Annotated[float, typer.Option(help="Size of a checkpoint (default: ResNet-50).")] = 0.098,
    dataset_on: Annotated[str, typer.Option(help="Clouds that have the dataset.", show_default="the home's")] = "",
    move: Annotated[str, typer.Option(help="Time that each move or eviction costs: paid, without progress.")] = "5m",
    evictions: Annotated[str, typer.Option(help="Evictions per machine-hour by cloud: aws=0.04,azure=0.1.")] = "",
    machine: Annotated[
        list[str] | None,
        typer.Option(help="Accelerators of a machine type: azure/Standard_NC24rs_v2=P100x4. Repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output folder for costs.csv, figures.csv and plots.")] = None,
    json_: JsonOption = False,
) -> None:
    """Compare what training jobs cost on recorded markets under strategies of increasing freedom.

    Strategies: fixed-type (cheapest machine with one baseline accelerator at home), best-type (any accelerator),
    multi-gpu (a share of a larger machine), multi-cloud (all clouds), dynamic (moves whenever moving saves more than it
    costs), dynamic+data (also pays for the dataset, once per cloud). Results are shown next to the figures of chapter 6
    of the Gavel dissertation.

    Example: spotctl lab gavel analyze --prices aws.csv.gz --prices azure.csv.gz --throughputs throughputs.json.gz
    """
    from spotctl.lab.gavel import analyze as gavel_prices, price_results

    session: Session = context.obj
    require_plots(out)
    started = time.monotonic()
    sources = gavel_prices.Sources(
        tuple(prices or ()), markets, tuple(on_demand or ()), throughputs, jobs, tuple(machine or ())
    )
    terms = gavel_prices.Terms(home, baseline, days, starts, dataset_gb, checkpoint_gb, dataset_on, move, evictions)
    analysis = gavel_prices.analyze(sources, terms, session.library)
    seconds = time.monotonic() - started
    if out is not None:
        price_results.write_csv(out, analysis)
        price_results.write(out, analysis)
    session.remark(*analysis.remarks)
    session.answer(
        json_,
        price_results.analysis_json(analysis, seconds),
        price_results.tables(analysis, session.out.width),
        f"{len(analysis.results):,} results in {seconds:.1f} s" + (f", all files in {out}" if out else ""),
    )
