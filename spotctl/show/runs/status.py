"""`spotctl status` and `spotctl nightly ls`: runs, jobs that wait, and nightly jobs, in JSON and as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pricing_data.units import counted, format_time, usd, usd_text
from spotctl.show.phrases import loss_text, moment, spending_text
from spotctl.show.printable import printable

if TYPE_CHECKING:
    from rich.table import Table

    from spotctl.home.paths import Paths
    from spotctl.log.events import RowsLost
    from spotctl.log.waiting import WaitingJob
    from spotctl.show.runs.run_view import CommandProgress, HeldMachine, RunView


def ways_on(view: RunView) -> str:
    """The commands that show, continue and end a run, with the machines of one without a runner."""
    job = view.job
    if view.attended:
        return f"'spotctl resume {job}' shows run {view.run}, 'spotctl stop {job}' ends it"
    # A run that was asked to stop only returns its machines when it is resumed.
    resume = "" if view.is_stopping else f", 'spotctl resume {job}' continues it"
    if not view.machines and not view.has_open_order:
        return f"run {view.run} has no machines: 'spotctl stop {job}' ends it{resume}"
    machines = counted(len(view.machines), "machine") + (" and an open order" if view.has_open_order else "")
    return (
        f"run {view.run} has {machines}, rented until their leases end: 'spotctl stop {job}' returns them now{resume}"
    )


def waiting_text(job: WaitingJob, paths: Paths, *, attended: bool) -> str:
    """A job that has not begun, and the commands that begin or withdraw it."""
    if not attended:
        return (
            f"job {job.name} has not begun, and its launcher is gone: 'spotctl resume {job.name}' begins it once it is"
            f" its turn, 'spotctl stop {job.name}' forgets it"
        )
    until = "" if job.begins is None else f", probably until {moment(job.begins)}"
    return (
        f"job {job.name} waits for {' and '.join(job.awaited(paths)) or 'its turn'}{until}: 'spotctl stop {job.name}'"
        " withdraws it"
    )


def waiting_json(job: WaitingJob, paths: Paths) -> dict[str, Any]:
    """A job that was launched and has not begun."""
    attended = job.is_attended(paths)
    return {
        "name": job.name,  #: name of the job
        "state": "waiting" if attended else "not begun",  #: `waiting`, or `not begun` if its launcher is gone
        "after": job.awaited(paths) if attended else list(job.after),  #: jobs whose ends it waits for
        #: when it is expected to begin; null if that is unknown
        "begins": None if job.begins is None else moment(job.begins),
        "file": job.file,  #: its job file
    }


def status_answer(
    views: Sequence[RunView], lost: Sequence[RowsLost] = (), waits: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """The JSON of `spotctl status --json`."""
    return {
        "jobs": [_job(view) for view in views],  #: the latest run of each job, each -> _job
        "waiting": list(waits),  #: jobs that wait for their turn, each -> waiting_json
        #: rows that a repair of the log has dropped, and that may be of any run
        "rows_lost": sum(loss.rows for loss in lost),
    }


def _job(view: RunView) -> dict[str, Any]:
    """The latest run of a job.

    Fields:
        attempt: number of the attempt of a command
        checkpoint: newest checkpoint of a command; null before the first
        checkpoint -> _checkpoint
    """
    command, spent = view.command, view.money.spending
    assert spent is not None
    return {
        "name": view.job,  #: name of the job
        "run": view.run,  #: id of the run
        "state": view.status,  #: `running`, `stopping` or `interrupted`; after the end its outcome
        "began": moment(view.began),  #: when it was launched, by this computer's clock
        #: when it ended, by this computer's clock; null before
        "ended": None if view.ended is None else moment(view.ended),
        "stage": view.stage,  #: stage of a training, 1 to 3; null for commands
        #: machines that are held, each -> _machine
        "machines": [_machine(machine) for machine in view.machines],
        "clock": view.clock,  #: clocks that a training has done
        #: loss at the last clock, and of the model once that is made; null for commands
        "loss": view.model_loss,
        "spent_usd": usd(spent.amount),  #: cost so far
        "spent_low_usd": usd(spent.low),  #: the least that this can be
        #: the most that this can be; null if that is unknown, because rows of the log or prices are lost
        "spent_high_usd": None if spent.high is None else usd(spent.high),
        "rows_lost": view.rows_lost,  #: rows of the run that a repair of the log has dropped
        "replayed": view.is_replayed,  #: whether the run is on the local market: then nothing is billed
        "evictions": view.evictions,  #: number of evictions
        **({} if command is None else {"attempt": command.attempt, "checkpoint": _checkpoint(command)}),
    }


def _checkpoint(command: CommandProgress) -> dict[str, Any] | None:
    """The newest checkpoint of a command."""
    if command.checkpoint is None:
        return None
    return {
        "number": command.checkpoint,  #: its number, which grows with every checkpoint of the run
        "seconds": command.seconds,  #: time that saving it took
        "bytes": command.bytes,  #: its size
        #: time between two checkpoints; null if only an eviction warning causes one
        "every_seconds": command.every_seconds,
    }


def _machine(machine: HeldMachine) -> dict[str, Any]:
    """A machine that a run holds."""
    return {
        "id": machine.id,  #: id of the machine
        "market": str(machine.market),  #: its market
        #: `spot`, `on-demand`, `reserved`, or `reliable` (on demand, for the state of a training)
        "kind": "reliable" if machine.reliable else machine.pricing,
        "since": format_time(machine.since),  #: moment from which it is billed
        #: moment at which it will be evicted; null without a warning
        "warned_until": None if machine.warned_until is None else format_time(machine.warned_until),
        "lease_until": format_time(machine.lease_until),  #: moment at which it shuts down unless its lease is renewed
    }


def status_table(views: Sequence[RunView], width: int) -> Table:
    """One row per job. A narrow terminal leaves out columns, but never breaks a name."""
    from spotctl.show.layout import RankedColumn, ranked_table  # rich, which the answer in JSON does not need

    def column(heading: str, cells: Iterable[object], rank: int = 0) -> RankedColumn:
        return RankedColumn(heading, ["" if cell is None else str(cell) for cell in cells], rank)

    return ranked_table(
        width,
        (
            column("job", (view.job for view in views)),
            column("run", (view.run for view in views), 6),
            column("state", (view.status for view in views)),
            column("stage", (view.stage for view in views), 5),
            column("machines", (len(view.machines) for view in views), 1),
            column("clock", (view.clock for view in views), 3),
            column("loss", (shown_loss(view.model_loss) for view in views), 4),
            column("spent", map(spent_text, views)),
            column("evictions", (view.evictions for view in views), 2),
        ),
        names=3,
    )


def dropped(lost: Iterable[RowsLost]) -> list[str]:
    """Lines about what repairs of the log have dropped, and what may be of any run."""
    return [f"a repair of the event log has dropped {loss_text('', loss)}" for loss in lost]


def spent_text(view: RunView) -> str:
    """The cost of a run so far; `-` if it is unknown."""
    return "-" if view.money.spending is None else spending_text(view.money.spending)


def shown_loss(loss: float | None) -> str | None:
    return None if loss is None else f"{loss:.4g}"


def jobs_table(jobs: Sequence[Mapping[str, Any]], width: int) -> Table:
    """A row per job of `spotctl nightly ls --json`. A narrow terminal leaves out columns, but never breaks a name."""
    from spotctl.show.layout import RankedColumn, ranked_table

    def column(heading: str, cells: Iterable[str], rank: int = 0) -> RankedColumn:
        return RankedColumn(heading, [printable(cell) for cell in cells], rank)

    return ranked_table(
        width,
        (
            column("name", (job["name"] for job in jobs)),
            column("hours", map(_hours, jobs), 2),
            column("by", (job["scheduler"] or "" for job in jobs), 3),
            column("next", (job["next"] or "" for job in jobs), 1),
            column("last night", map(_outcome, jobs)),
            column("cost", map(_cost, jobs)),
        ),
        names=5,
    )


def _hours(job: Mapping[str, Any]) -> str:
    return job["at"] or "" if job["deadline"] is None else f"{job['at']}-{job['deadline']}"


def _outcome(job: Mapping[str, Any]) -> str:
    last = job["last_night"]
    return "" if last is None else f"{last['night']} {last['outcome']}"


def _cost(job: Mapping[str, Any]) -> str:
    last = job["last_night"] or {}
    cost = last.get("cost_usd")
    if cost is None:
        return ""
    return f"{usd_text(cost)} replayed" if last.get("replayed") else usd_text(cost)
