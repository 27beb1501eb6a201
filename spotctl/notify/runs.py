"""What is told of a run that has ended."""

from __future__ import annotations

import os
from collections.abc import Mapping

from spotctl.files.job.spec import JobSpec
from spotctl.notify.notice import Notice
from spotctl.notify.webhook import Delivery, Patience, post
from spotctl.runlog.events import RunEnded
from spotctl.runlog.state import RunState
from spotctl.show.run_tables import ending

_KEPT = ("outcome", "message", "cost_usd", "on_demand_usd", "hours", "evictions", "model")


def tell_of_end(spec: JobSpec, state: RunState, ended: RunEnded, patience: Patience | None = None) -> Delivery | None:
    """Tells the job's webhook of a run's end; None if it has none."""
    if spec.webhook is None:
        return None
    notice = notice_of_end(spec.name, state, ended).without(secret_values(spec, os.environ))
    return post(notice, spec.webhook, patience)


def notice_of_end(job: str, state: RunState, ended: RunEnded) -> Notice:
    """A run's end as a message."""
    answer = ending(state, ended)
    shown = {
        "What happened": ended.message,
        "Cost": cost_text(answer["cost_usd"], answer["on_demand_usd"]),
        "Evictions": str(state.evictions),
        "Left running": left_running(state),
        "Model": str(answer.get("model", "")),
    }
    facts = {"event": "run ended", "job": job, "run": state.run, "left_running": len(state.alive)}
    return Notice(
        state.run,
        f"{job}: {ended.outcome} (run {state.run})",
        ended.outcome == "done",
        {name: said for name, said in shown.items() if said},
        {**facts, **{name: answer[name] for name in _KEPT if name in answer}},
    )


def cost_text(spent: float | None, on_demand: float | None) -> str:
    """Dollars paid, beside what the same work would have cost on demand."""
    if spent is None:
        return "unknown"
    if not on_demand:
        return f"${spent:,.2f}"
    return f"${spent:,.2f} (on demand ${on_demand:,.2f})"


def left_running(state: RunState) -> str:
    """What of a run still costs money."""
    alive = len(state.alive)
    return "nothing" if not alive else f"{alive} machine{'s' if alive > 1 else ''}"


def secret_values(spec: JobSpec, environ: Mapping[str, str]) -> list[str]:
    """What must not be told to anybody."""
    return [environ[name] for name in spec.secrets if name in environ]
