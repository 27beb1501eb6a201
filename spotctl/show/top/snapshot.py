"""`RunSnapshot`: what `spotctl top` shows, made from a run's timeline, its cost and market prices. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bidbrain.billing import usd
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import format_time, to_usd
from spotctl.log.events import Planned
from spotctl.log.state import Allocation, RunState
from spotctl.show.runs.figures import Money, cards_by_market
from spotctl.show.runs.standing import last_loss, spending_json
from spotctl.show.runs.tables import command_progress
from spotctl.show.top.timeline import MachineCount, Timeline, TimelineEvent

FindPrices = Callable[[Market], PriceSeries | None]
"""The price history of a market during the run; None where it is unknown."""


@dataclass(frozen=True, slots=True)
class MarketLine:
    """A market from which machines were rented. Prices in nano-dollars per hour; `bid` is the highest now held.

    `gpus` is how busy the graphics cards of its machines are, and how full their memory is, as shares of 1.
    """

    market: Market
    machines: int
    warned: int
    reliable: bool
    bid: int | None
    on_demand: int
    price: int | None
    series: PriceSeries | None
    gpus: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A run at one moment. `goal` is the clock at which the training ends, None if its end is another condition.

    `command` describes the progress of a command job in words; empty for a training. `is_replayed`: nothing is billed.
    """

    job: str
    run: str
    status: str
    started: int
    now: int
    stage: int | None
    clock: int | None
    goal: int | None
    loss: float | None
    command: str
    reliable: int
    transient: int
    warned: int
    evictions: int
    money: Money
    is_replayed: bool
    footprint: tuple[MachineCount, ...]
    losses: tuple[tuple[int, float], ...]
    markets: tuple[MarketLine, ...]
    events: tuple[TimelineEvent, ...]
    reason: str
    planned: Planned | None = None
    rows_lost: int = 0


def take_snapshot(
    timeline: Timeline, status: str, now: int, money: Money, goal: int | None, prices: FindPrices
) -> RunSnapshot:
    """The run as it is at `now`, a moment of the market's clock."""
    state = timeline.state
    # Commands report no clocks.
    command = "" if state.work.attempt is None else command_progress(state)
    progress = None if command else state.progress
    assert state.began is not None
    reliable = sum(state.allocations[held.allocation].reliable for held in state.alive)
    return RunSnapshot(
        job=state.began.job,
        run=state.run,
        status=status,
        started=state.started,
        now=now,
        stage=None if progress is None else progress.stage,
        clock=None if progress is None else progress.clock,
        goal=goal,
        loss=None if progress is None else last_loss(state, progress),
        command=command,
        reliable=reliable,
        transient=len(state.alive) - reliable,
        warned=sum(held.warned_until is not None for held in state.alive),
        evictions=state.evictions,
        money=money,
        is_replayed=state.is_replayed,
        footprint=timeline.footprint,
        losses=timeline.losses,
        markets=_markets(state, prices),
        events=timeline.events,
        reason=state.reason,
        planned=state.planned,
        rows_lost=state.rows_lost,
    )


def _markets(state: RunState, prices: FindPrices) -> tuple[MarketLine, ...]:
    """Markets with machines first, then the others, those that were used last before those used earlier."""
    newest = {allocation.market: allocation for allocation in state.allocations.values()}
    gpus = {market: (busy, memory) for market, busy, memory in cards_by_market(state)}
    lines = [_market(state, newest[market], prices(market), gpus.get(market)) for market in reversed(newest)]
    return tuple(sorted(lines, key=lambda line: line.machines == 0))


def _market(
    state: RunState, newest: Allocation, series: PriceSeries | None, gpus: tuple[float, float] | None
) -> MarketLine:
    market = newest.market
    machines = [machine for machine in state.alive if state.allocations[machine.allocation].market == market]
    bids = [bid for machine in machines if (bid := state.allocations[machine.allocation].bid) is not None]
    return MarketLine(
        market=market,
        machines=len(machines),
        warned=sum(machine.warned_until is not None for machine in machines),
        reliable=any(state.allocations[machine.allocation].reliable for machine in machines),
        bid=max(bids, default=None),
        on_demand=newest.listed,
        price=newest.on_demand if market.reservation else None if series is None else int(series.prices[-1]),
        series=series,
        gpus=gpus,
    )


def answer(snapshot: RunSnapshot) -> dict[str, Any]:
    """The JSON of `spotctl top --json`.

    Fields:
        machines: machines that are held
        machines.reliable: number of reliable machines
        machines.transient: number of other machines
        machines.warned: number of machines with an eviction warning
        spent_usd: cost so far
        spent_low_usd: the least that this can be
        spent_high_usd: the most that this can be; null if that is unknown, because rows of the log or prices are lost
        events: what happened, the newest last
        events[].at: its moment
        events[].what: what happened
    """
    money = snapshot.money
    return {
        "name": snapshot.job,  #: name of the job
        "run": snapshot.run,  #: id of the run
        "state": snapshot.status,  #: `running`, `stopping` or `interrupted`; after the end its outcome
        "now": format_time(snapshot.now),  #: present moment of the market's clock
        "stage": snapshot.stage,  #: stage of a training, 1 to 3
        "clock": snapshot.clock,  #: clocks that a training has done
        "clocks": snapshot.goal,  #: clock at which the training ends; null if it ends in another way
        "loss": snapshot.loss,  #: loss after the last clock
        "doing": snapshot.command or None,  #: progress of a command in words; null for trainings
        "machines": {"reliable": snapshot.reliable, "transient": snapshot.transient, "warned": snapshot.warned},
        "evictions": snapshot.evictions,  #: number of evictions so far
        **spending_json(money.spending),
        "rows_lost": snapshot.rows_lost,  #: rows of the run that a repair of the log has dropped
        "on_demand_usd": _usd(money.on_demand),  #: cost so far of the same work on on-demand machines
        "budget_usd": _usd(money.budget),  #: the job's budget; null if it has none
        "replayed": snapshot.is_replayed,  #: whether the run is on the local market: then nothing is billed
        #: markets in which the run has or had machines, each -> _market_json
        "markets": [_market_json(line) for line in snapshot.markets],
        #: number of machines over time: lists of moment, reliable machines, other machines
        "footprint": [[format_time(count.at), count.reliable, count.transient] for count in snapshot.footprint],
        "events": [{"at": format_time(event.at), "what": str(event)} for event in snapshot.events],
    }


def _market_json(line: MarketLine) -> dict[str, Any]:
    """A market of a run.

    Fields:
        gpus: use of their graphics cards; null if none has reported it
        gpus.busy: share of time in which they compute
        gpus.memory: share of their memory in use
    """
    return {
        "market": str(line.market),  #: the market
        "machines": line.machines,  #: number of machines held there
        "warned": line.warned,  #: number of these with an eviction warning
        #: current spot price in dollars per hour, or the price of reserved machines; null if unknown
        "price": None if line.price is None else to_usd(line.price),
        #: highest bid of these machines in dollars per hour; null without bids
        "bid": None if line.bid is None else to_usd(line.bid),
        "on_demand": to_usd(line.on_demand),  #: on-demand price in dollars per hour
        "gpus": None if line.gpus is None else {"busy": line.gpus[0], "memory": line.gpus[1]},
    }


def _usd(amount: int | None) -> float | None:
    return None if amount is None else usd(amount)
