"""The message about a night: what happened, what it cost, what to do. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from bidbrain.billing import usd
from pricing_data.errors import AccessDenied, MissingCredentials
from pricing_data.units import counted
from spotctl.clouds.errors import NotPermitted
from spotctl.home.errors import MissingSecret
from spotctl.log.outcomes import (
    BUDGET,
    DONE,
    FAILED,
    NO_CAPACITY,
    NOT_IN_TIME,
    NOT_PERMITTED,
    STOPPED,
)
from spotctl.log.state import RunState
from spotctl.nightly.state_dir import Installed
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.run.notify import Message, cost_text

NOT_STARTED, NO_SECRET, MISSED, SKIPPED = (
    "could not begin",
    "a secret is missing",
    "missed",
    "skipped",
)
"""Outcomes of a night without a run, in addition to those of runs."""

_OUTCOME_OF_ERRORS: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((MissingSecret,), NO_SECRET),
    ((MissingCredentials, AccessDenied, NotPermitted), NOT_PERMITTED),
    ((NotInTime,), NOT_IN_TIME),
    ((OverBudget,), BUDGET),
)

_TITLES = {
    DONE: "done",
    FAILED: "the job failed",
    STOPPED: "stopped before the job was done",
    NO_CAPACITY: "no machines available",
    NOT_IN_TIME: "not done by the deadline",
    BUDGET: "budget reached",
    NOT_PERMITTED: "the cloud refused the credentials",
    NO_SECRET: "not started: a secret is missing",
    MISSED: "missed",
    SKIPPED: "skipped: the job was still running",
    NOT_STARTED: "not started",
}

_ADVICE = {
    FAILED: "find the cause with: spotctl logs {name}; fix it; then run: spotctl nightly run {name}",
    STOPPED: "to run it anyway: spotctl nightly run {name}",
    NO_CAPACITY: "allow more types or regions in {file}, or a later --deadline; retry now: spotctl nightly run {name}",
    NOT_IN_TIME: "allow more machines in {file}, or set an earlier --at or a later --deadline; see spotctl plan {file}",
    BUDGET: "raise `budget` in {file} (see spotctl plan {file}); then run: spotctl nightly run {name}",
    NOT_PERMITTED: "log in again, or put valid credentials into {environment}; then run: spotctl nightly run {name}",
    MISSED: "nothing; run it now with: spotctl nightly run {name}. If this happens often, set a later --deadline",
    SKIPPED: "nothing; the next night starts as usual. If nights overlap often, set a --deadline",
    NO_SECRET: "add a line NAME=value to {environment}; then run: spotctl nightly run {name}",
    NOT_STARTED: "fix the problem above; then run: spotctl nightly run {name}",
}


@dataclass(frozen=True, slots=True)
class NightResult:
    """How a night ended; `error` is set if it failed without a run that ended."""

    outcome: str
    message: str
    error: Exception | None = None

    @staticmethod
    def of_error(error: Exception, *, began: bool) -> "NightResult":
        """The result of a night that failed with an error; `began`: after a run had started."""
        otherwise = FAILED if began else NOT_STARTED
        outcome = next(
            (outcome for kinds, outcome in _OUTCOME_OF_ERRORS if isinstance(error, kinds)),
            otherwise,
        )
        text = str(error)
        if isinstance(error, OSError) and error.filename:
            text = f"{error.filename}: {error.strerror}"

        return NightResult(outcome, " ".join(text.split()) or type(error).__name__, error)


class NightTotals:
    """Totals over the runs of a night. Money in nano-dollar-seconds, None while a run has not
    ended.

    Replayed money counts only if all runs were replayed.
    """

    def __init__(self, runs: Sequence[RunState]) -> None:
        billed = [run for run in runs if not run.is_replayed]
        counted_runs = billed or runs
        self.spent = _total(counted_runs, "spent")
        self.on_demand = _total(counted_runs, "on_demand")
        self.replayed = bool(runs) and not billed
        self.evictions = sum(run.evictions for run in runs)
        self.alive = sum(len(run.alive) for run in runs)


def night_message(
    result: NightResult,
    runs: Sequence[RunState],
    day: date,
    nightly: Installed,
    environment: Path,
    log: Path,
    report: tuple[str, Mapping[str, Any]] | None = None,
) -> Message:
    """The message about a night of a job, which mentions its `environment` file and its `log`;
    `report` is the path of its cost report, and the figures in it.
    """
    name = nightly.name
    page, figures = (None, None) if report is None else report
    good = result.outcome == DONE
    totals = NightTotals(runs)
    spent = None if totals.spent is None else usd(totals.spent)
    on_demand = None if totals.on_demand is None else usd(totals.on_demand)
    if spent is None and figures is not None:
        # For a run that has not ended, the ledger has the cost so far.
        spent = figures["total_usd"]
        on_demand = figures["on_demand_usd"]

    model: str | None = None
    key = f"{name}-{day.isoformat()}"
    cost = "nothing; no machines were rented"
    if runs:
        last = runs[-1]
        key = last.run
        cost = cost_text(spent, on_demand, replayed=totals.replayed)
        if totals.spent is None and spent is not None:
            cost += " so far"
        kept = None if last.ended is None else last.ended.facts.get("model")
        model = None if kept is None else str(kept)

    if totals.alive:
        stop = f"spotctl stop {name}"
        machines = counted(totals.alive, "machine")
        held = f"{machines}, until the leases end; to return them now: {stop}"
        advice = f"continue it: spotctl nightly run {name}; or return its machines: {stop}"
    else:
        held = "nothing"
        advice = _ADVICE.get(result.outcome, "")
        advice = advice.format(name=name, file=nightly.file, environment=environment)

    happened = result.message or "the job is done"
    if len(runs) > 1:
        happened += f" ({len(runs)} attempts)"

    lines = {"What happened": happened, "Cost": cost}
    if figures is not None:
        lines["Spent on"] = figures["in_short"]
    if runs:
        lines["Evictions"] = str(totals.evictions)
    lines["Still running"] = held
    lines["What to do"] = advice
    lines["Model"] = model or ""
    lines["Report"] = page or ""
    lines["Log"] = str(log)
    shown = {name: text for name, text in lines.items() if text}

    facts = {
        "event": "night ended",
        "name": name,
        "night": day.isoformat(),
        "outcome": result.outcome,
        "message": result.message,
        "runs": [run.run for run in runs],
        "cost_usd": spent if runs else 0.0,
        "on_demand_usd": on_demand if runs else 0.0,
        "replayed": totals.replayed,
        "evictions": totals.evictions,
        "left_running": totals.alive,
        "model": model,
        "log": str(log),
        "report": page,
        "cost_report": None if figures is None else dict(figures),
    }

    title = _title(name, day, result.outcome)
    return Message(key, title, good, shown, facts)


def failure_message(name: str, day: date, result: NightResult, log: str) -> Message:
    """The message about a scheduled start that failed outside of a run; `supervise.sh` writes the
    same.
    """
    lines = {
        "What happened": result.message,
        "What to do": _ADVICE[NOT_STARTED].format(name=name),
        "Still running": f"see spotctl status {name}",
        "Log": log,
    }

    facts = {
        "event": "night failed",
        "name": name,
        "night": day.isoformat(),
        "outcome": result.outcome,
        "message": result.message,
    }

    title = _title(name, day, result.outcome)
    key = f"{name}-{day.isoformat()}-failed"
    return Message(key, title, good=False, lines=lines, facts=facts)


def _title(name: str, day: date, outcome: str) -> str:
    return f"{name}, night of {day:%a %d %b %Y}: {_TITLES.get(outcome, outcome)}"


def _total(runs: Sequence[RunState], fact: str) -> int | None:
    facts = [run.ended.facts.get(fact) if run.ended else None for run in runs]
    known = [int(value) for value in facts if value is not None]
    return sum(known) if len(known) == len(facts) else None
