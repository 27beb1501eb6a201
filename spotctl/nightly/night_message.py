"""A night in words for somebody who reads them at seven in the morning: what happened, its cost, what to do. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from bidbrain.billing import usd
from pricing_data.errors import AccessDenied, MissingCredentials
from spotctl.errors import MissingSecret
from spotctl.machines.base import NotPermitted
from spotctl.notify.notice import Notice
from spotctl.notify.runs import cost_text
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.runlog.outcomes import BUDGET, DONE, FAILED, NO_CAPACITY, NOT_IN_TIME, NOT_PERMITTED, STOPPED
from spotctl.runlog.state import RunState

NOT_BEGUN, NO_SECRET, MISSED = "could not begin", "a secret is missing", "missed"
"""How a night ends beside the ways in which a run does."""

_OF_ERRORS: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((MissingSecret,), NO_SECRET),
    ((MissingCredentials, AccessDenied, NotPermitted), NOT_PERMITTED),
    ((NotInTime,), NOT_IN_TIME),
    ((OverBudget,), BUDGET),
)

_TITLES = {
    DONE: "done",
    FAILED: "the job failed",
    STOPPED: "stopped before it was done",
    NO_CAPACITY: "no machines were to be had",
    NOT_IN_TIME: "not done in time",
    BUDGET: "the budget was not enough",
    NOT_PERMITTED: "the cloud refused its credentials",
    NO_SECRET: "it could not begin, a secret is missing",
    MISSED: "missed",
    NOT_BEGUN: "it could not begin",
}

_ADVICE = {
    FAILED: "see why: spotctl logs {name}; mend it; then: spotctl nightly run {name}",
    STOPPED: "to run it after all: spotctl nightly run {name}",
    NO_CAPACITY: "allow more types or regions in {file}, or give a later --deadline; now: spotctl nightly run {name}",
    NOT_IN_TIME: "give it more machines in {file}, an earlier --at or a later --deadline; see spotctl plan {file}",
    BUDGET: "raise budget in {file} (spotctl plan {file} says what to expect); then: spotctl nightly run {name}",
    NOT_PERMITTED: "renew the login, or put valid credentials into {environment}; then: spotctl nightly run {name}",
    MISSED: "nothing, or to run it now: spotctl nightly run {name}; if it sleeps every night, give a later --deadline",
    NO_SECRET: "write it into {environment}, as a line NAME=value; then: spotctl nightly run {name}",
    NOT_BEGUN: "mend what is said above; then: spotctl nightly run {name}",
}


@dataclass(frozen=True, slots=True)
class Places:
    """What the advice names."""

    name: str
    file: str
    environment: str
    log: str
    report: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a night ended; `error` is what kept it from ending as a run does."""

    outcome: str
    message: str
    error: Exception | None = None

    @staticmethod
    def of_error(error: Exception, *, began: bool) -> Verdict:
        """What an error means for the night."""
        otherwise = FAILED if began else NOT_BEGUN
        outcome = next((word for kinds, word in _OF_ERRORS if isinstance(error, kinds)), otherwise)
        return Verdict(outcome, " ".join(str(error).split()) or type(error).__name__, error)


@dataclass(frozen=True, slots=True)
class Sums:
    """A night's runs, added up; money in nano-dollar-seconds, None where a run has no end."""

    spent: int | None
    on_demand: int | None
    evictions: int
    alive: int

    @staticmethod
    def of(runs: Sequence[RunState]) -> Sums:
        """Of these runs."""
        return Sums(
            _total(runs, "spent"),
            _total(runs, "on_demand"),
            sum(run.evictions for run in runs),
            sum(len(run.alive) for run in runs),
        )


def notice(
    verdict: Verdict,
    runs: Sequence[RunState],
    day: date,
    places: Places,
    figures: Mapping[str, Any] | None = None,
) -> Notice:
    """The night as a message; `figures` are those of its cost report."""
    good, sums = verdict.outcome == DONE, Sums.of(runs)
    spent, on_demand = (None if sum_ is None else usd(sum_) for sum_ in (sums.spent, sums.on_demand))
    if spent is None and figures is not None:
        # A run that has not ended costs what the ledger says so far.
        spent, on_demand = figures["total_usd"], figures["on_demand_usd"]
    model = _model(runs)
    shown = {
        "What happened": _happened(verdict, runs),
        "Cost": _cost(sums, spent, on_demand) if runs else "nothing; no machine was rented",
        "Of it": "" if figures is None else figures["in_short"],
        "Evictions": str(sums.evictions) if runs else "",
        "Left running": _left(sums.alive, places.name),
        "What to do": _advice(verdict, sums, places),
        "Model": model or "",
        "Report": places.report or "",
        "Log": places.log,
    }
    facts = {
        "event": "night ended",
        "name": places.name,
        "night": day.isoformat(),
        "outcome": verdict.outcome,
        "message": verdict.message,
        "runs": [run.run for run in runs],
        "cost_usd": spent if runs else 0.0,
        "on_demand_usd": on_demand if runs else 0.0,
        "evictions": sums.evictions,
        "left_running": sums.alive,
        "model": model,
        "log": places.log,
        "report": places.report,
        "cost_report": None if figures is None else dict(figures),
    }
    title = f"{places.name}, night of {day:%a %d %b %Y}: {_TITLES.get(verdict.outcome, verdict.outcome)}"
    key = runs[-1].run if runs else f"{places.name}-{day.isoformat()}"
    return Notice(key, title, good, {name: said for name, said in shown.items() if said}, facts)


def _happened(verdict: Verdict, runs: Sequence[RunState]) -> str:
    said = verdict.message or "the job is done"
    tries = f" ({len(runs)} attempts)" if len(runs) > 1 else ""
    return f"{said}{tries}"


def _cost(sums: Sums, spent: float | None, on_demand: float | None) -> str:
    so_far = " so far" if sums.spent is None and spent is not None else ""
    return cost_text(spent, on_demand) + so_far


def _left(alive: int, name: str) -> str:
    if not alive:
        return "nothing"
    machines = f"{alive} machine{'s' if alive > 1 else ''}"
    return f"{machines}, until the leases end; now: spotctl down {name}"


def _advice(verdict: Verdict, sums: Sums, places: Places) -> str:
    if sums.alive:
        return f"spotctl nightly run {places.name} goes on with it, spotctl down {places.name} gives everything back"
    told = _ADVICE.get(verdict.outcome, "")
    return told.format(name=places.name, file=places.file, environment=places.environment)


def _total(runs: Sequence[RunState], fact: str) -> int | None:
    facts = [run.ended.facts.get(fact) if run.ended else None for run in runs]
    known = [int(value) for value in facts if value is not None]
    return sum(known) if len(known) == len(facts) else None


def _model(runs: Sequence[RunState]) -> str | None:
    found = runs[-1].ended.facts.get("model") if runs and runs[-1].ended else None
    return None if found is None else str(found)
