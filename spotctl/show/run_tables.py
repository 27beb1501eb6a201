"""Runs as JSON and on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, log2
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from bidbrain.billing import usd
from pricing_data.units import HOUR, format_time
from spotctl.ledger.rows import Use
from spotctl.ledger.uses import parts
from spotctl.run.workload import DONE
from spotctl.runlog.events import FINISH, Refrained, RunEnded
from spotctl.runlog.state import EVICTED, RunState

_WIDE = 100


@dataclass(frozen=True, slots=True)
class RunStatus:
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


def status_answer(standings: Sequence[RunStatus]) -> dict[str, Any]:
    """What `status --json` says."""
    return {"jobs": [_job(standing) for standing in standings]}


def _job(standing: RunStatus) -> dict[str, Any]:
    state = standing.state
    # A command's program tells nothing of its clocks.
    progress = None if state.work.attempt is not None else state.progress
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
        **({} if state.work.attempt is None else {"attempt": state.work.number, "checkpoint": _checkpoint(state)}),
    }


def _checkpoint(state: RunState) -> dict[str, Any] | None:
    """The newest checkpoint of a command."""
    kept = state.work.checkpoint
    if kept is None:
        return None
    return {"number": kept.number, "seconds": kept.seconds, "bytes": kept.bytes, "every_seconds": kept.every_seconds}


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


def status_table(standings: Sequence[RunStatus], width: int) -> Table:
    """One line a job; a narrow terminal goes without the runs' names."""
    words = ("job", "run", "state") if width >= _WIDE else ("job", "state")
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in words:
        table.add_column(name, overflow="fold")
    for name in ("stage", "machines", "clock", "loss", "spent", "evictions"):
        table.add_column(name, justify="right", no_wrap=True)
    for job in status_answer(standings)["jobs"]:
        told = {"job": job["name"], "run": job["run"], "state": job["state"]}
        numbers = (job["stage"], len(job["machines"]), job["clock"], _loss(job["loss"]), _money(job["spent_usd"]))
        table.add_row(*(told[name] for name in words), *map(_shown, numbers), str(job["evictions"]))
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
    if state.work.attempt is not None:
        lines.append(Text(f"  {command(state)}"))
    elif progress is not None:
        lines.append(Text(f"  stage {progress.stage}   clock {progress.clock}   loss {_loss(progress.loss)}"))
    if state.reason:
        lines.append(Text(f"  {state.reason}", style="dim"))
    return Group(*lines)


def command(state: RunState) -> str:
    """How a command is doing: its attempt, and its newest checkpoint."""
    work = state.work
    nodes = "" if work.attempt is None else f" on {len(work.attempt.machines)} nodes"
    first = f"attempt {work.number}{nodes}" if work.runs else f"stopped after attempt {work.number}"
    kept = work.checkpoint
    if kept is None:
        return first
    return f"{first}   checkpoint {kept.number}, one every {kept.every_seconds:.0f} s (it takes {kept.seconds:.2g} s)"


def happened(before: RunState, after: RunState) -> list[str]:
    """What became of the job and of machines between two looks, in lines."""
    lines = _milestone(before, after)
    if after.stopping is not None and before.stopping is None:
        lines.append(f"{after.stopping.outcome}; everything is given back")
    for number, allocation in after.allocations.items():
        now = {held.id: held for held in after.machines.values() if held.allocation == number}
        then = {
            name: before.machines.get(name, replace(held, warned_until=None, ended=None)) for name, held in now.items()
        }
        where = f"of {allocation.market}"
        if number not in before.allocations:
            how = "on demand" if allocation.bid is None else f"for at most {at_most(allocation.bid)}"
            lines.append(f"rented {len(now)} {where} {how}")
        warned = [name for name, held in now.items() if held.warned_until and not then[name].warned_until]
        if warned:
            lines.append(f"{len(warned)} {where} will be taken away")
        ended = [held for name, held in now.items() if held.ended is not None and then[name].ended is None]
        if after.stopping is not None:
            # That they are given back was said once.
            ended = [held for held in ended if not held.returning]
        for reason in dict.fromkeys(held.end_reason for held in ended):
            these = [held for held in ended if held.end_reason == reason]
            unwarned = reason == EVICTED and not any(held.warned_until for held in these)
            lines.append(f"{len(these)} {where} {reason}{' without a warning' if unwarned else ''}")
    return lines


