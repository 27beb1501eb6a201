"""`spotctl lab gavel`: allocates machine types to jobs."""

import time
from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.gavel.analyze import analyze
from spotctl.cli.gavel.simulate import simulate
from spotctl.cli.session import JsonOption, Session

app = typer.Typer(
    help="Allocate machine types to jobs under cost, deadline and fairness objectives.", no_args_is_help=True
)


@app.command()
def solve(
    context: typer.Context,
    problem: Annotated[
        Path, typer.Argument(help="Problem file: workers, prices, jobs, pairs, entities, budget (JSON).")
    ],
    policy: Annotated[str, typer.Option(help="Policy; see the list above.")],
    agnostic: Annotated[
        bool, typer.Option("--agnostic", help="Ignore differences between types: the policy's baseline.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Allocate the workers of a cluster, or the quotas of a cloud account, to jobs.

    Policies: max-min-fairness, makespan, finish-time-fairness, fifo, shortest-job-first, max-throughput, min-cost,
    min-cost-slo, makespan-within-budget, hierarchical; baselines: isolated, proportional, allox, random-packing.

    PROBLEM.json: {"workers": {"v100": 8, "k80": 24}, "prices": {"v100": 2.48, "k80": 0.45}, "jobs": [{"id": "a",
    "throughputs": {"v100": 40, "k80": 10}, "weight": 1, "scale": 1, "steps": 1e6, "elapsed_seconds": 0, "slo_seconds":
    36000, "arrival": 0, "entity": "research"}], "pairs": [{"jobs": ["a", "b"], "throughputs": {"v100": [20, 7.5]}}],
    "entities": {"research": {"weight": 1, "policy": "fifo"}}, "budget_usd": 100}. Workers, and each job's
    id and throughputs (steps per second), are required. The allocation is the share of time each job gets on each type.
    `fifo` weights jobs by arrival, as in the paper; it is no queue: several later, small jobs together can outweigh and
    displace an earlier job that needs many workers. A queue is `gavel simulate --policy fifo`.
    min-cost-slo, makespan and makespan-within-budget plan to the end of the work, and also print when each job runs on
    which type, in hours from now.
    A job's "estimates": {"v100": {"basis": "profile", "interval": [35, 46]}} gives the source of a throughput (profile,
    formula or measured) and its interval; the answer then has an interval, too.

    Example: spotctl lab gavel solve problem.json --policy min-cost-slo
    """
    from bidbrain.gavel.policies import policy_named
    from spotctl.lab.gavel import problem_file as gavel_problem, solution

    session: Session = context.obj
    chosen = policy_named(policy, agnostic=agnostic)
    allocation_problem, estimates = gavel_problem.load(problem)
    started = time.perf_counter()
    allocation = chosen.allocate(allocation_problem)
    seconds = time.perf_counter() - started
    session.answer(
        json_,
        solution.solution_json(allocation_problem, allocation, seconds, estimates),
        solution.table(allocation_problem, allocation),
        *solution.remarks(allocation_problem, allocation, seconds, estimates),
    )


app.command()(simulate)
app.command()(analyze)
