"""The messages about a run: it has ended, its budget will not last, or its login has expired."""

import os
from collections.abc import Callable, Mapping
from threading import Thread

from pricing_data.units import NANO_SECONDS_PER_DOLLAR, SECOND, counted, format_time, usd_text
from spotctl.files.job.spec import JobSpec
from spotctl.log.events import Alarm, BudgetExceeded, LoginAwaited, RunEnded
from spotctl.log.ledger.uses import final_figures
from spotctl.log.outcomes import DONE
from spotctl.log.state import RunState
from spotctl.run.notify.delivery import Delivery, Message, deliver

_FACTS = ("outcome", "message", "cost_usd", "on_demand_usd", "replayed", "hours", "evictions", "model")


def notify_of_end(spec: JobSpec, state: RunState, ended: RunEnded) -> list[Delivery]:
    """Sends the end of a run to all addresses of its job."""
    if not spec.notify.has_receivers:
        return []
    message = message_of_end(spec.name, state, ended).without(secret_values(spec, os.environ))
    return deliver(message, spec.notify)


def message_of_end(job: str, state: RunState, ended: RunEnded) -> Message:
    """The message about the end of a run."""
    answer, alive = final_figures(state, ended), len(state.alive)
    lines = {
        "What happened": ended.message,
        "Cost": cost_text(answer["cost_usd"], answer["on_demand_usd"], replayed=state.is_replayed),
        "Evictions": str(state.evictions),
        "Still running": counted(alive, "machine") if alive else "nothing",
        "Model": str(answer.get("model", "")),
    }
    facts = {"event": "run ended", "job": job, "run": state.run, "left_running": alive}
    return Message(
        state.run,
        f"{job}: {ended.outcome} (run {state.run})",
        ended.outcome == DONE,
        {name: text for name, text in lines.items() if text},
        {**facts, **{name: answer[name] for name in _FACTS if name in answer}},
    )


def notify_of_alarm(spec: JobSpec, state: RunState, alarm: Alarm, done: Callable[[Delivery], object]) -> None:
    """Sends an alarm from another thread to all addresses of the job; `done` gets the result of each."""
    if not spec.notify.has_receivers:
        return
    if isinstance(alarm, LoginAwaited):
        message = message_of_login(spec.name, state, alarm)
    else:
        message = message_of_short_budget(spec.name, state, alarm)
    message = message.without(secret_values(spec, os.environ))

    def send() -> None:
        for delivery in deliver(message, spec.notify):
            done(delivery)

    # The run goes on while a receiver is slow: leases have to be renewed.
    Thread(target=send, daemon=True).start()


def message_of_short_budget(job: str, state: RunState, exceeded: BudgetExceeded) -> Message:
    """The message that a run is expected to cost more than its budget."""
    expected, limit = (amount / NANO_SECONDS_PER_DOLLAR for amount in (exceeded.committed, exceeded.limit))
    lines = {
        "What happened": f"the whole job is expected to cost {usd_text(expected)},"
        f" more than its budget of {usd_text(limit)}",
        "What follows": "the run continues until the budget is used up",
        "What to do": "to let it finish, stop the run, raise `budget:` in the job file, and launch it again",
    }
    facts = {"event": "budget too low", "job": job, "run": state.run, "expected_usd": expected, "budget_usd": limit}
    return Message(f"{state.run}-budget", f"{job}: the budget will not last (run {state.run})", False, lines, facts)


def message_of_login(job: str, state: RunState, awaited: LoginAwaited) -> Message:
    """The message that a cloud refuses a run's login."""
    until = format_time(awaited.until // SECOND * SECOND)
    lines = {
        "What happened": awaited.message,
        "What follows": f"machines keep working until {until}; then they end with their leases, and the run ends",
        "What to do": "sign in again; after that moment, launch the job again: it continues from its checkpoint",
    }
    facts = {"event": "login expired", "job": job, "run": state.run, "until": until}
    return Message(f"{state.run}-login-{awaited.until}", f"{job}: sign in again (run {state.run})", False, lines, facts)


def cost_text(spent: float | None, on_demand: float | None, *, replayed: bool) -> str:
    """`$3.10 (on demand $8.20)`, and for replayed money that nothing was billed."""
    if spent is None:
        return "unknown"
    compared = f" (on demand {usd_text(on_demand)})" if on_demand else ""
    return f"{usd_text(spent)}{compared}{', replayed: nothing was billed' if replayed and spent else ''}"


def secret_values(spec: JobSpec, environ: Mapping[str, str]) -> list[str]:
    """The values of the job's secrets, which no message may contain."""
    return [environ[name] for name in spec.secrets if name in environ]
