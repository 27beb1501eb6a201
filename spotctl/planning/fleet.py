"""What a job's strategy is made for, once it is settled which kind of machine its size is measured in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.strategies.base import Offer, Rent
from pricing_data.errors import UnknownInstanceType, UnknownPrice
from pricing_data.market import Market
from spotctl.files.job.spec import Command
from spotctl.planning.constraints import Limits, baseline_machines
from spotctl.planning.errors import NotInTime
from spotctl.planning.market_history import Fleet, MarketHistory
from spotctl.planning.offers import Board
from spotctl.planning.share import companions
from spotctl.planning.values import Columns, Known, Question

_MARKETS = 16
"""A job's strategy weighs so many markets, those of its own kind first and then the cheapest for the work."""


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """A fleet with the limits that hold for it, and what is known of its markets.

    `rows` are its offers' on the board, `prices` what they cost now; `passed_over` says why other columns are not in.
    """

    fleet: Fleet
    limits: Limits
    past: MarketHistory
    rows: tuple[int, ...]
    prices: dict[Market, int]
    passed_over: dict[int, str]


def settle(question: Question, home: int, known: Known, columns: Columns) -> Settled:
    """The markets of the kinds that are as good as `home`, as much of them as `home` would do, and what is beside."""
    asked, share, board = question.asked, question.share, known.board
    passed_over = companions(asked, share, home, columns.kinds)
    kinds = [j for j in np.flatnonzero(asked.nu > 0).tolist() if j not in passed_over]
    rows = _rows(question, [home, *(j for j in kinds if j != home)], board, columns)
    offers = tuple(_offer(board, row, question) for row in rows)
    most_nu = share.caps[home] * float(asked.nu[home])
    machines = question.job.spec.resources.machines
    limits = Limits(
        machines.least,
        asked.most,
        {columns.kinds[j].type: share.caps[j] for j in kinds},
        together=isinstance(question.job.spec.program, Command),
    )
    fleet = Fleet(
        offers, _baseline(offers, most_nu, limits), _reliable(question, home, board, columns), most_nu, known.overheads
    )
    past = MarketHistory.of(map(board.history, rows), known.hazard_of, board.at)
    prices = {offer.market: int(board.price[row]) for offer, row in zip(offers, rows, strict=True)}
    return Settled(fleet, limits, past, tuple(rows), prices, passed_over)


def _rows(question: Question, kinds: Sequence[int], board: Board, columns: Columns) -> list[int]:
    nu = question.asked.nu
    own, others = list(columns.rows[kinds[0]]), [(j, row) for j in kinds[1:] for row in columns.rows[j]]
    others.sort(key=lambda pair: int(board.price[pair[1]]) / float(nu[pair[0]]))
    return (own + [row for _, row in others])[:_MARKETS]


def _offer(board: Board, row: int, question: Question) -> Offer:
    market = board.markets[row]
    return Offer(market, question.rates[market.instance_type].nu, board.list_price(int(board.kind[row])))


def _baseline(offers: Sequence[Offer], most_nu: float, limits: Limits) -> Rent:
    """What does as much on demand for the least."""
    cheapest = min(offers, key=lambda offer: offer.on_demand / offer.nu)
    return Rent(cheapest, baseline_machines(most_nu, cheapest.nu, limits), None)


def _reliable(question: Question, home: int, board: Board, columns: Columns) -> Rent | None:
    """The machines beside, of the type that is asked for, else of the cheapest on demand that the job may use."""
    wanted, chosen = question.job.spec.resources.reliable, columns.kinds[home]
    if not wanted.machines:
        return None
    near = [j for j, kind in enumerate(columns.kinds) if (kind.cloud, kind.region) == (chosen.cloud, chosen.region)]
    usable = [j for j in near if question.asked.nu[j] > 0]
    cheapest = min(usable, key=lambda j: board.list_price(columns.numbers[j]))
    place = board.markets[columns.rows[cheapest][0]]
    if wanted.type is None:
        return Rent(_offer(board, columns.rows[cheapest][0], question), wanted.machines, None)
    market = Market(place.cloud, place.region, place.zone, wanted.type)
    try:
        vcpus = board.catalog.instance_type(market.cloud, market.instance_type).vcpus
        price = board.catalog.on_demand(market, board.at).price
    except (UnknownInstanceType, UnknownPrice) as error:
        raise NotInTime(f"{question.job.spec.name}: resources.reliable: {error}") from error
    return Rent(Offer(market, float(vcpus), price), wanted.machines, None)
