"""`spotctl lab gavel`: machine types for jobs, simulated clusters, and the price analysis."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import require_plots

app = typer.Typer(
    help="Allocate machine types to jobs under cost, deadline and fairness objectives.",
    no_args_is_help=True,
)

ThroughputsOption = Annotated[
    Path, typer.Option(help="Steps per second by machine type and job type (JSON, plain or gzip).")
]
AgnosticOption = Annotated[
    bool,
    typer.Option("--agnostic", help="Ignore differences between types: the policy's baseline."),
]


@app.command()
def solve(
    context: typer.Context,
    problem: Annotated[
        Path,
        typer.Argument(help="Problem file: workers, prices, jobs, pairs, entities, budget (JSON)."),
    ],
    policy: Annotated[str, typer.Option(help="Policy; see the list above.")],
    agnostic: AgnosticOption = False,
    json_: JsonOption = False,
) -> None:
    """Allocate the workers of a cluster, or the quotas of a cloud account, to jobs.

    Policies: max-min-fairness, makespan, finish-time-fairness, fifo, shortest-job-first,
    max-throughput, min-cost, min-cost-slo, makespan-within-budget, hierarchical; baselines:
    isolated, proportional, allox, random-packing.

    PROBLEM.json: {"workers": {"v100": 8, "k80": 24}, "prices": {"v100": 2.48, "k80": 0.45}, "jobs":
    [{"id": "a", "throughputs": {"v100": 40, "k80": 10}, "weight": 1, "scale": 1, "steps": 1e6,
    "elapsed_seconds": 0, "slo_seconds": 36000, "arrival": 0, "entity": "research"}], "pairs":
    [{"jobs": ["a", "b"], "throughputs": {"v100": [20, 7.5]}}], "entities": {"research": {"weight":
    1, "policy": "fifo"}}, "budget_usd": 100}. Workers, and each job's id and throughputs (steps per
    second), are required. The allocation is the share of time each job gets on each type. A
    throughput on v100_unconsolidated is that of a job whose workers are on several servers. They
    are the same workers as those of v100. With "servers": {"v100": 4}, the workers of a server,
    jobs with the most workers come first onto one server, and the answer says for how much of the
    time the others are spread over several. `fifo` weights jobs by arrival, as in the paper; it is
    no queue: several later, small jobs together can outweigh and displace an earlier job that needs
    many workers. A queue is `gavel simulate --policy fifo`. min-cost-slo, makespan and
    makespan-within-budget plan to the end of the work, and also print when each job runs on which
    type, in hours from now. A job's "estimates": {"v100": {"basis": "profile", "interval": [35,
    46]}} gives the source of a throughput (profile, formula or measured) and its interval; the
    answer then has an interval, too.

    Example: spotctl lab gavel solve problem.json --policy min-cost-slo
    """
    from bidbrain.gavel.policies import policy_named
    from bidbrain.lab.gavel.rounds import by_placement
    from spotctl.lab.gavel import problem_file as gavel_problem, solution

    session: Session = context.obj
    chosen = policy_named(policy, agnostic=agnostic)
    allocation_problem, estimates = gavel_problem.load(problem)
    started = time.perf_counter()
    allocation_problem, allocation = by_placement(allocation_problem, chosen)
    seconds = time.perf_counter() - started
    session.answer(
        json_,
        solution.solution_json(allocation_problem, allocation, seconds, estimates),
        solution.table(allocation_problem, allocation),
        *solution.remarks(allocation_problem, allocation, seconds, estimates),
    )


@app.command()
def simulate(
    context: typer.Context,
    throughputs: ThroughputsOption,
    cluster: Annotated[
        str,
        typer.Option(
            help="Workers per type: v100=8,p100=16,k80=24. With v100=8/4, four workers are on each "
            "server: jobs that no"
            " server has room for run at their throughput on v100_unconsolidated."
        ),
    ],
    policy: Annotated[str, typer.Option(help="Scheduling policy; see `gavel solve`.")],
    trace: Annotated[
        Path | None,
        typer.Option(help="Trace of jobs: type, steps, scale, arrival (CSV, plain or gzip)."),
    ] = None,
    arrivals: Annotated[
        str,
        typer.Option(
            help="Generate jobs instead, with this mean interval in seconds: poisson:900."
        ),
    ] = "",
    jobs: Annotated[
        str,
        typer.Option(help="Range of jobs to measure: 4000:5000.", show_default="all of a trace"),
    ] = "",
    seed: Annotated[
        int,
        typer.Option(help="Random seed; selects the seed in a trace that holds several.", min=0),
    ] = 0,
    scale: Annotated[
        str, typer.Option(help="Workers per generated job: single, or multiple (1 to 8).")
    ] = "single",
    prices: Annotated[
        str, typer.Option(help="Dollars per hour by type: v100=0.74,p100=0.43,k80=0.135.")
    ] = "",
    slo: Annotated[
        str,
        typer.Option(help="Deadlines drawn from these multiples of a job's duration: 1.2,2,10."),
    ] = "",
    entities: Annotated[
        str,
        typer.Option(
            help="Owners of jobs, with weights, and the policy for each owner's jobs:"
            " research=2:fairness,product=1:fifo. A trace names owners in the column `entity`; "
            "other jobs get a random owner."
        ),
    ] = "",
    agnostic: AgnosticOption = False,
    space_sharing: Annotated[
        bool,
        typer.Option(
            "--space-sharing", help="Let two jobs share workers when that increases throughput."
        ),
    ] = False,
    measured_pairs: Annotated[
        int | None,
        typer.Option(
            help="With --space-sharing: measure N pairs per job type, estimate the others.", min=1
        ),
    ] = None,
    round_: Annotated[float, typer.Option("--round", help="Length of a round in seconds.")] = 360,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Seconds lost when a job moves to other workers.")
    ] = 0,
    budget: Annotated[
        float | None,
        typer.Option(help="Budget in dollars for all jobs, with --policy makespan-within-budget."),
    ] = None,
    published: Annotated[
        str,
        typer.Option(
            help="Choose as the published simulator: all, or some of the choices listed above."
        ),
    ] = "",
    out: Annotated[Path | None, typer.Option(help="Output folder for jobs.csv and plots.")] = None,
    json_: JsonOption = False,
) -> None:
    """Simulate a cluster: jobs arrive, a policy allocates workers, and the round mechanism realizes
    the allocation.

    Rounds are played as in the published simulator: types choose one after the other, the fastest
    first. `fifo` is a queue: jobs start in order and run to completion, and only a job that runs on
    no type with room is passed over; with --agnostic, each starts on a random type. `fifo-perf`
    reallocates all jobs whenever one arrives or ends, so earlier jobs move to faster types.
    `fifo-preemptive` is the policy of `gavel solve`. `mean-completion` plays a queue of jobs that
    share quotas: deadlines first, then the mean completion time of a user's jobs, and an even split
    between users. `queue:POLICY` plays such a queue by another policy. Machines change hands only
    where that pays: it is the scheduler of launches and of their plans. A deadline (--slo) is a
    multiple of the job's run time alone on its fastest type. The makespan runs from the first
    measured arrival to the last measured completion.

    The choices of the published simulator, for --published all, or --published bisected,steps.
    Those that do not concern the policy change nothing:

    \b
    interval         policies of cost, too, allocate at most every 1,920 s, not whenever a job comes or goes
    idle-workers     policies of cost, too, give idle workers to any job
    no-debts         a job that is owed more than 20 rounds does not come first for that
    newcomers-wait   a job waits for the next allocation, and takes up idle workers until then
    steps            max-throughput and min-cost add up steps a second (per dollar), not parts of each job's best
    centered         max-throughput and min-cost give jobs that are alike the same, and idle workers by prices
    bisected         makespan ends up to 5% above the least, with the X at which the published solver stops
    stopped          max-min-fairness takes the X at which the published solver stops, not the center of the best
    uniform-speeds   agnostic policies divide types among jobs that they take to be as fast on all as on the fastest
    drops            a job with fewer steps left than workers fails, and is left out after five rounds
    last-type        fifo --agnostic takes the last type in the alphabet with a free worker; larger jobs wait there

    Example: spotctl lab gavel simulate --arrivals poisson:900 --jobs 4000:5000 --throughputs
    throughputs.json.gz --cluster v100=36,p100=36,k80=36 --policy max-min-fairness
    """
    from bidbrain.lab.gavel.engine import simulate as play
    from bidbrain.lab.gavel.results import summarize
    from spotctl.cli.progress import counting
    from spotctl.lab.gavel import simulate as gavel_simulation
    from spotctl.show.columns import as_json

    session: Session = context.obj
    require_plots(out)
    options = gavel_simulation.Options(
        trace, arrivals, jobs, seed, scale, throughputs, cluster, policy, prices, slo, entities, agnostic,
        space_sharing, measured_pairs, round_, checkpoint_seconds, budget, published,
    )  # fmt: skip
    simulation, remarks = gavel_simulation.scenario(options)
    dispatcher = gavel_simulation.dispatcher(options, simulation)
    session.remark(*remarks)

    with counting(session, "simulating", simulation.measured.stop) as progress:
        started = time.perf_counter()
        outcome = play(simulation, dispatcher, progress)
        seconds = time.perf_counter() - started

    summary = summarize(outcome)
    if budget is not None and (summary.cost_usd or 0.0) > budget:
        session.remark(
            f"--budget {budget:g}: exceeded because jobs arrived later; all jobs ran at the lowest "
            "possible cost"
        )

    if dropped := len(simulation.measured) - summary.jobs:
        session.remark(
            f"--published: {dropped} jobs of several workers were dropped before their last steps, "
            "as published"
        )

    if out is not None:
        gavel_simulation.write(out, outcome)
    where = f"; jobs.csv and plots in {out}" if out else ""
    session.answer(
        json_,
        as_json(gavel_simulation.SIMULATION, asdict(summary) | {"wall_seconds": seconds}),
        gavel_simulation.table(summary),
        f"{len(outcome.round_start):,} rounds, {outcome.allocations:,} allocations, {seconds:.1f} "
        f"s{where}",
    )


@app.command()
def analyze(
    context: typer.Context,
    scenario: Annotated[
        Path,
        typer.Argument(
            help="Scenario file: throughputs, prices, jobs, terms (YAML).", show_default=False
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Output folder for costs.csv, figures.csv and plots.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Compare what training jobs cost on recorded markets under strategies of increasing freedom.

    Strategies: fixed-type (cheapest machine with one baseline accelerator at home), best-type (any
    accelerator), multi-gpu (a share of a larger machine), multi-cloud (all clouds), dynamic (moves
    whenever moving saves more than it costs), dynamic+data (also pays for the dataset, once per
    cloud). Results are shown next to the figures of chapter 6 of the Gavel dissertation.

    SCENARIO.yaml, of which only throughputs is required; the other values are those that hold if a
    key is left out:

    \b
    throughputs: throughputs.json.gz    # steps per second by accelerator and job type
    prices: [aws.csv.gz, azure.csv.gz]  # files of price changes; stored prices if left out
    markets: "*"                        # glob over markets
    on_demand: []                       # tables of on-demand prices
    machines: {}                        # more types: {azure/Standard_NC24rs_v2: P100x4}
    jobs: ["*"]                         # globs over job types: ["ResNet-*", A3C]
    home: aws/us-east-1                 # where strategies stay that do not move
    baseline: V100                      # accelerator of the fixed type, by which job lengths count
    days: [0.5, 1, 2, 4, 7]             # job lengths
    starts: 20                          # starts per job type and length, evenly spread
    dataset_gb: 150                     # size of the dataset (ImageNet)
    checkpoint_gb: 0.098                # size of a checkpoint (ResNet-50)
    dataset_on: []                      # clouds that have the dataset; the home's if left out
    move: 5m                            # time that each move or eviction costs: paid, without progress
    evictions: {}                       # evictions per machine-hour: {aws: 0.04, azure: 0.1}

    Example: spotctl lab gavel analyze scenario.yaml --out results
    """
    from spotctl.lab.gavel import analyze as gavel_prices, price_results

    session: Session = context.obj
    require_plots(out)
    started = time.monotonic()
    analysis = gavel_prices.analyze(scenario, session.library)
    seconds = time.monotonic() - started
    if out is not None:
        price_results.write(out, analysis)
    session.remark(*analysis.remarks)
    session.answer(
        json_,
        price_results.analysis_json(analysis, seconds),
        price_results.tables(analysis, session.out.width),
        f"{len(analysis.results):,} results in {seconds:.1f} s"
        + (f", all files in {out}" if out else ""),
    )
