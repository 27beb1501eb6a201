"""`RunView`: a run at one moment, as everything shows it.

`status`, `status --watch`, the window of `launch`, the pages of `ui`, metrics and trackers print
from it. As `run_view` alone makes it from the log's state, all of them mean the same. Pure;
`reading` finds state, moment and money.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from pricing_data.market import Market
from pricing_data.units import HOUR
from spotctl.log.boots import Boot, boot_of
from spotctl.log.ledger.rows import CostSoFar

if TYPE_CHECKING:
    from spotctl.log.state import Allocation, RunState


@dataclass(frozen=True, slots=True)
class Money:
    """The cost so far; and in nano-dollar-seconds, the on-demand cost of the same work, the budget,
    and the committed amount, which is spent or reserved until the leases end. None where it is
    unknown, or was not asked; `on_demand_unknown` says why the cost of the same work on demand is
    unknown."""

    spending: CostSoFar | None = None
    on_demand: int | None = None
    budget: int | None = None
    committed: int | None = None
    on_demand_unknown: str = ""

    @property
    def spent(self) -> int | None:
        """The amount spent so far."""
        if self.spending is None:
            return None
        return self.spending.amount

    @property
    def saved(self) -> float | None:
        """The share of the on-demand cost that was saved; None if costs are missing."""
        if self.spending is not None and self.spending.is_least:
            return None
        if self.spent is None or not self.on_demand:
            return None
        return 1 - self.spent / self.on_demand

    @property
    def used(self) -> float | None:
        """The share of the budget that has been spent."""
        if self.spent is None or not self.budget:
            return None
        return self.spent / self.budget


@dataclass(frozen=True, slots=True)
class HeldMachine:
    """A machine that the run holds. `pricing` is `spot`, `on-demand` or `reserved`; `boot` is None
    once its agent has answered."""

    id: str
    market: Market
    reliable: bool
    pricing: str
    since: int
    warned_until: int | None
    lease_until: int
    boot: Boot | None = None


@dataclass(frozen=True, slots=True)
class MarketView:
    """A market from which machines were rented. Prices in nano-dollars per hour; `bid` is the
    highest now held.

    `reserved_price` is known for reservations. `gpus` is how busy the GPUs of its machines are, and
    how full their memory is, as shares of 1: means over the machines for which it is known.
    """

    market: Market
    machines: int
    warned: int
    reliable: bool
    bid: int | None
    on_demand: int
    reserved_price: int | None
    gpus: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class CommandProgress:
    """The newest attempt of a command, and its newest checkpoint, None before the first: seconds to
    save it, bytes, and the seconds between two of them, None if only an eviction warning causes
    one."""

    attempt: int
    nodes: int
    is_running: bool
    checkpoint: int | None = None
    seconds: float = 0.0
    bytes: int = 0
    every_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RunView:
    """A run at `now`, a moment of its market's clock.

    `status` is as `status_word` has it; `began` and `ended` are by this computer's clock. A
    training has a stage, a clock, done at `clock_at`, and the loss there; `model_loss` is that of
    the finished model, once there is one. `goal` is the clock at which it ends, if one is set. A
    command has `command` instead. `kinds` are those of all machines that it ever held: market,
    whether reliable, pricing.
    """

    job: str
    run: str
    status: str
    attended: bool
    began: int
    ended: int | None
    started: int
    now: int
    is_replayed: bool
    is_stopping: bool
    has_open_order: bool
    stage: int | None
    clock: int | None
    clock_at: int | None
    goal: int | None
    loss: float | None
    model_loss: float | None
    command: CommandProgress | None
    expected_end: int | None
    deadline: int | None
    updates_lost: int | None
    evictions: int
    rows_lost: int
    reason: str
    money: Money
    machines: tuple[HeldMachine, ...]
    kinds: tuple[tuple[Market, bool, str], ...]
    markets: tuple[MarketView, ...]
    unreadable: str = ""
    """Why the job of a run that goes on cannot be read from the log; empty if it can, or was not
    asked."""

    @property
    def reliable(self) -> int:
        """The number of reliable machines."""
        return sum(machine.reliable for machine in self.machines)

    @property
    def transient(self) -> int:
        """The number of the other machines."""
        return len(self.machines) - self.reliable

    @property
    def warned(self) -> int:
        """The number of machines with an eviction warning."""
        return sum(machine.warned_until is not None for machine in self.machines)


def run_view(
    state: RunState,
    now: int,
    *,
    attended: bool,
    money: Money | None = None,
    goal: int | None = None,
    unreadable: str = "",
) -> RunView:
    """The run as it is at `now`. `attended`: a process renews its leases."""
    began, ended = state.began, state.ended
    assert began is not None
    # Commands report no clocks.
    reports_clocks = state.work.attempt is None
    stage = clock = clock_at = loss = model_loss = None
    if reports_clocks and state.progress is not None:
        stage, clock, loss = state.progress.stage, state.progress.clock, state.progress.loss
        model_loss = loss
    if reports_clocks and state.paces:
        clock_at, _ = state.paces[-1]

    wall_ended = updates_lost = None
    if ended is not None:
        wall_ended, updates_lost = ended.wall_us, ended.facts.get("updates_lost")
        if reports_clocks and state.progress is not None:
            model_loss = ended.facts.get("loss", loss)

    machines = list[HeldMachine]()
    for held in state.alive:
        kind = _kind(state.allocations[held.allocation])
        boot = boot_of(state, held)
        times = (held.started, held.warned_until, held.lease_until)
        machines.append(HeldMachine(held.id, *kind, *times, boot))

    kinds = dict.fromkeys(_kind(allocation) for allocation in state.allocations.values())
    return RunView(
        job=began.job,
        run=state.run,
        status=status_word(state, attended=attended),
        attended=attended,
        began=began.wall_us,
        ended=wall_ended,
        started=state.started,
        now=now,
        is_replayed=state.is_replayed,
        is_stopping=state.stopping is not None,
        has_open_order=ended is None and bool(state.open_orders),
        stage=stage,
        clock=clock,
        clock_at=clock_at,
        goal=goal,
        loss=loss,
        model_loss=model_loss,
        command=_command(state),
        expected_end=_expected_end(state, goal),
        deadline=began.deadline,
        updates_lost=updates_lost,
        evictions=state.evictions,
        rows_lost=sum(loss.rows for loss in state.lost),
        reason=state.reason,
        money=money or Money(),
        machines=tuple(machines),
        kinds=tuple(kinds),
        markets=_markets(state),
        unreadable=unreadable,
    )


def status_word(state: RunState, *, attended: bool) -> str:
    """The outcome of a run that has ended; else interrupted, stopping, waiting for its turn or
    running.
    """
    if state.ended is not None:
        return state.ended.outcome
    if not attended:
        return "interrupted"
    if state.stopping is not None:
        return "stopping"
    return "waiting" if state.waits else "running"


def _command(state: RunState) -> CommandProgress | None:
    work, newest = state.work, state.work.checkpoint
    if work.attempt is None:
        return None
    if newest is None:
        return CommandProgress(work.number, len(work.attempt.machines), work.runs)

    every = newest.every_seconds if isfinite(newest.every_seconds) else None
    return CommandProgress(
        work.number,
        len(work.attempt.machines),
        work.runs,
        newest.number,
        newest.seconds,
        newest.bytes,
        every,
    )


def _expected_end(state: RunState, goal: int | None) -> int | None:
    """When the run will end: at its pace so far, with all interruptions, else as planned; None if
    unknown.
    """
    if goal is not None and len(state.paces) > 1 and state.progress is not None:
        (began, first), (latest, last) = state.paces[0], state.paces[-1]
        took, left = latest - began, goal - state.progress.clock
        return latest + took * left // (last - first)
    if state.planned is None or state.planned.assumed:
        return None
    hours = state.planned.hours
    return state.started + round(hours * HOUR)


def _kind(allocation: Allocation) -> tuple[Market, bool, str]:
    return (
        allocation.market,
        allocation.reliable,
        allocation.market.pricing(spot=allocation.bid is not None),
    )


def _markets(state: RunState) -> tuple[MarketView, ...]:
    """Markets with machines first, then the others, those that were used last before those used
    earlier.
    """
    allocations = state.allocations
    newest = {allocation.market: allocation for allocation in allocations.values()}
    views = list[MarketView]()
    for market in reversed(newest):
        machines = [held for held in state.alive if allocations[held.allocation].market == market]
        bids, warned, reliable = list[int](), 0, False
        busy, memory = list[int](), list[int]()
        for held in machines:
            if held.bid is not None:
                bids.append(held.bid)
            warned += held.warned_until is not None
            reliable |= allocations[held.allocation].reliable
            gpus = held.gpus
            if gpus is not None and gpus.busy is not None and gpus.memory is not None:
                busy.append(gpus.busy)
                memory.append(gpus.memory)

        uses: tuple[float, float] | None = None
        if busy:
            measured = len(busy)
            uses = sum(busy) / measured / 100, sum(memory) / measured / 100
        view = MarketView(
            market=market,
            machines=len(machines),
            warned=warned,
            reliable=reliable,
            bid=max(bids, default=None),
            on_demand=newest[market].listed,
            reserved_price=newest[market].on_demand if market.reservation else None,
            gpus=uses,
        )
        views.append(view)

    empty = [view for view in views if not view.machines]
    return (*(view for view in views if view.machines), *empty)
