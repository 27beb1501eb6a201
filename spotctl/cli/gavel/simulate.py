"""`spotctl lab gavel simulate`: simulates a cluster in rounds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.missing_extras import require_plots

if TYPE_CHECKING:
    from bidbrain.gavel.simulator.engine import ReportFinished


def simulate(
    context: typer.Context,
    throughputs: Annotated[
        Path, typer.Option(help="Steps per second by machine type and job type (JSON, plain or gzip).")
    ],
    cluster: Annotated[
        str,
        typer.Option(
            help="Workers per type: v100=8,p100=16,k80=24. Those on several servers are a type of their own:"
            " v100_unconsolidated=4."
        ),
    ],
    policy: Annotated[str, typer.Option(help="Scheduling policy; see `gavel solve`.")],
    trace: Annotated[
        Path | None, typer.Option(help="Trace of jobs: type, steps, scale, arrival (CSV, plain or gzip).")
    ] = None,
    arrivals: Annotated[
        str, typer.Option(help="Generate jobs instead, with this mean interval in seconds: poisson:900.")
    ] = "",
    jobs: Annotated[str, typer.Option(help="Range of jobs to measure: 4000:5000.", show_default="all of a trace")] = "",
    seed: Annotated[int, typer.Option(help="Random seed; selects the seed in a trace that holds several.", min=0)] = 0,
    scale: Annotated[str, typer.Option(help="Workers per generated job: single, or multiple (1 to 8).")] = "single",
    prices: Annotated[str, typer.Option(help="Dollars per hour by type: v100=0.74,p100=0.43,k80=0.135.")] = "",
    slo: Annotated[str, typer.Option(help="Deadlines drawn from these multiples of a job's duration: 1.2,2,10.")] = "",
    priorities: Annotated[str, typer.Option(help="Priorities drawn from these weights: 1,1,1,1,5.")] = "",
    entities: Annotated[
        str,
        typer.Option(
            help="Owners of jobs, with weights, and the policy for each owner's jobs:"
            " research=2:fairness,product=1:fifo. A trace names owners in the column `entity`; other jobs get a"
            " random owner."
        ),
    ] = "",
    agnostic: Annotated[
        bool, typer.Option("--agnostic", help="Ignore differences between types: the policy's baseline.")
    ] = False,
    space_sharing: Annotated[
        bool, typer.Option("--space-sharing", help="Let two jobs share workers when that increases throughput.")
    ] = False,
    measured_pairs: Annotated[
        int | None,
        typer.Option(help="With --space-sharing: measure N pairs per job type, estimate the others.", min=1),
    ] = None,
    round_: Annotated[float, typer.Option("--round", help="Length of a round in seconds.")] = 360,
    checkpoint_seconds: Annotated[float, typer.Option(help="Seconds lost when a job moves to other workers.")] = 0,
    budget: Annotated[
        float | None, typer.Option(help="Budget in dollars for all jobs, with --policy makespan-within-budget.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output folder for jobs.csv and plots.")] = None,
    json_: JsonOption = False,
) -> None:
    """Simulate a cluster: jobs arrive, a policy allocates workers, and the round mechanism realizes the allocation.

    Rounds are played as in the published simulator: types choose one after the other, the fastest first.
    `fifo` is a queue: jobs start in order and run to completion, and only a job that runs on no type with room is
    passed over; with --agnostic, each starts on a random type. `fifo-perf` reallocates all jobs whenever one arrives
    or ends, so earlier jobs move to faster types. `fifo-preemptive` is the policy of `gavel solve`. A deadline (--slo)
    is a multiple of the job's run time alone on its fastest type. The makespan runs from the first measured arrival to
    the last measured completion.

    Example: spotctl lab gavel simulate --arrivals poisson:900 --jobs 4000:5000 --throughputs throughputs.json.gz
    --cluster v100=36,p100=36,k80=36 --policy max-min-fairness
    """
    from bidbrain.gavel.simulator.engine import simulate as play
    from bidbrain.gavel.simulator.results import summarize
    from spotctl.lab.gavel import simulate as gavel_simulation, simulation_results

    session: Session = context.obj
    require_plots(out)
    options = gavel_simulation.Options(
        trace, arrivals, jobs, seed, scale, throughputs, cluster, policy, prices, slo, priorities, entities, agnostic,
        space_sharing, measured_pairs, round_, checkpoint_seconds, budget,
    )  # fmt: skip
    simulation, remarks = gavel_simulation.scenario(options)
    dispatcher = gavel_simulation.dispatcher(options, simulation)
    session.remark(*remarks)
    with _progress(session, simulation.measured.stop) as progress:
        started = time.perf_counter()
        outcome = play(simulation, dispatcher, progress)
        seconds = time.perf_counter() - started
    summary = summarize(outcome)
    if budget is not None and (summary.cost_usd or 0.0) > budget:
        session.remark(
            f"--budget {budget:g}: exceeded because jobs arrived later; all jobs ran at the lowest possible cost"
        )
    if out is not None:
        simulation_results.write(out, outcome)
    where = f"; jobs.csv and plots in {out}" if out else ""
    session.answer(
        json_,
        simulation_results.summary_json(summary, seconds),
        simulation_results.table(summary),
        f"{len(outcome.round_start):,} rounds, {outcome.allocations:,} allocations, {seconds:.1f} s{where}",
    )


@contextmanager
def _progress(session: Session, jobs: int) -> Iterator[ReportFinished]:
    from spotctl.cli.progress import counting

    with counting(session, "simulating", jobs) as step:
        shown = 0

        def show(done: int) -> None:
            nonlocal shown
            for _ in range(done - shown):
                step()
            shown = done

        yield show
