"""`spotctl status` and `spotctl nightly ls`: runs, jobs that wait, and nightly jobs, in JSON and as
tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pricing_data.units import MINUTE, counted, format_time, moment, to_usd
from spotctl.home.installation import ShownMachine
from spotctl.log.ledger.rows import usd
from spotctl.show.columns import Column, as_json, if_any, table
from spotctl.show.phrases import loss_text, spending_text

if TYPE_CHECKING:
    from rich.table import Table

    from spotctl.home.paths import Paths
    from spotctl.log.events import RowsLost
    from spotctl.log.jobs import WaitingJob
    from spotctl.show.runs.run_view import CommandProgress, HeldMachine, MarketView, RunView


def ways_on(view: RunView) -> str:
    """The commands that show, continue and end a run, with the machines of one without a runner."""
    job, run = view.job, view.run
    stop = f"'spotctl stop {job}'"
    if view.unreadable:
        return f"{view.unreadable}; {stop} returns what the clouds show of run {run}"
    if view.attended:
        return f"'spotctl resume {job}' shows run {run}, {stop} ends it"

    # A run that was asked to stop only returns its machines when it is resumed.
    resume = "" if view.is_stopping else f", 'spotctl resume {job}' continues it"
    if not view.machines and not view.has_open_order:
        return f"run {run} has no machines: {stop} ends it{resume}"

    rented = counted(len(view.machines), "machine")
    if view.has_open_order:
        rented += " and an open order"
    until = "rented until their leases end"
    return f"run {run} has {rented}, {until}: {stop} returns them now{resume}"


def booting_text(view: RunView) -> str:
    """The machines that boot, how far they have come, and when they would count as silent; empty
    without any.
    """
    if not view.attended or view.is_replayed:
        return ""

    boots = list[str]()
    for machine in view.machines:
        if machine.boot is not None:
            minutes = max(machine.boot.due - view.now, 0) / MINUTE
            boots.append(f"{machine.id} ({machine.boot.stage}; silent in {minutes:.0f} min)")
    if boots:
        return f"run {view.run} waits for the boot of {', '.join(boots)}"
    return ""


def waiting_text(job: WaitingJob, paths: Paths, *, attended: bool) -> str:
    """A job that has not begun, and the commands that begin or withdraw it."""
    name, stop = job.name, f"'spotctl stop {job.name}'"
    if not attended:
        return (
            f"job {name} has not begun, and its launcher is gone: 'spotctl resume {name}' "
            f"begins it once it is its turn, {stop} forgets it"
        )

    awaited = " and ".join(job.awaited(paths)) or "its turn"
    if job.begins is not None:
        awaited += f", probably until {moment(job.begins)}"
    return f"job {name} waits for {awaited}: {stop} withdraws it"


def spent_text(view: RunView) -> str:
    """The cost of a run so far; `-` if it is unknown."""
    if view.money.spending is None:
        return "-"
    return spending_text(view.money.spending)


def shown_loss(loss: float | None) -> str | None:
    if loss is None:
        return None
    return f"{loss:.4g}"


MACHINE: tuple[Column[HeldMachine], ...] = (
    Column("id", "id of the machine"),
    Column("market", "its market", form=str),
    Column(
        "kind",
        "`spot`, `on-demand`, `reserved`, or `reliable` (on demand, for the state of a training)",
        lambda machine: "reliable" if machine.reliable else machine.pricing,
    ),
    Column("since", "moment from which it is billed", form=format_time),
    Column(
        "warned_until",
        "moment at which it will be evicted; null without a warning",
        form=format_time,
    ),
    Column(
        "lease_until",
        "moment at which it shuts down unless its lease is renewed",
        form=format_time,
    ),
    Column(
        "boot",
        "stage of its boot: `ordered`, `running`, `console`, `ssh` or `packages`; null once its "
        "agent has answered",
        "boot.stage",
    ),
    Column(
        "silent_at",
        "moment at which it is returned unless its boot shows something new; null once its agent "
        "has answered",
        "boot.due",
        form=format_time,
    ),
)
GPUS: tuple[Column[tuple[float, float]], ...] = (
    Column("busy", "share of time in which they compute", "0"),
    Column("memory", "share of their memory in use", "1"),
)
MARKET: tuple[Column[MarketView], ...] = (
    Column("market", "the market", form=str),
    Column("machines", "number of machines held there"),
    Column("warned", "number of these with an eviction warning"),
    Column(
        "bid",
        "highest bid of these machines in dollars per hour; null without bids",
        form=to_usd,
    ),
    Column("on_demand", "on-demand price in dollars per hour", form=to_usd),
    Column("gpus", "use of their GPUs; null if none has reported it", of=GPUS),
)
CHECKPOINT: tuple[Column[CommandProgress], ...] = (
    Column(
        "number",
        "its number, which grows with every checkpoint of the run",
        "checkpoint",
    ),
    Column("seconds", "time that saving it took"),
    Column("bytes", "its size"),
    Column(
        "every_seconds", "time between two checkpoints; null if only an eviction warning causes one"
    ),
)


RUN: tuple[Column[RunView], ...] = (
    Column("name", "name of the job", "job", heading="job"),
    Column("run", "id of the run", heading="run", rank=6),
    Column(
        "state",
        "`running`, `stopping` or `interrupted`; after the end its outcome",
        "status",
        heading="state",
    ),
    Column("began", "when it was launched, by this computer's clock", form=moment),
    Column(
        "ended",
        "when it ended, by this computer's clock; null before",
        form=moment,
    ),
    Column(
        "stage",
        "stage of a training, 1 to 3; null for commands",
        heading="stage",
        unknown="",
        rank=5,
    ),
    Column(
        "machines",
        "machines that are held",
        heading="machines",
        cell=lambda view: str(len(view.machines)),
        rank=1,
        each=MACHINE,
    ),
    Column("clock", "clocks that a training has done", heading="clock", unknown="", rank=3),
    Column(
        "loss",
        "loss at the last clock, and of the model once that is made; null for commands",
        "model_loss",
        heading="loss",
        show="{:.4g}",
        unknown="",
        rank=4,
    ),
    Column(
        "spent_usd",
        "cost so far",
        "money.spending.amount",
        form=usd,
        heading="spent",
        cell=spent_text,
    ),
    Column("spent_low_usd", "the least that this can be", "money.spending.low", form=usd),
    Column(
        "spent_high_usd",
        "the most that this can be; null if that is unknown, because rows of the log or prices are "
        "lost",
        "money.spending.high",
        form=usd,
    ),
    Column("rows_lost", "rows of the run that the log has lost"),
    Column(
        "replayed",
        "whether the run is on the local market: then nothing is billed",
        "is_replayed",
    ),
    Column("evictions", "number of evictions", heading="evictions", rank=2),
    Column("markets", "markets in which it has or had machines", each=MARKET),
    Column(
        "attempt",
        "number of the attempt of a command",
        "command.attempt",
        only="command",
    ),
    Column(
        "checkpoint",
        "newest checkpoint of a command; null before the first",
        lambda view: view.command if view.command and view.command.checkpoint is not None else None,
        of=CHECKPOINT,
        only="command",
    ),
    Column(
        "unreadable",
        "why its job cannot be read from the log; absent if it can, or after the end",
        form=if_any,
        optional=True,
    ),
)
WAITING: tuple[Column[Mapping[str, Any]], ...] = (
    Column("name", "name of the job"),
    Column("state", "`waiting`, or `not begun` if its launcher is gone"),
    Column("after", "jobs whose ends it waits for"),
    Column("begins", "when it is expected to begin; null if that is unknown"),
    Column("file", "its job file"),
)
STATUS: tuple[Column[Any], ...] = (
    Column("jobs", "the latest run of each job", each=RUN),
    Column("waiting", "jobs that wait for their turn", each=WAITING),
    Column(
        "rows_lost",
        "rows that a repair of the log has dropped, and that may be of any run",
    ),
)
DAMAGED: tuple[Column[Mapping[str, Any]], ...] = (
    Column("log_damage", "what cannot be read of the event log"),
    Column("shown", "machines that the clouds show", each=ShownMachine),
    Column("failures", "clouds that could not be searched"),
)
ANSWER = (*STATUS, *DAMAGED)
"""The JSON of `spotctl status`; the last keys only with a damaged log."""


def waiting_json(job: WaitingJob, paths: Paths) -> dict[str, Any]:
    """A job that was launched and has not begun."""
    from spotctl.log.jobs import is_running

    state, after = "not begun", list(job.after)
    if is_running(paths.locks, job.name):
        state, after = "waiting", job.awaited(paths)
    begins = None if job.begins is None else moment(job.begins)
    return {"name": job.name, "state": state, "after": after, "begins": begins, "file": job.file}


def status_answer(
    views: Sequence[RunView], lost: Sequence[RowsLost] = (), waits: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """The JSON of `spotctl status --json`."""
    rows_lost = sum(loss.rows for loss in lost)
    return as_json(STATUS, {"jobs": views, "waiting": waits, "rows_lost": rows_lost})


def status_table(views: Sequence[RunView], width: int) -> Table:
    """One row per job. A narrow terminal leaves out columns, but never breaks a name."""
    return table(RUN, views, width, names=3)


def dropped(lost: Iterable[RowsLost]) -> list[str]:
    """Lines about what repairs of the log have dropped, and what may be of any run."""
    return [f"a repair of the event log has dropped {loss_text('', loss)}" for loss in lost]
