"""Runs as JSON and on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from bidbrain.billing import usd
from pricing_data.units import HOUR, format_time, format_usd
from spotctl.orchestrator.events import RunEnded
from spotctl.orchestrator.state import EVICTED, RunState


@dataclass(frozen=True, slots=True)
class Standing:
    """A run as it stands: whether a process works on it, and what it has cost (nano-dollar-seconds), if known."""

    state: RunState
    attended: bool
    spent: int | None

    @property
    def word(self) -> str:
        """In a word."""
        if self.state.ended is not None:
            return self.state.ended.outcome
        if not self.attended:
            return "interrupted"
        return "running" if self.state.stopping is None else "stopping"


def status_answer(standings: Sequence[Standing]) -> dict[str, Any]:
    """What `status --json` says."""
    return {"jobs": [_job(standing) for standing in standings]}


def _job(standing: Standing) -> dict[str, Any]:
    state, progress = standing.state, standing.state.progress
    assert state.began is not None
    return {
        "name": state.began.job,
        "run": state.run,
        "state": standing.word,
        "stage": None if progress is None else progress.stage,
        "machines": [_machine(state, name) for name in (held.id for held in state.alive)],
        "clock": None if progress is None else progress.clock,
        "loss": None if progress is None else progress.loss,
        "spent_usd": None if standing.spent is None else usd(standing.spent),
        "evictions": state.evictions,
    }


def _machine(state: RunState, name: str) -> dict[str, Any]:
    held = state.machines[name]
    allocation = state.allocations[held.allocation]
    return {
        "id": held.id,
        "market": str(allocation.market),
        "kind": "reliable" if allocation.reliable else "on-demand" if allocation.bid is None else "spot",
        "since": format_time(held.started),
        "warned_until": None if held.warned_until is None else format_time(held.warned_until),
        "lease_until": format_time(held.lease_until),
    }


def status_table(standings: Sequence[Standing]) -> Table:
    """One line a job."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, right in (("job", 0), ("run", 0), ("state", 0), ("stage", 1), ("machines", 1), ("clock", 1), ("loss", 1)):
        table.add_column(name, justify="right" if right else "left", no_wrap=bool(right), overflow="fold")
    table.add_column("spent", justify="right", no_wrap=True)
    table.add_column("evictions", justify="right", no_wrap=True)
    for job in status_answer(standings)["jobs"]:
        numbers = (job["stage"], len(job["machines"]), job["clock"], _loss(job["loss"]), _money(job["spent_usd"]))
        table.add_row(job["name"], job["run"], job["state"], *map(_shown, numbers), str(job["evictions"]))
    return table


def live(state: RunState, seconds: float) -> Group:
    """The run now, in a few lines."""
    progress = state.progress
    reliable = sum(state.allocations[held.allocation].reliable for held in state.alive)
    warned = sum(held.warned_until is not None for held in state.alive)
    first = f"{seconds:5.0f} s   machines {reliable} reliable + {len(state.alive) - reliable} transient"
    if warned:
        first += f" ({warned} warned)"
    lines = [Text(first + f"   evictions {state.evictions}")]
    if progress is not None:
        lines.append(Text(f"  stage {progress.stage}   clock {progress.clock}   loss {_loss(progress.loss)}"))
    if state.reason:
        lines.append(Text(f"  {state.reason}", style="dim"))
    return Group(*lines)


def happened(before: RunState, after: RunState) -> list[str]:
    """What became of machines between two looks, in lines."""
    lines = []
    for number, allocation in after.allocations.items():
        now = {held.id: held for held in after.machines.values() if held.allocation == number}
        then = {
            name: before.machines.get(name, replace(held, warned_until=None, ended=None)) for name, held in now.items()
        }
        where = f"of {allocation.market}"
        if number not in before.allocations:
            how = "on demand" if allocation.bid is None else f"for at most ${format_usd(allocation.bid)}"
            lines.append(f"rented {len(now)} {where} {how}")
        warned = [name for name, held in now.items() if held.warned_until and not then[name].warned_until]
        if warned:
            lines.append(f"{len(warned)} {where} will be taken away")
        ended = [held for name, held in now.items() if held.ended is not None and then[name].ended is None]
        for reason in dict.fromkeys(held.end_reason for held in ended):
            these = [held for held in ended if held.end_reason == reason]
            unwarned = reason == EVICTED and not any(held.warned_until for held in these)
            lines.append(f"{len(these)} {where} {reason}{' without a warning' if unwarned else ''}")
    return lines


def ending(state: RunState, ended: RunEnded) -> dict[str, Any]:
    """What `launch --json` says at the end."""
    facts = dict(ended.facts)
    spent, on_demand = facts.pop("spent", None), facts.pop("on_demand", None)
    return {
        "run": state.run,
        "outcome": ended.outcome,
        "message": ended.message,
        "cost_usd": None if spent is None else usd(spent),
        "on_demand_usd": None if on_demand is None else usd(on_demand),
        "hours": (state.at - state.started) / HOUR,
        "evictions": state.evictions,
        **facts,
    }


def summary(state: RunState, ended: RunEnded) -> Group:
    """The end of a run for a person: what it cost, what on-demand would have, and where the model lies."""
    answer = ending(state, ended)
    lines = [f"{state.run}: {answer['outcome']}{f' ({ended.message})' if ended.message else ''}"]
    if answer["cost_usd"] is not None:
        lines.append(f"  cost       {_money(answer['cost_usd'])} for {answer['hours']:.1f} hours of market time")
        lines.append(f"  on demand  {_money(answer['on_demand_usd'])} for the same machines{_saved(answer)}")
    bought = len(state.machines)
    lines.append(f"  machines   {bought} rented, {answer['evictions']} taken away, {len(state.alive)} left running")
    if "updates_lost" in answer:
        lines.append(f"  updates    {answer['updates_applied']:,} applied, lost: {answer['updates_lost']}")
    if "model" in answer:
        lines.append(f"  model      {answer['model']}")
    return Group(*map(Text, lines))


def _saved(answer: Mapping[str, Any]) -> str:
    cost, on_demand = answer["cost_usd"], answer["on_demand_usd"]
    return f": {1 - cost / on_demand:.0%} saved" if cost < on_demand else ""


def _loss(loss: float | None) -> str | None:
    return None if loss is None else f"{loss:.4g}"


def _money(dollars: float | None) -> str | None:
    return None if dollars is None else f"${dollars:,.2f}"


def _shown(value: object) -> str:
    return "" if value is None else str(value)
