"""An allocation (`gavel solve`) as JSON and as a table."""

from typing import Any

from rich.table import Table
from rich.text import Text

from bidbrain.arrays import Floats
from bidbrain.gavel.baselines import usd_per_hour
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation, best_throughput
from bidbrain.lab.gavel.rounds import PlannedPiece, timetable
from spotctl.lab.gavel.problem_file import EstimatePart, Estimates
from spotctl.show.columns import Column, as_json
from spotctl.show.layout import plain_table

# Shares below this are the solver's rounding errors. Where jobs differ a lot, a real share may be
# very small.
_MIN_SHARE = 1e-12
# Shares from this one on are all of the time; the times of more jobs are only in the JSON.
_WHOLE, _MAX_TIMES = 0.9995, 50

_BASES = {"profile": "from a profile", "formula": "by formula", "measured": "measured"}


SOLUTION: tuple[Column[Any], ...] = (
    Column(
        "status",
        "`optimal`, `relaxed` if a constraint could not be kept, `approximate` if a cheaper plan "
        "may exist",
    ),
    Column("objective", "value of the policy's objective; null if it is infinite"),
    Column(
        "allocation",
        "share of time on each type, by job; pairs of jobs as a+b",
        named=Column("", "one job or pair", named="share of its time on this type"),
    ),
    Column(
        "effective_throughput",
        "steps per second of each job with this allocation",
        named="steps per second of this job",
    ),
    Column("cost_usd_per_hour", "cost per hour; null without prices"),
    Column("infeasible", "constraints that could not be kept, and how to fix them"),
    Column("solve_seconds", "time that solving took"),
    Column(
        "estimates",
        "estimated throughputs, by job and type",
        named=Column(
            "", "one job", named=Column("", "the estimate for this type", of=EstimatePart)
        ),
        optional=True,
    ),
    Column(
        "effective_throughput_interval",
        "interval of the effective throughput, by job with estimates",
        named="interval of one job",
        optional=True,
    ),
    Column(
        "hours",
        "hours on each type, by job",
        named=Column("", "one job or pair", named="hours on this type"),
        optional=True,
    ),
    Column("cost_usd", "cost of the whole schedule", optional=True),
    Column(
        "schedule",
        "when each job runs, by job; of policies that plan to the end of the work",
        named=Column(
            "",
            "one job or pair",
            each=(
                Column("type", "type of its workers"),
                Column("start_seconds", "beginning, in seconds from now"),
                Column("end_seconds", "end, in seconds from now"),
                Column("share", "share of that time in which it holds its workers"),
            ),
        ),
        optional=True,
    ),
    Column("notes", "figures of the policy", named="value of this figure", optional=True),
)


def solution_json(
    problem: AllocationProblem, allocation: ClusterAllocation, seconds: float, estimates: Estimates
) -> dict[str, Any]:
    """The JSON of `gavel solve --json`."""
    status = "approximate"
    if allocation.infeasible:
        status = "relaxed"
    elif allocation.exact:
        status = "optimal"

    schedule = dict[str, list[dict[str, Any]]]()
    for name, pieces in _schedule(problem, allocation).items():
        schedule[name] = []
        for piece in pieces:
            entry = {
                "type": problem.cluster.types[piece.type],
                "start_seconds": piece.start,
                "end_seconds": piece.end,
                "share": piece.share,
            }
            schedule[name].append(entry)

    speeds = allocation.effective_throughput.tolist()
    throughputs = dict(zip(problem.jobs.ids, speeds, strict=True))
    intervals = _intervals(problem, allocation, estimates)
    hours = None
    if allocation.hours is not None:
        hours = _by_row(problem, allocation.hours)

    by_row, hourly = _by_row(problem, allocation.shares), usd_per_hour(problem, allocation.shares)
    infeasible = list(allocation.infeasible)
    figures = {
        "status": status,
        "objective": allocation.objective,
        "allocation": by_row,
        "effective_throughput": throughputs,
        "cost_usd_per_hour": hourly,
        "infeasible": infeasible,
        "solve_seconds": seconds,
        "estimates": estimates or None,
        "effective_throughput_interval": intervals or None,
        "hours": hours,
        "cost_usd": allocation.cost_usd,
        "schedule": schedule or None,
        "notes": allocation.notes or None,
    }

    return as_json(SOLUTION, figures)


def _schedule(
    problem: AllocationProblem, allocation: ClusterAllocation
) -> dict[str, list[PlannedPiece]]:
    """The pieces of each row that has any, by its name."""
    names, by_name = row_names(problem), dict[str, list[PlannedPiece]]()
    for piece in timetable(problem, allocation):
        by_name.setdefault(names[piece.row], []).append(piece)
    return by_name


