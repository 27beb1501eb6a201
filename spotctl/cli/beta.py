"""`spotctl lab beta`: eviction probability, its uncertainty, and the calibration of past estimates."""

from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.options import GlobArgument
from spotctl.cli.session import JsonOption, Session

app = typer.Typer(help="Eviction probability: estimates, curves, calibration.", no_args_is_help=True)

MarketArgument = Annotated[
    str, typer.Argument(help="A market: aws/us-east-1/us-east-1a/c4.xlarge (- for no zone).", show_default=False)
]
WindowOption = Annotated[str, typer.Option(help="Time window: 1h, 30m, 2d.")]
AtOption = Annotated[str, typer.Option(help="Point in time: 2016-03-20T12:00:00Z.", show_default="end of history")]
LifetimesOption = Annotated[
    list[Path] | None, typer.Option(help="CSV of machine lifetimes to estimate the hazard from. Repeatable.")
]
AvailabilityOption = Annotated[
    list[Path] | None,
    typer.Option(help="JSON availability trace of this market to estimate the hazard from. Repeatable."),
]
PictureOption = Annotated[Path, typer.Option(help="Output file: .png or .svg.")]


@app.command()
def show(
    context: typer.Context,
    market: MarketArgument,
    bid_delta: Annotated[str, typer.Option(help="Bid this many dollars above the current price: 0.01.")] = "",
    bid: Annotated[str, typer.Option(help="Bid in dollars per hour, or `on-demand`.", show_default="on-demand")] = "",
    window: WindowOption = "1h",
    at: AtOption = "",
    age: Annotated[str, typer.Option(help="Time since the machine started: 3h.", show_default="new")] = "",
    lifetimes: LifetimesOption = None,
    availability: AvailabilityOption = None,
    json_: JsonOption = False,
) -> None:
    """Estimate the probability of an eviction within a time window.

    Example: spotctl lab beta show aws/us-east-1/us-east-1a/m3.large --bid-delta 0.01 --window 1h
    """
    from spotctl.lab.beta import estimates as beta, results
    from spotctl.show.columns import as_json

    session: Session = context.obj
    query = beta.query(session.library, market, window, at)
    hazard = beta.hazard_for(query, lifetimes or (), availability or ())
    estimate = beta.answer(query, beta.bid_of(query, bid_delta, bid), hazard, beta.age_of(age))
    session.answer(json_, as_json(results.ESTIMATE, estimate), results.estimate_view(estimate))


@app.command()
def plot(
    context: typer.Context,
    market: MarketArgument,
    out: PictureOption,
    window: WindowOption = "1h",
    at: AtOption = "",
    lifetimes: LifetimesOption = None,
    availability: AvailabilityOption = None,
    json_: JsonOption = False,
) -> None:
    """Plot eviction probability and median time to eviction against the bid.

    Example: spotctl lab beta plot local/sim-east/sim-east-a/c4.2xlarge --out beta.png
    """
    from spotctl.cli.progress import counting
    from spotctl.lab.beta import estimates as beta, results
    from spotctl.show.columns import as_json
    from spotctl.show.plots import check_picture

    session: Session = context.obj
    check_picture(out)
    query = beta.query(session.library, market, window, at)
    hazard = beta.hazard_for(query, lifetimes or (), availability or ())
    with counting(session, "learning", beta.CURVE_BIDS) as step:
        curve = beta.curve(query, hazard, step)
    results.draw_curve(curve, out)
    session.answer(
        json_,
        as_json(results.CURVE, {"file": str(out), "curve": curve}),
        None,
        f"plotted {len(curve)} bids to {out}",
    )


@app.command()
def calibrate(
    context: typer.Context,
    glob: GlobArgument = "",
    window: WindowOption = "1h",
    history: Annotated[str, typer.Option(help="Training window before each origin.")] = "14d",
    horizon: Annotated[str, typer.Option(help="Prediction window after each origin.")] = "2d",
    step: Annotated[str, typer.Option(help="Distance between origins.", show_default="the horizon")] = "",
    deltas: Annotated[
        str, typer.Option(help="Comma-separated bids in dollars above the price, or `on-demand`.")
    ] = "0.001,0.01,on-demand",
    seed: Annotated[int, typer.Option(help="Random seed.")] = 7,
    out: Annotated[Path | None, typer.Option(help="Plot the reliability diagram to this .png or .svg.")] = None,
    json_: JsonOption = False,
) -> None:
    """Score estimates against later evictions, next to each market's base rate and the pooled base rate.

    Example: spotctl lab beta calibrate 'aws/us-east-1/*/*' --history 14d --horizon 2d --out reliability.png
    """
    from spotctl.cli.progress import counting
    from spotctl.lab.beta import estimates as beta, results
    from spotctl.show.columns import as_json

    session: Session = context.obj
    if out is not None:
        from spotctl.show.plots import check_picture

        check_picture(out)
    planned, names = beta.plan(window, history, horizon, step), beta.bid_names(deltas)
    with counting(session, "calibrating", len(names)) as done:
        scored = beta.calibrations(session.library, glob, planned, names, seed, done)
    if out is not None:
        results.draw_reliability(scored, out)
        session.remark(f"plotted the reliability diagram to {out}")
    session.answer(
        json_,
        as_json(results.CALIBRATION, {"results": list(scored.items())}),
        results.scores_view(scored, session.out.width),
    )
