"""`spotctl lab parallel simulate`: plays a plan operation by operation."""

from pathlib import Path
from typing import Annotated

import typer

from pricing_data.units import SECOND, parse_duration
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest


def simulate(
    context: typer.Context,
    plan: Annotated[Path, typer.Argument(help="A plan that `spotctl lab parallel plan --json` wrote.")],
    batches: Annotated[int, typer.Option(help="Batches to simulate.")] = 6,
    timeline: Annotated[
        Path | None,
        typer.Option(help="Write a timeline: FILE.html for a browser, FILE.json for chrome://tracing or Perfetto."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Also replay the plan on a recorded fleet: CSV with `time,add,NAMES` and `time,remove,NAMES`."
        ),
    ] = None,
    warning: Annotated[
        str, typer.Option(help="With --trace: how long before leaving a machine is warned; 0 for no warning.")
    ] = "2m",
    json_: JsonOption = False,
) -> None:
    """Simulate a plan operation by operation: devices, links, and what each stage holds.

    The plan's own speed is a formula; the simulation plays every forward pass, backward pass, transfer and update. If
    stages have different numbers of replicas, the simulation also finds how many inputs must be in flight to keep all
    stages busy.

    Example: spotctl lab parallel simulate plan.json --timeline timeline.html

    With --trace, machines come and go as recorded. The trace may also be JSON with the number of machines at each tick,
    as `spotctl lab backtest deadline` reads it.

    Example: spotctl lab parallel simulate plan.json --trace fleet.csv --warning 30s
    """
    from agileml.checks import check_whole
    from agileml.pipeline.elastic.simulate_fleet import simulate_fleet
    from agileml.pipeline.plan.parallel_plan import simulate as play
    from agileml.pipeline.plan.planner import summary
    from agileml.pipeline.schedule.simulator import timeline_page, trace_json
    from spotctl.files.parallel_files import load_plan
    from spotctl.lab import parallel

    session: Session = context.obj
    check_whole("batches", batches, 1, 1000)
    if timeline and timeline.suffix not in (".html", ".json"):
        raise BadRequest(f"--timeline {timeline}: the name must end in .html or .json")
    given = load_plan(str(plan))
    fleet = (
        simulate_fleet(given, parallel.read_fleet(trace), parse_duration(warning, zero=True) / SECOND)
        if trace
        else None
    )
    played = play(given, batches)
    if timeline:
        page = timeline_page(played.run, f"{given.model}: {summary(given)}")
        timeline.write_text(page if timeline.suffix == ".html" else trace_json(played.run))
    session.answer(json_, parallel.played_json(given, played, fleet), parallel.played_table(given, played, fleet))
