"""The answers of commands on runs, their machines and their log. Keys may be added but never
change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pricing_data.units import format_time, usd
from spotctl.home.installation import ShownMachine
from spotctl.log.salvage import Damage
from spotctl.run.orphans import EmergencyReturn
from spotctl.show.columns import Column
from spotctl.show.plans.plan_answers import CLUSTER

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from spotctl.clouds.provider import Resource
    from spotctl.log.salvage import Salvaged
    from spotctl.run.machine_output import OutputLine


TRAINED: tuple[Column[Mapping[str, Any]], ...] = (
    Column("clocks", "clocks done"),
    Column("updates_sent", "updates that workers sent"),
    Column("updates_applied", "updates that the model received"),
    Column("updates_lost", "updates that were sent and not applied; 0 unless something is broken"),
    Column("updates_doubled", "updates that were applied twice; 0 unless something is broken"),
    Column("evictions", "evictions survived"),
    Column("failures", "failures survived"),
    Column("model_sha256", "SHA-256 of the model"),
    Column("loss", "loss of the model at the end; null if the trainer computes none"),
    Column("samples", "items that the training went through"),
    Column("interrupted", "whether it was interrupted; missing if not", optional=True),
    Column(
        "redone_clocks",
        "finished clocks that were done again after a loss, as pairs of first and last; missing if "
        "none",
        optional=True,
    ),
)
"""The end of a training, which `agileml.iteration_log` writes."""

COUNTED: tuple[Column[Mapping[str, Any]], ...] = (
    Column(
        "least_counted",
        "how often the shard counted whose work was left out most often, relative to the mean of "
        "all",
        optional=True,
    ),
    Column(
        "most_counted", "the same for the shard whose work was left out least often", optional=True
    ),
)
"""How evenly the shards of a training have counted."""

RUN_END: tuple[Column[Any], ...] = (
    Column("run", "id of the run"),
    Column(
        "outcome",
        "`done`, `failed`, `stopped`, `no capacity`, `not in time`, `budget reached` or `not "
        "permitted`",
    ),
    Column("message", "the same in words"),
    Column("cost_usd", "cost of the run; null if it could not be computed"),
    Column("on_demand_usd", "cost of the same work on on-demand machines; null if it is unknown"),
    Column("on_demand_unknown", "why it is unknown; missing if it is known", optional=True),
    Column(
        "replayed",
        "whether the run was on the local market: then these amounts were replayed, and nothing "
        "was billed",
    ),
    Column("hours", "duration of the run by the market's clock"),
    Column("evictions", "number of evictions"),
    Column(
        "busy",
        "share of the machines' time spent on work that counts; null if no machine was rented",
    ),
    *TRAINED,
    *COUNTED,
    Column("model", "file of the model"),
    Column(
        "checkpoint",
        "place of the newest checkpoint, of a command or of a training that did not end",
    ),
    Column("checkpoint_clock", "clock of that training's checkpoint"),
    Column(
        "outputs", "where the outputs of a command are kept, by name", named="place of this output"
    ),
    Column("work_left", "share of the work that is left, if the run ended before it was done"),
    Column("to_finish_usd", "estimated cost of that rest"),
    Column(
        "left_plan",
        "purchases that the plan did not begin with, with its reason and the figures of then; "
        "missing without any",
        optional=True,
    ),
    Column("cluster", "Ray cluster on which the training ran", of=CLUSTER.of),
)
"""The JSON of `spotctl launch`, which `spotctl.log.ledger.final_figures` finds."""

WITHOUT_RUN: tuple[Column[Any], ...] = (
    Column("job", "name of the job"),
    Column("run", "null"),
    Column(
        "outcome",
        "`withdrawn` if the job was stopped while it waited for its turn; `error` if it could not "
        "run",
    ),
    Column("message", "the same in words"),
)
EVENT_LINE: tuple[Column[Mapping[str, Any]], ...] = (
    Column("time", "moment of the event by the market's clock; null for a job that has no run"),
    Column("job", "name of the job"),
    Column("run", "id of the run; null if the job has none"),
    Column(
        "event",
        "kind of the event, such as `Rented` or `MachineWarned`; `Answer` is the last line of a "
        "run",
    ),
    Column(
        "fields",
        "values of the event, as the event log has them; of `Answer`, the answer of `launch "
        "--json`",
        named="a value; more may be added, and amounts are as in the log",
    ),
)
"""A line of `spotctl launch --json-lines`."""

OUTPUT_LINE: tuple[Column[OutputLine], ...] = (
    Column(
        "time",
        "time at which the machine printed it; null if it was not noted",
        "at",
        form=format_time,
    ),
    Column("machine", "id of the machine"),
    Column("line", "the text", "text"),
)
"""A line of `spotctl logs --json`."""

EXECUTED: tuple[Column[tuple[str, CompletedProcess[str]]], ...] = (
    Column("machine", "id of the machine", "0"),
    Column("exit_code", "exit code of the command", "1.returncode"),
    Column("out", "what it printed on stdout", "1.stdout"),
    Column("err", "what it printed on stderr", "1.stderr"),
)
SHELL: tuple[Column[Mapping[str, Any]], ...] = (
    Column("machine", "id of the machine"),
    Column("shell", "shell that would be opened"),
    Column("folder", "working directory of the job"),
)
ADMITTED: tuple[Column[Mapping[str, Any]], ...] = (
    Column("job", "with --admit, name of the job"),
    Column("ssh_from", "with --admit, addresses from which SSH is allowed"),
    Column("rules", "with --admit, rules of the firewall that were changed"),
)
SSH = (*SHELL, *ADMITTED)
"""The JSON of `spotctl ssh`; with --admit only what was admitted."""

RESOURCE: tuple[Column[Resource], ...] = (
    Column("kind", "machine, disk, address or the like"),
    Column("id", "its id"),
)
ORPHANED: tuple[Column[Mapping[str, Any]], ...] = (
    Column("removed", "whether they were removed (--yes)"),
    Column("resources", "resources that no active run owns", each=RESOURCE),
    Column(
        "data",
        "stored data that no job has used for long",
        each=(
            Column(
                "location",
                "its place in a bucket, or a folder of this computer",
                "0",
            ),
            Column("bytes", "its size; files that other data has, too, are kept", "1"),
            Column(
                "job",
                "job that used it last; empty for a copy on this computer",
                "2",
            ),
            Column("used", "when it was used last", "3", form=format_time),
        ),
    ),
    Column("failures", "clouds that could not be searched, and what could not be removed"),
    Column(
        "not_asked",
        "clouds that neither the log nor the settings name, and that could not be searched",
    ),
)
"""The JSON of `spotctl gc`."""

EMERGENCY: tuple[Column[Any] | type, ...] = (
    Column("log_damage", "why the event log cannot be used"),
    EmergencyReturn,
    Column("returned", each=ShownMachine),
    Column("left", each=ShownMachine),
)
STOPPED = (*RUN_END, *WITHOUT_RUN, *EMERGENCY)
"""The JSON of `spotctl stop`: the end of a run, a job without one, or what was done without the
log."""

BUDGET_SET: tuple[Column[Mapping[str, Any]], ...] = (
    Column("run", "id of the run"),
    Column("budget_usd", "what it may cost in all from now on", "limit", form=usd),
    Column(
        "earlier_usd",
        "what it might cost before; null without a budget",
        "earlier",
        form=usd,
    ),
)
RESUMED = (*RUN_END, *BUDGET_SET)
"""The JSON of `spotctl resume`: the end of a run, or with `--budget` what was set."""

LOG: tuple[Column[Salvaged], ...] = (
    Column("rows", "number of rows that can be read", form=len),
    Column("runs", "number of runs that they describe", form=len),
    Column("damage", "what cannot be used", each=Damage),
    Column(
        "dropped",
        "what earlier repairs have dropped",
        each=(
            Column(
                "run",
                "run of the rows; empty if they may be of any run",
                "0",
            ),
            Column("rows", "number of rows", "1.rows"),
            Column("first", "number of the first in the damaged log", "1.first"),
            Column("last", "number of the last in the damaged log", "1.last"),
            Column(
                "since",
                "time of the last row before them, by the provider's clock; without a run by this "
                "computer's",
                "1.since",
                form=format_time,
            ),
            Column(
                "until",
                "time of the first row after them",
                "1.until",
                form=format_time,
            ),
            Column(
                "kinds",
                "their kinds, as far as these could be read",
                "1.kinds",
                form=list,
            ),
        ),
    ),
)
"""The JSON of `spotctl log check`."""

SETUP: tuple[Column[Mapping[str, Any]], ...] = (
    Column("account", "the account's name with its cloud"),
    Column(
        "steps",
        "what the account needs",
        each=(
            Column("what", "a thing, in words"),
            Column("made_here", "whether this home has made it, and `--undo` removes it"),
        ),
    ),
    Column("job", "keys of job files that use it", named="the value of this key"),
)
TRIAL: tuple[Column[Mapping[str, Any]], ...] = (
    Column("format", "version of this form"),
    Column("cloud", "the cloud"),
    Column("region", "the region"),
    Column("endpoint", "host that answered; of a real cloud, the cloud's own"),
    Column("real", "whether that is a cloud, rather than a server of tests"),
    Column("date", "day of the trial, UTC"),
    Column("versions", "versions by name", named="version of this package, or of Python"),
    Column("passed", "whether no step failed"),
    Column("most_usd", "upper bound of the cost, by list prices"),
    Column(
        "steps",
        "the steps, in order",
        each=(
            Column("name", "name of the step, as --step takes it"),
            Column("outcome", "`passed`, `failed` or `skipped`"),
            Column("detail", "the result in words"),
            Column("seconds", "how long it took"),
            Column("figures", "measurements by name", named="this measurement"),
        ),
    ),
    Column(
        "bill",
        "comparison with the bill of --bill; null before",
        of=(
            Column("agrees", "whether ledger and bill agree"),
            Column("machines", "number of machines compared"),
            Column("ledger_usd", "sum of the ledger"),
            Column("bill_usd", "sum of the bill"),
            Column("bare_usd", "sum of the bill for machines that were rented without a job"),
        ),
    ),
)
"""The record of a full trial, as `spotctl.run.trial.record` writes it."""

LEFT: tuple[Column[Mapping[str, Any]], ...] = (
    Column("left", "resources of the run that the cloud still lists", each=RESOURCE),
)
TRIED = (*RUN_END, *LEFT, *TRIAL)
"""The JSON of `spotctl try`: the end of the run and what is left, or with --full the trial's
record."""
