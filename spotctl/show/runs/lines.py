"""Runs in lines of text: what happens, the live lines of a launch below it, and the summary at the
end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import floor, log2
from typing import Any

from rich.console import Console, ConsoleOptions, Group
from rich.filesize import decimal
from rich.text import Text

from pricing_data.units import HOUR, SECOND, bid_usd, counted, moment, usd, usd_text
from spotctl.home.printable import wrapped
from spotctl.log import boots
from spotctl.log.events import FINISH, BudgetExceeded, RunEnded
from spotctl.log.ledger.same_work import final_figures
from spotctl.log.outcomes import DONE, FAILED
from spotctl.log.state import EVICTED, Allocation, Held, RunState
from spotctl.show.phrases import hours_text, machines_text, spending_text, terms_text
from spotctl.show.plans.plan_answers import nodes_text
from spotctl.show.runs.run_view import CommandProgress, RunView
from spotctl.show.runs.status import shown_loss

_MAX_LEFT = 3
"""How many departures from the plan a summary names."""

_INDENT = 10
"""Columns in front of an event: those of its time."""


class LiveLines:
    """Runs on the terminal while they go on: the lines that are redrawn below the events, some for
    each run. With `several` runs, every line and every state names its run. The `hint` stands below
    them."""

    def __init__(self, *, several: bool = False, hint: str = "") -> None:
        self.several, self._hint, self._began = several, hint, time.monotonic()
        self._shown = dict[str, RunView]()

    def show(self, view: RunView) -> None:
        """Shows the state of a run from now on."""
        self._shown[view.run] = view

    def event(self, text: str, width: int, job: str = "") -> Text:
        """A line that stays, with the time since the first."""
        name = f"{job}: " if job and self.several else ""
        seconds = time.monotonic() - self._began
        return Text(wrapped(f"{seconds:5.0f} s   {name}{text}", width, _INDENT))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        height, width = options.height or options.max_height, options.max_width
        lines, parts = int(bool(self._hint)), list[list[Text]]()
        # Runs may be added by their threads at any time.
        for view in list(self._shown.values()):
            name = view.job if self.several else ""
            part = [
                Text(wrapped(line.plain, width, None if number else _INDENT), style=line.style)
                for number, line in enumerate(live(view, time.monotonic() - self._began, name))
            ]
            lines += sum(len(line.plain.split("\n")) for line in part)
            parts.append(part)

        if lines >= height:
            # Otherwise the terminal would show some of the runs, and nothing of the others.
            parts = [part[:1] for part in parts]

        for part in parts:
            yield from part
        if parts and self._hint:
            yield Text(self._hint, style="dim")


def live(view: RunView, seconds: float, name: str = "") -> list[Text]:
    """The current state of a run in a few lines; `seconds` is the time since the launch.

    With several runs, each has its `name` in the first line.
    """
    whose = f"{name}: " if name else ""
    first = f"{seconds:5.0f} s   {whose}machines {view.reliable} reliable + {view.transient} spot"
    if view.warned:
        first += f" ({view.warned} warned)"
    first += f"   evictions {view.evictions}"
    lines = [Text(first)]

    if view.command is not None:
        lines.append(Text(f"  {command_progress(view.command)}"))
    elif view.clock is not None:
        clock = f"{view.clock:,}"
        if view.goal is not None:
            clock += f" of {view.goal:,}"
        loss = shown_loss(view.loss)
        lines.append(Text(f"  stage {view.stage}   clock {clock}   loss {loss}"))

    # The cost of the run so far, and its expected end, as far as they are known.
    money, end, known = view.money, view.expected_end, list[str]()
    if money.spending is not None:
        spent = f"spent {spending_text(money.spending)}"
        if money.budget is not None:
            spent += f" of {_money(usd(money.budget))}"
        known.append(spent)

    if end is not None and end > view.now:
        clock = "of market time" if view.is_replayed else f"({moment(end)})"
        hours = hours_text((end - view.now) / HOUR)
        known.append(f"expected end in {hours} {clock}")

    if known:
        lines.append(Text(f"  {'   '.join(known)}"))
    if view.reason:
        lines.append(Text(f"  {view.reason}", style="dim"))
    return lines


def command_progress(command: CommandProgress) -> str:
    """The newest attempt of a command job, and its newest checkpoint."""
    first = f"stopped after attempt {command.attempt}"
    if command.is_running:
        first = f"attempt {command.attempt} on {counted(command.nodes, 'node')}"
    if command.checkpoint is None:
        return first

    every = ""
    if command.every_seconds is not None:
        every = f", every {command.every_seconds:.0f} s"
    saved = f"checkpoint {command.checkpoint}{every}"
    return f"{first}   {saved} ({command.seconds:.2g} s each)"


def happened(before: RunState, after: RunState) -> list[str]:
    """The lines that report what changed from one state of a run to a later one."""
    lines, newest = list[str](), after.work.checkpoint
    old = None if before.progress is None else before.progress.loss
    new = None if after.progress is None else after.progress.loss
    passes = new is not None and not new <= 0 and (old is None or _halvings(old) != _halvings(new))

    # A line each time the loss passes a power of two.
    if after.progress is not None and passes:
        clock, loss = after.progress.clock, shown_loss(new)
        lines.append(f"clock {clock}   loss {loss}   stage {after.progress.stage}")

    if newest is not None and newest != before.work.checkpoint:
        size = decimal(newest.bytes)
        lines.append(f"checkpoint {newest.number} stored: {size} in {newest.seconds:.2f} s")

    if after.budget_set is not None and after.budget_set != before.budget_set:
        budget = usd(after.budget_set)
        lines.append(f"budget set to {usd_text(budget)}")
    if after.login != before.login:
        login = "the login works again"
        if after.login is not None:
            until, message = moment(after.login.until), after.login.message
            login = f"waiting for a login until {until}: {message}"
        lines.append(login)

    lines += _ends_and_refusals(before, after)
    lines += [f"left the plan: {text}" for text in after.left_plan[len(before.left_plan) :]]
    for allocation in after.allocations.values():
        lines += _changes(before, after, allocation)

    if after.ended is not None and before.ended is None:
        outcome = "Finished" if after.ended.outcome == DONE else after.ended.outcome.capitalize()
        rest = "All machines returned" if after.machines else "No machines were rented"
        # That all were returned is said only once no machine of the run is left.
        if after.alive:
            rest = f"{counted(len(after.alive), 'machine')} still running"
        lines.append(f"{outcome}. {rest}.")

    return lines


def _ends_and_refusals(before: RunState, after: RunState) -> list[str]:
    """The line about the last refusal, if it is news, and the one that says why a run is to end."""
    lines = list[str]()
    # That a market has no machines now is no news, unless the user named its reservation.
    is_news = after.sold_out == before.sold_out
    for order in after.orders.values():
        is_news |= bool(order.market.reservation) and str(order.market) in after.refusal
    if after.refusal != before.refusal and is_news:
        lines.append(f"refused: {after.refusal}")

    stopping = after.stopping
    if stopping is not None and before.stopping is None:
        if after.alive:
            machines = counted(len(after.alive), "machine")
            lines.append(f"{stopping.outcome}: returning {machines}")
        elif after.ended is None and stopping.message != after.refusal:
            # The summary may have to wait for a cloud that does not answer.
            lines.append(f"{stopping.outcome}: {stopping.message}")

    return lines


def _changes(before: RunState, after: RunState, allocation: Allocation) -> list[str]:
    """The lines about the machines of one allocation: started, warned, ended."""
    lines, market = list[str](), allocation.market
    now = [held for held in after.machines.values() if held.allocation == allocation.number]
    of_all = machines_text(len(now), market)
    if allocation.number not in before.allocations:
        terms = terms_text(market, allocation.bid, allocation.on_demand)
        lines.append(f"rented {of_all}{terms}")

    phases = boots.phases_passed(before, after, allocation)
    if phases and after.stopping is None:
        seconds = (after.at - after.ordered[allocation.number]) / SECOND
        lines.append(f"{', '.join(phases)} after {seconds:.0f} s: {of_all}")

    bids, ended, warned = list[str](), list[Held](), 0
    for held in now:
        fresh = replace(held, warned_until=None, ended=None, silence="")
        then = before.machines.get(held.id, fresh)
        if held.silence != then.silence:
            lines.append(f"returning {held.id}: {held.silence}")
        if then.bid is not None and held.bid is not None and held.bid > then.bid:
            low, high = bid_usd(then.bid), bid_usd(held.bid)
            bids.append(f"bid raised from {low}/h to {high}/h: {held.id}")
        warned += held.warned_until is not None and then.warned_until is None
        # The line that announced the end of the run covers the machines that it returns.
        is_announced = after.stopping is not None and held.returning
        if held.ended is not None and then.ended is None and not is_announced:
            ended.append(held)

    lines += bids
    if warned:
        lines.append(f"eviction warning: {machines_text(warned, market)}")
    for reason in dict.fromkeys(held.end_reason for held in ended):
        alike = [held for held in ended if held.end_reason == reason]
        unwarned = reason == EVICTED and not any(held.warned_until for held in alike)
        how, machines = " without warning" if unwarned else "", machines_text(len(alike), market)
        lines.append(f"{reason}{how}: {machines}")

    return lines


def _halvings(loss: float) -> int | None:
    if loss > 0:
        return floor(log2(loss))
    return None


def short_budget(exceeded: BudgetExceeded) -> str:
    """A message that the budget is too low for a step of the run, and how to raise it."""
    limit, committed = (usd_text(usd(amount)) for amount in (exceeded.limit, exceeded.committed))
    if exceeded.action == FINISH:
        return (
            f"the budget of {limit} is too low: the whole job is expected to cost {committed}. "
            "Raise it (spotctl resume JOB --budget USD), or the run stops before the job is done."
        )
    return (
        f"the budget of {limit} does not allow this: {exceeded.action} ({committed} is committed "
        "already)"
    )


def summary(state: RunState, ended: RunEnded) -> Group:
    """The summary that `spotctl launch` prints: cost, on-demand cost, machines, evictions and the
    model's path.
    """
    answer = final_figures(state, ended)
    why = f" ({ended.message})" if ended.message else ""
    lines, cluster = [f"{state.run}: {answer['outcome']}{why}"], answer.get("cluster")
    if cluster is not None:
        hours = hours_text(answer["hours"])
        lines.append(f"  cost       $0.00: nothing was rented for these {hours}")
        lines.append(f"  nodes      {nodes_text(cluster)}")
    elif answer["cost_usd"] is not None:
        cost, hours = _money(answer["cost_usd"]), hours_text(answer["hours"])
        clock = " of market time, replayed: nothing was billed" if answer["replayed"] else ""
        lines.append(f"  cost       {cost} for {hours}{clock}")
        job = "" if state.began is None else state.began.job
        lines.append(_comparison(answer, job))

    if cluster is None:
        busy, running = answer["busy"], len(state.alive)
        utilized = "" if busy is None else f", {busy:.0%} utilized"
        lines.append(
            f"  machines   {len(state.machines)} rented{utilized}, {running} still running"
        )

    # The lines of the run had the figures.
    left = answer.get("left_plan", ())
    for text in left[:_MAX_LEFT]:
        reason, _, _ = text.partition(": ")
        lines.append(f"  left plan  {reason}")
    more = len(left) - _MAX_LEFT
    if more > 0:
        times = counted(more, "more time")
        lines.append(f"  left plan  {times} (launch --json lists all)")

    evictions = str(answer["evictions"] or "none")
    if answer["evictions"] and answer["outcome"] == DONE:
        evictions = f"survived {counted(answer['evictions'], 'eviction')}"
    lines.append(f"  evictions  {evictions}")
    if "updates_lost" in answer:
        applied, lost = answer["updates_applied"], answer["updates_lost"]
        lines.append(f"  updates    {applied:,} applied, {lost:,} lost")

    if "least_counted" in answer:
        least, most = answer["least_counted"], answer["most_counted"]
        shares = f"{least:.2f} to {most:.2f}"
        lines.append(f"  shards     each counted {shares} times as often as the mean")

    if "model" in answer:
        lines.append(f"  model      {answer['model']}")
    return Group(*map(Text, lines))


def _comparison(answer: Mapping[str, Any], job: str) -> str:
    """The cost of the same work on demand, and what was saved."""
    cost, on_demand = answer["cost_usd"], answer["on_demand_usd"]
    if answer["outcome"] == FAILED:
        return f"  loss       {_money(cost)}: the run failed, so nothing was saved"
    if why := answer.get("on_demand_unknown"):
        return f"  on demand  unknown: {why}"

    text = f"  on demand  {_money(on_demand)} for the same work"
    if not on_demand or cost == on_demand:
        return text
    if cost < on_demand:
        return f"{text}: {1 - cost / on_demand:.0%} saved"

    # The steps from one cost to the other say why.
    report = f"spotctl report cost{' --local' if answer['replayed'] else ''} --job {job}"
    return f"{text}: {cost / on_demand - 1:.0%} more expensive (why: {report})"


def _money(dollars: float | None) -> str | None:
    if dollars is None:
        return None
    return usd_text(dollars)