def at_most(bid: int) -> str:
    """A bid as a price that it does not exceed, to a hundredth of a cent."""
    return f"${-(-bid // 100_000) / 10_000:.4f}"


def _milestone(before: RunState, after: RunState) -> list[str]:
    """The loss, each time it passes a power of two."""
    old, new = (None if state.progress is None else state.progress.loss for state in (before, after))
    if after.progress is None or new is None or new <= 0 or (old is not None and _halvings(old) == _halvings(new)):
        return []
    return [f"clock {after.progress.clock}   loss {_loss(new)}   stage {after.progress.stage}"]


def _halvings(loss: float) -> int | None:
    return floor(log2(loss)) if loss > 0 else None


def short_budget(refrained: Refrained) -> str:
    """That a budget does not allow something, as a line."""
    limit, committed = (f"{usd(amount):,.2f}" for amount in (refrained.limit, refrained.committed))
    if refrained.what == FINISH:
        return (
            f"the budget of ${limit} will not last: the whole job is expected to cost ${committed}; raise it (budget,"
            " --max-cost), or the job ends before it is done"
        )
    return f"the budget of ${limit} does not allow to {refrained.what}: ${committed} of it is committed"


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
        **facts,
        "evictions": state.evictions,
        "busy": busy(state),
    }


def busy(state: RunState) -> float | None:
    """The share of its machines' time in which they worked for the job, what was worked twice counted once."""
    whole = working = 0
    for held in state.machines.values():
        for begin, end, use in parts(state, held, state.at if held.ended is None else held.ended):
            whole += end - begin
            working += (end - begin) * (use is Use.WORKING)
    return working / whole if whole else None


def summary(state: RunState, ended: RunEnded) -> Group:
    """The end of a run for a person: what it cost, what on-demand would have, and where the model lies."""
    answer = ending(state, ended)
    lines = [f"{state.run}: {answer['outcome']}{f' ({ended.message})' if ended.message else ''}"]
    if answer["cost_usd"] is not None:
        lines.append(f"  cost       {_money(answer['cost_usd'])} for {_span(answer['hours'])} of market time")
        lines.append(f"  on demand  {_money(answer['on_demand_usd'])} for the same work{_saved(answer)}")
    worked = "" if answer["busy"] is None else f", at work {answer['busy']:.0%} of their time"
    lines.append(f"  machines   {len(state.machines)} rented{worked}, {len(state.alive)} left running")
    lines.append(f"  evictions  {answer['evictions']} machines taken away{_survived(answer)}")
    if "updates_lost" in answer:
        lines.append(f"  updates    {answer['updates_applied']:,} applied, lost: {answer['updates_lost']}")
    if "model" in answer:
        lines.append(f"  model      {answer['model']}")
    return Group(*map(Text, lines))


def _saved(answer: Mapping[str, Any]) -> str:
    cost, on_demand = answer["cost_usd"], answer["on_demand_usd"]
    return f": {1 - cost / on_demand:.0%} saved" if cost < on_demand else ""


def _survived(answer: Mapping[str, Any]) -> str:
    return ", and survived" if answer["evictions"] and answer["outcome"] == DONE else ""


def _span(hours: float) -> str:
    return f"{hours * 60:.0f} minutes" if hours < 1 else f"{hours:.1f} hours"


def _loss(loss: float | None) -> str | None:
    return None if loss is None else f"{loss:.4g}"


def _money(dollars: float | None) -> str | None:
    return None if dollars is None else f"${dollars:,.2f}"


def _shown(value: object) -> str:
    return "" if value is None else str(value)
