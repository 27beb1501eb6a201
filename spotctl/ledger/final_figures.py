"""The figures of a run that has ended, as `--json` and messages have them."""

from __future__ import annotations

from typing import Any

from bidbrain.billing import usd
from pricing_data.units import HOUR
from spotctl.ledger.rows import Use
from spotctl.ledger.uses import parts
from spotctl.runlog.events import RunEnded
from spotctl.runlog.state import RunState


def final_figures(state: RunState, ended: RunEnded) -> dict[str, Any]:
    """What `spotctl launch --json` prints, and what a message about the run says."""
    facts = dict(ended.facts)
    spent, on_demand = facts.pop("spent", None), facts.pop("on_demand", None)
    return {
        "run": state.run,
        "outcome": ended.outcome,
        "message": ended.message,
        "cost_usd": None if spent is None else usd(spent),
        "on_demand_usd": None if on_demand is None else usd(on_demand),
        "hours": (state.at - state.started) / HOUR,
        **facts,
        "evictions": state.evictions,
        "busy": busy(state),
    }


def busy(state: RunState) -> float | None:
    """The share of the machines' time that was useful work; work that was redone counts once."""
    whole = working = 0
    for held in state.machines.values():
        for begin, end, use in parts(state, held, state.at if held.ended is None else held.ended):
            whole += end - begin
            working += (end - begin) * (use is Use.WORKING)
    return working / whole if whole else None
