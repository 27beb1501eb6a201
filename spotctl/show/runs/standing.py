"""`Standing`: a run as `spotctl status` shows it, in JSON and on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from pricing_data.units import counted, format_time, usd
from spotctl.log.ledger.rows import CostSoFar
from spotctl.show.phrases import loss_text, moment, spending_text

if TYPE_CHECKING:
    from rich.table import Table

    from spotctl.home.paths import Paths
    from spotctl.log.events import Progressed, RowsLost
    from spotctl.log.state import RunState
    from spotctl.log.statuses import RunStatus
    from spotctl.log.waiting import WaitingJob


@dataclass(frozen=True, slots=True)
class Standing:
    """The part of the answer that is about a run, what the run has cost so far, and a line with the commands that show,
    continue and end it; empty after its end."""

    answer: dict[str, Any]
    spent: CostSoFar
    ways_on: str = ""


def standing_of(status: RunStatus) -> Standing:
    goes_on = status.state.began is not None and status.state.ended is None
    return Standing(_job(status), status.spent, ways_on(status.state, attended=status.attended) if goes_on else "")


def ways_on(state: RunState, *, attended: bool) -> str:
    """The commands that show, continue and end a run, with the machines of one without a runner."""
    from spotctl.run.turn.ending import orders_open

    assert state.began is not None
    job, open_order = state.began.job, orders_open(state)
    if attended:
        return f"'spotctl resume {job}' shows run {state.run}, 'spotctl stop {job}' ends it"
    # A run that was asked to stop only returns its machines when it is resumed.
    resume = "" if state.stopping is not None else f", 'spotctl resume {job}' continues it"
    if not state.alive and not open_order:
        return f"run {state.run} has no machines: 'spotctl stop {job}' ends it{resume}"
    machines = counted(len(state.alive), "machine") + (" and an open order" if open_order else "")
    return (
        f"run {state.run} has {machines}, rented until their leases end: 'spotctl stop {job}' returns them now{resume}"
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
    standings: Sequence[Standing], lost: Sequence[RowsLost] = (), waits: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """The JSON of `spotctl status --json`."""
    return {
        "jobs": [standing.answer for standing in standings],  #: the latest run of each job, each -> _job
        "waiting": list(waits),  #: jobs that wait for their turn, each -> waiting_json
        #: rows that a repair of the log has dropped, and that may be of any run
        "rows_lost": sum(loss.rows for loss in lost),
    }


def _job(status: RunStatus) -> dict[str, Any]:
    """The latest run of a job.

    Fields:
        spent_usd: cost so far
        spent_low_usd: the least that this can be
        spent_high_usd: the most that this can be; null if that is unknown, because rows of the log or prices are lost
        attempt: number of the attempt of a command
        checkpoint: newest checkpoint of a command; null before the first
        checkpoint -> _checkpoint
    """
    state = status.state
    # Commands report no clocks.
    progress = None if state.work.attempt is not None else state.progress
    assert state.began is not None
    return {
        "name": state.began.job,  #: name of the job
        "run": state.run,  #: id of the run
        "state": status.word,  #: `running`, `stopping` or `interrupted`; after the end its outcome
        "began": moment(state.began.wall_us),  #: when it was launched, by this computer's clock
        #: when it ended, by this computer's clock; null before
        "ended": None if state.ended is None else moment(state.ended.wall_us),
        "stage": None if progress is None else progress.stage,  #: stage of a training, 1 to 3; null for commands
        #: machines that are held, each -> _machine
        "machines": [_machine(state, name) for name in (held.id for held in state.alive)],
        "clock": None if progress is None else progress.clock,  #: clocks that a training has done
        #: loss at the last clock, and of the model once that is made; null for commands
        "loss": None if progress is None else last_loss(state, progress),
        **spending_json(status.spent),
        "rows_lost": state.rows_lost,  #: rows of the run that a repair of the log has dropped
        "replayed": state.is_replayed,  #: whether the run is on the local market: then nothing is billed
        "evictions": state.evictions,  #: number of evictions
        **({} if state.work.attempt is None else {"attempt": state.work.number, "checkpoint": _checkpoint(state)}),
    }


def spending_json(spent: CostSoFar | None) -> dict[str, float | None]:
    """The cost of a run so far, and its bounds."""
    if spent is None:
        return dict.fromkeys(("spent_usd", "spent_low_usd", "spent_high_usd"))
    high = None if spent.high is None else usd(spent.high)
    return {"spent_usd": usd(spent.amount), "spent_low_usd": usd(spent.low), "spent_high_usd": high}


def last_loss(state: RunState, progress: Progressed) -> float | None:
    """The loss of the finished model, if there is one: the last clock's loss was measured before its update."""
    made: float | None = progress.loss if state.ended is None else state.ended.facts.get("loss", progress.loss)
    return made


def _checkpoint(state: RunState) -> dict[str, Any] | None:
    """The newest checkpoint of a command.

    Fields:
        number: its number, which grows with every checkpoint of the run
        seconds: time that saving it took
        bytes: its size
        every_seconds: time between two checkpoints; null if only an eviction warning causes one
    """
    newest = state.work.checkpoint
    if newest is None:
        return None
    every = newest.every_seconds if isfinite(newest.every_seconds) else None
    return {**{name: getattr(newest, name) for name in ("number", "seconds", "bytes")}, "every_seconds": every}


def _machine(state: RunState, name: str) -> dict[str, Any]:
    """A machine that a run holds."""
    held = state.machines[name]
    allocation = state.allocations[held.allocation]
    return {
        "id": held.id,  #: id of the machine
        "market": str(allocation.market),  #: its market
        #: `spot`, `on-demand`, `reserved`, or `reliable` (on demand, for the state of a training)
        "kind": "reliable" if allocation.reliable else allocation.market.pricing(spot=allocation.bid is not None),
        "since": format_time(held.started),  #: moment from which it is billed
        #: moment at which it will be evicted; null without a warning
        "warned_until": None if held.warned_until is None else format_time(held.warned_until),
        "lease_until": format_time(held.lease_until),  #: moment at which it shuts down unless its lease is renewed
    }


def status_table(standings: Sequence[Standing], width: int) -> Table:
    """One row per job. A narrow terminal leaves out columns, but never breaks a name."""
    from spotctl.show.layout import RankedColumn, ranked_table  # rich, which the answer in JSON does not need

    jobs = [standing.answer for standing in standings]

    def column(heading: str, cells: Iterable[object], rank: int = 0) -> RankedColumn:
        return RankedColumn(heading, [_cell(cell) for cell in cells], rank)

    return ranked_table(
        width,
        (
            column("job", (job["name"] for job in jobs)),
            column("run", (job["run"] for job in jobs), 6),
            column("state", (job["state"] for job in jobs)),
            column("stage", (job["stage"] for job in jobs), 5),
            column("machines", (len(job["machines"]) for job in jobs), 1),
            column("clock", (job["clock"] for job in jobs), 3),
            column("loss", (shown_loss(job["loss"]) for job in jobs), 4),
            column("spent", (spending_text(standing.spent) for standing in standings)),
            column("evictions", (job["evictions"] for job in jobs), 2),
        ),
        names=3,
    )


def dropped(lost: Iterable[RowsLost]) -> list[str]:
    """Lines about what repairs of the log have dropped, and what may be of any run."""
    return [f"a repair of the event log has dropped {loss_text('', loss)}" for loss in lost]


def shown_loss(loss: float | None) -> str | None:
    return None if loss is None else f"{loss:.4g}"


def _cell(value: object) -> str:
    return "" if value is None else str(value)
