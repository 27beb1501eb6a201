"""What `spotctl top` shows: a value made of a run's past, what it has cost, and prices. Pure; nothing of a terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bidbrain.billing import usd
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import format_time, to_usd
from spotctl.runlog.state import Allocation, RunState
from spotctl.show.run_tables import command
from spotctl.show.top.timeline import Step, Timeline, Told

Prices = Callable[[Market], PriceSeries | None]
"""The price history of a market during the run; None where nobody knows it."""


@dataclass(frozen=True, slots=True)
class Money:
    """In nano-dollar-seconds: spent, what the same work would have cost on demand, and what may be spent."""

    spent: int | None
    on_demand: int | None
    budget: int | None

    @property
    def saved(self) -> float | None:
        """The share of the on-demand price that was not paid."""
        return None if self.spent is None or not self.on_demand else 1 - self.spent / self.on_demand

    @property
    def used(self) -> float | None:
        """The share of the budget that is spent."""
        return None if self.spent is None or not self.budget else self.spent / self.budget


@dataclass(frozen=True, slots=True)
class MarketLine:
    """A market from which machines were rented. Prices in nano-dollars an hour; `bid` is the highest that is held."""

    market: Market
    machines: int
    warned: int
    reliable: bool
    bid: int | None
    on_demand: int
    price: int | None
    series: PriceSeries | None


@dataclass(frozen=True, slots=True)
class Shown:
    """A run at a moment. `word` says how it stands, `goal` is the clock at which it is done, where that is known.

    `doing` is how a command stands, in words.
    """

    job: str
    run: str
    word: str
    began: int
    now: int
    stage: int | None
    clock: int | None
    goal: int | None
    loss: float | None
    doing: str
    reliable: int
    transient: int
    warned: int
    evictions: int
    money: Money
    footprint: tuple[Step, ...]
    losses: tuple[tuple[int, float], ...]
    markets: tuple[MarketLine, ...]
    told: tuple[Told, ...]
    reason: str


def shown(past: Timeline, word: str, now: int, money: Money, goal: int | None, prices: Prices) -> Shown:
    """What is to be seen of a run."""
    state = past.state
    # A command's program tells nothing of its clocks.
    doing = "" if state.work.attempt is None else command(state)
    progress = None if doing else state.progress
    assert state.began is not None
    reliable = sum(state.allocations[held.allocation].reliable for held in state.alive)
    return Shown(
        job=state.began.job,
        run=state.run,
        word=word,
        began=state.started,
        now=now,
        stage=None if progress is None else progress.stage,
        clock=None if progress is None else progress.clock,
        goal=goal,
        loss=None if progress is None else progress.loss,
        doing=doing,
        reliable=reliable,
        transient=len(state.alive) - reliable,
        warned=sum(held.warned_until is not None for held in state.alive),
        evictions=state.evictions,
        money=money,
        footprint=past.footprint,
        losses=past.losses,
        markets=_markets(state, prices),
        told=past.told,
        reason=state.reason,
    )


def _markets(state: RunState, prices: Prices) -> tuple[MarketLine, ...]:
    """Those with machines first, then those that were left last."""
    newest = {one.market: one for one in state.allocations.values()}
    lines = [_market(state, newest[market], prices(market)) for market in reversed(newest)]
    return tuple(sorted(lines, key=lambda line: line.machines == 0))


def _market(state: RunState, newest: Allocation, series: PriceSeries | None) -> MarketLine:
    market = newest.market
    held = [one for one in state.alive if state.allocations[one.allocation].market == market]
    bids = [bid for one in held if (bid := state.allocations[one.allocation].bid) is not None]
    return MarketLine(
        market=market,
        machines=len(held),
        warned=sum(one.warned_until is not None for one in held),
        reliable=any(state.allocations[one.allocation].reliable for one in held),
        bid=max(bids, default=None),
        on_demand=newest.on_demand,
        price=None if series is None else int(series.prices[-1]),
        series=series,
    )


def answer(one: Shown) -> dict[str, Any]:
    """What `top --json` says."""
    money = one.money
    return {
        "name": one.job,
        "run": one.run,
        "state": one.word,
        "now": format_time(one.now),
        "stage": one.stage,
        "clock": one.clock,
        "clocks": one.goal,
        "loss": one.loss,
        "doing": one.doing or None,
        "machines": {"reliable": one.reliable, "transient": one.transient, "warned": one.warned},
        "evictions": one.evictions,
        "spent_usd": _usd(money.spent),
        "on_demand_usd": _usd(money.on_demand),
        "budget_usd": _usd(money.budget),
        "markets": [_market_json(line) for line in one.markets],
        "footprint": [[format_time(step.at), step.reliable, step.transient] for step in one.footprint],
        "events": [{"at": format_time(told.at), "what": str(told)} for told in one.told],
    }


def _market_json(line: MarketLine) -> dict[str, Any]:
    return {
        "market": str(line.market),
        "machines": line.machines,
        "warned": line.warned,
        "price": None if line.price is None else to_usd(line.price),
        "bid": None if line.bid is None else to_usd(line.bid),
        "on_demand": to_usd(line.on_demand),
    }


def _usd(amount: int | None) -> float | None:
    return None if amount is None else usd(amount)
