"""`spotctl plan`: which machines would be rented for jobs, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing_data.units import parse_time
from spotctl.cli.session import JsonOption, Session
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from pricing_data.freshness import CloudPrices


def plan(
    context: typer.Context,
    files: Annotated[
        list[Path], typer.Argument(help="Job files. Several files are planned together.", show_default=False)
    ],
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Also show eviction intervals, the parts of the cost, and rejected markets."),
    ] = False,
    at: Annotated[
        str, typer.Option(help="Plan for this point in the price history: 2026-01-20T12:00:00Z.", show_default="now")
    ] = "",
    hours: Annotated[str, typer.Option(help="Job duration to assume if the file gives none, such as 8h.")] = "",
    plot: Annotated[
        Path | None, typer.Option(help="Also plot cost and time against on demand, as .png or .svg.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Show which machines would be rented and why. Rents nothing, and works offline from stored prices.

    A Gavel policy picks the machine types that suit the job's objective, deadline and budget; the job's strategy picks
    markets, bids and machine counts. Plans use the newest stored prices.

    Exit codes: 3 if the job cannot finish in time, 4 if it exceeds its budget.

    Example: spotctl plan job.yaml --explain

    \f

    Fields:
        -> spotctl.show.plans.as_json:answer
        -> spotctl.show.prices.freshness:freshness_json
    """
    from spotctl.files.job.reader import load

    session: Session = context.obj
    specs = [load(file) for file in files]
    # Imported here, so that a refused file costs none of it.
    from spotctl.run.start.launch_plans import stored_plans
    from spotctl.run.start.local_market import on_one_market
    from spotctl.show.plans import as_json as plan_json, on_cluster as cluster_tables, tables as plan_tables
    from spotctl.show.prices.freshness import freshness_json, freshness_remarks

    if len(specs) == 1 and specs[0].on_ray:
        session.answer(json_, cluster_tables.answer(specs[0]), cluster_tables.plan_text(specs[0]))
        return
    if plot is not None:
        from spotctl.show.outputs import check_picture
        from spotctl.show.plans import plots as plan_plots

        check_picture(plot)
    specs, shared = on_one_market(specs)
    planned, now = stored_plans(specs, session.settings, at, hours), parse_time(at) if at else wall_us()
    if plot is not None:
        plan_plots.draw(planned.plans, plot)
        session.remark(f"drew {plot}")
    if json_:
        freshness = freshness_json(planned.clouds, now)
        answers = [{**plan_json.answer(plan), **freshness} for plan in planned.plans]
        session.answer_json(answers[0] if len(answers) == 1 else answers)
        return
    for plan in planned.plans:
        session.out.print(plan_tables.plan_view(plan, session.out.width, explain=explain))
    session.remark(*shared, *planned.remarks, *freshness_remarks(_worth_naming(planned.clouds, now), now))


def _worth_naming(clouds: Sequence[CloudPrices], now: int) -> list[CloudPrices]:
    """The clouds to warn of; where all stored prices are old, another remark says so."""
    states = [prices.state(now) for prices in clouds]
    return [prices for prices, state in zip(clouds, states, strict=True) if state == "missing" or "fresh" in states]
