"""The cost of an eviction to a command that saves nothing."""

from math import isfinite

from pricing_data.units import HOUR, NANOS_PER_DOLLAR, usd_text
from spotctl.files.job.programs import Command
from spotctl.planning.values import JobPlan
from spotctl.show.phrases import hours_text


def restart_words(plan: JobPlan) -> str | None:
    """How often an eviction starts a command from scratch, and what it loses; None if none does."""
    has_spot = any(choice.rent.bid is not None for choice in plan.choice)
    if plan.first.checkpoints is not None or not isinstance(plan.job.spec.program, Command) or not has_spot:
        return None
    interval, hours = plan.first.interval, plan.work.hours
    often = f", about every {hours_text(interval.life / HOUR)}," if interval and isfinite(interval.life) else ""
    lost = "all work so far"
    if hours is not None and not plan.work.assumed:
        per_hour = sum(choice.price * choice.rent.machines for choice in plan.choice)
        lost = f"up to {usd_text(per_hour / NANOS_PER_DOLLAR * hours)} of work"
    return f"each eviction{often} starts it from scratch and loses {lost}"