def times(problem: AllocationProblem, allocation: ClusterAllocation) -> list[str]:
    """A line for each job: when it runs on which type. None for policies that do not plan to the
    end of the work.
    """
    schedule, lines, types = _schedule(problem, allocation), list[str](), problem.cluster.types
    for name, of_row in list(schedule.items())[:_MAX_TIMES]:
        pieces = list[str]()
        for piece in of_row:
            begin, end = clock(piece.start), clock(piece.end)
            text = f"{types[piece.type]} {begin} to {end}"
            if piece.share <= _WHOLE:
                text += f" ({piece.share:.1%} of the time)"
            pieces.append(text)
        lines.append(f"{name}: {', '.join(pieces)}")

    more = len(schedule) - _MAX_TIMES
    if more > 0:
        lines.append(f"{more:,} more jobs: --json has the times of all")
    if lines:
        return ["when each job runs, in hours from now:", *lines]
    return []


def clock(seconds: float) -> str:
    """Hours and minutes from now, with seconds: 3:30:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def row_names(problem: AllocationProblem) -> list[str]:
    """The ids of the jobs, then the pairs as `a+b`."""
    ids = problem.jobs.ids
    names = list(ids)
    if problem.pairs is not None:
        for first, second in problem.pairs.members.tolist():
            pair = f"{ids[first]}+{ids[second]}"
            names.append(pair)
    return names


def _by_row(problem: AllocationProblem, matrix: Floats) -> dict[str, dict[str, float]]:
    """The entries above zero by type: for every job, and for pairs that have any."""
    jobs, types, rows = len(problem.jobs.ids), problem.cluster.types, dict[str, dict[str, float]]()
    for i, (name, row) in enumerate(zip(row_names(problem), matrix.tolist(), strict=True)):
        by_type = zip(types, row, strict=True)
        entries = {kind: value for kind, value in by_type if value > _MIN_SHARE}
        if entries or i < jobs:
            rows[name] = entries

    return rows


def _intervals(
    problem: AllocationProblem, allocation: ClusterAllocation, estimates: Estimates
) -> dict[str, tuple[float, float]]:
    """Between which throughputs each job with estimates is expected to be with these shares."""
    types, intervals = problem.cluster.types, dict[str, tuple[float, float]]()
    for job, by_type in estimates.items():
        m = problem.jobs.ids.index(job)
        low = high = float(allocation.effective_throughput[m])
        for kind, estimate in by_type.items():
            if kind not in types:
                continue
            j = types.index(kind)
            share, given = float(allocation.shares[m, j]), float(problem.jobs.throughputs[m, j])
            least, most = estimate.interval
            low += share * (least - given)
            high += share * (most - given)
        intervals[job] = (low, high)

    return intervals


def table(problem: AllocationProblem, allocation: ClusterAllocation) -> Table:
    """A row for each job, and each pair that gets time: its share of each type and the resulting
    throughput.
    """
    hours = () if allocation.hours is None else ("hours",)
    rows = plain_table("job", *problem.cluster.types, "steps/s", "of best", *hours)
    best, jobs = best_throughput(problem), len(problem.jobs.ids)
    shares_of = zip(row_names(problem), allocation.shares.tolist(), strict=True)
    for i, (name, shares) in enumerate(shares_of):
        is_job = i < jobs
        if not is_job and max(shares) <= _MIN_SHARE:
            continue
        cells = [f"{share:.1%}" if share > _MIN_SHARE else "-" for share in shares]
        speed = of_best = ""
        if is_job:
            throughput = allocation.effective_throughput[i]
            speed = f"{throughput:.4g}"
            of_best = f"{throughput / best[i]:.0%}" if best[i] > 0 else "-"
        cells += [speed, of_best]
        if allocation.hours is not None:
            total = allocation.hours[i].sum()
            cells.append(f"{total:.3g}")
        rows.add_row(Text(name), *cells)

    return rows


def remarks(
    problem: AllocationProblem, allocation: ClusterAllocation, seconds: float, estimates: Estimates
) -> list[str]:
    lines = [f"objective {allocation.objective:.6g}, solved in {seconds * 1000:.3g} ms"]
    if not allocation.exact:
        lines.append(
            "approximate: too many deadlines for an exact plan; the least cost may be lower"
        )

    hourly = usd_per_hour(problem, allocation.shares)
    if hourly is not None:
        lines.append(f"costs ${hourly:.4g} per hour")
    if allocation.cost_usd is not None:
        lines.append(f"costs ${allocation.cost_usd:.6g} in total")
    for name, value in allocation.notes.items():
        words = name.replace("_", " ")
        lines.append(f"{words}: {value:.6g}")

    for job, (low, high) in _intervals(problem, allocation, estimates).items():
        given = list[str]()
        for kind, estimate in estimates[job].items():
            least, most = estimate.interval
            given.append(f"{kind} {least:.4g} to {most:.4g} ({_BASES[estimate.basis]})")
        known = ", ".join(given)
        lines.append(f"{job}: {low:.4g} to {high:.4g} steps/s, from estimates: {known}")

    return [*lines, *times(problem, allocation), *allocation.infeasible]
