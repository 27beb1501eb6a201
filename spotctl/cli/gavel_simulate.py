"""`spotctl gavel simulate`: a cluster played round by round."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotctl.cli.session import JsonOption, Session

if TYPE_CHECKING:
    from bidbrain.gavel.simulator.engine import Progress


def simulate(
    context: typer.Context,
    throughputs: Annotated[Path, typer.Option(help="Steps a second by type and kind of job (JSON, plain or gzip).")],
    cluster: Annotated[str, typer.Option(help="Workers of each type: v100=8,p100=16,k80=24.")],
    policy: Annotated[str, typer.Option(help="How the cluster is divided; those of `gavel solve`.")],
    trace: Annotated[Path | None, typer.Option(help="Jobs: kind, steps, scale, arrival (CSV, plain or gzip).")] = None,
    arrivals: Annotated[
        str, typer.Option(help="Generated jobs instead, one per so many seconds on average: poisson:900.")
    ] = "",
    jobs: Annotated[str, typer.Option(help="Jobs that are measured: 4000:5000.", show_default="all of a trace")] = "",
    seed: Annotated[int, typer.Option(help="Of all that is drawn; of a trace that holds several, which.", min=0)] = 0,
    scale: Annotated[str, typer.Option(help="Workers of a generated job: single, or multiple (1 to 8).")] = "single",
    prices: Annotated[str, typer.Option(help="Dollars an hour by type: v100=0.74,p100=0.43,k80=0.135.")] = "",
    slo: Annotated[str, typer.Option(help="Deadlines, drawn from these multiples of a job's duration: 1.2,2,10.")] = "",
    agnostic: Annotated[
        bool, typer.Option("--agnostic", help="Decide as if all types were alike: the policy's own baseline.")
    ] = False,
    space_sharing: Annotated[
        bool, typer.Option("--space-sharing", help="Let two jobs share workers where both together do more.")
    ] = False,
    round_: Annotated[float, typer.Option("--round", help="Seconds of a round.")] = 360,
    checkpoint_seconds: Annotated[float, typer.Option(help="What a job loses when it moves to other workers.")] = 0,
    budget: Annotated[
        float | None, typer.Option(help="Dollars for all jobs, with --policy makespan-within-budget.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for jobs.csv and plots.")] = None,
    json_: JsonOption = False,
) -> None:
    """Simulate a cluster: jobs arrive, a policy divides the workers, and the mechanism realises that in rounds.

    `fifo` is a queue as in the published simulator: jobs start in order and run to their end; with --agnostic each on
    a type drawn at random. `fifo-preemptive` is the policy of `gavel solve`. A deadline (--slo) is a multiple of what a
    job takes alone where it is fastest. The makespan is from the first measured arrival to the last measured end.

    Example: spotctl gavel simulate --arrivals poisson:900 --jobs 4000:5000 --throughputs throughputs.json.gz
    --cluster v100=36,p100=36,k80=36 --policy max-min-fairness
    """
    from bidbrain.gavel.simulator.engine import simulate as play
    from bidbrain.gavel.simulator.results import summarise
    from spotctl.analyses import gavel_simulation
    from spotctl.show import gavel_simulation_tables

    session: Session = context.obj
    options = gavel_simulation.Options(
        trace, arrivals, jobs, seed, scale, throughputs, cluster, policy, prices, slo, agnostic, space_sharing,
        round_, checkpoint_seconds, budget,
    )  # fmt: skip
    asked, remarks = gavel_simulation.scenario(options)
    dispatcher = gavel_simulation.dispatcher(options, asked)
    session.remark(*remarks)
    with _progress(session, asked.measured.stop) as progress:
        started = time.perf_counter()
        outcome = play(asked, dispatcher, progress)
        seconds = time.perf_counter() - started
    summary = summarise(outcome)
    if budget is not None and (summary.cost_usd or 0.0) > budget:
        session.remark(
            f"--budget {budget:g}: was exceeded by jobs that came later; all was done for the least it costs"
        )
    if out is not None:
        from spotctl.show import gavel_plots

        gavel_simulation_tables.write_csv(out, outcome)
        gavel_plots.write(out, outcome)
    if json_:
        session.answer_json(gavel_simulation_tables.answer(summary, seconds))
    else:
        session.out.print(gavel_simulation_tables.table(summary))
        where = f"; jobs.csv and plots in {out}" if out else ""
        session.remark(
            f"{len(outcome.round_start):,} rounds, {outcome.allocations:,} allocations, {seconds:.1f} s{where}"
        )


@contextmanager
def _progress(session: Session, jobs: int) -> Iterator[Progress]:
    """How many of the jobs are done, on a terminal."""
    from spotctl.cli.progress import counting

    with counting(session, "simulating", jobs) as step:
        shown = 0

        def show(done: int) -> None:
            nonlocal shown
            for _ in range(done - shown):
                step()
            shown = done

        yield show
