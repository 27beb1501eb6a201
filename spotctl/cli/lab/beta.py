"""`spotctl lab beta`: eviction probability, its uncertainty, and the calibration of past
estimates."""

from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.options import GlobArgument, MarketArgument
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest

app = typer.Typer(
    help="Eviction probability: estimates, curves, calibration.", no_args_is_help=True
)

WindowOption = Annotated[str, typer.Option(help="Time window: 1h, 30m, 2d.")]


@app.command()
def show(
    context: typer.Context,
    market: MarketArgument,
    bid_delta: Annotated[
        str, typer.Option(help="Bid this many dollars above the current price: 0.01.")
    ] = "",
    bid: Annotated[
        str, typer.Option(help="Bid in dollars per hour, or `on-demand`.", show_default="on-demand")
    ] = "",
    window: WindowOption = "1h",
    at: Annotated[
        str,
        typer.Option(help="Point in time: 2016-03-20T12:00:00Z.", show_default="end of history"),
    ] = "",
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Also plot probability and median time to eviction against the bid, as .png or "
            ".svg."
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Estimate the probability of an eviction within a time window.

    Example: spotctl lab beta show aws/us-east-1/us-east-1a/m3.large --bid-delta 0.01 --window 1h

    Example: spotctl lab beta show local/sim-east/sim-east-a/c4.2xlarge --plot beta.png
    """
    from spotctl.lab.beta import estimates as beta, results
    from spotctl.show.columns import as_json

    session: Session = context.obj
    if plot is not None:
        from spotctl.show.plots import check_picture

        check_picture(plot)

    query = beta.query(session.library, market, window, at)
    hazard = beta.hazard_of_market(query)
    estimate = beta.answer(query, beta.bid_of(query, bid_delta, bid), hazard)
    answer = as_json(results.ESTIMATE, estimate)

    if plot is not None:
        from spotctl.cli.progress import counting

        with counting(session, "learning", beta.CURVE_BIDS) as step:
            curve = beta.curve(query, hazard, step)
        results.draw_curve(curve, plot)
        answer |= as_json(results.CURVE, {"plot": str(plot), "curve": curve})
        session.remark(f"plotted {len(curve)} bids to {plot}")

    session.answer(json_, answer, results.estimate_view(estimate))


@app.command()
def calibrate(
    context: typer.Context,
    glob: GlobArgument = "",
    window: WindowOption = "1h",
    history: Annotated[str, typer.Option(help="Training window before each origin.")] = "14d",
    horizon: Annotated[str, typer.Option(help="Prediction window after each origin.")] = "2d",
    deltas: Annotated[
        str, typer.Option(help="Comma-separated bids in dollars above the price, or `on-demand`.")
    ] = "0.001,0.01,on-demand",
    out: Annotated[
        Path | None, typer.Option(help="Plot the reliability diagram to this .png or .svg.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Score estimates against later evictions, next to each market's base rate and the pooled base
    rate.

    Example: spotctl lab beta calibrate 'aws/us-east-1/*/*' --history 14d --horizon 2d --out
    reliability.png
    """
    from spotctl.cli.progress import counting
    from spotctl.lab.beta import estimates as beta, results
    from spotctl.lab.option_values import names
    from spotctl.show.columns import as_json

    session: Session = context.obj
    if out is not None:
        from spotctl.show.plots import check_picture

        check_picture(out)

    planned = beta.plan(window, history, horizon)
    bids = names(deltas)
    if not bids:
        raise BadRequest("--deltas names no bid (write 0.001,0.01,on-demand)")
    with counting(session, "calibrating", len(bids)) as done:
        scored = beta.calibrations(session.library, glob, planned, bids, done)
    if out is not None:
        results.draw_reliability(scored, out)
        session.remark(f"plotted the reliability diagram to {out}")

    session.answer(
        json_,
        as_json(results.CALIBRATION, {"results": list(scored.items())}),
        results.scores_view(scored, session.out.width),
    )
