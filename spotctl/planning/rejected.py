"""Why the markets that a job might use are not in its plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import floor, isfinite

from bidbrain.strategies.base import Offer, Rent
from pricing_data.units import format_usd
from spotctl.planning.expected import Conditions, Part, beta_of, first_hour, usd_per_work
from spotctl.planning.fleet import Settled
from spotctl.planning.offers import Board, why_unusable
from spotctl.planning.values import Choice, Columns, Question, Rejected

_NAMED = 100
"""Maximum number of unusable markets, and of unused ones, that a plan lists."""
_SAME = 0.005


def rejections(
    question: Question, settled: Settled, under: Conditions, choice: Sequence[Choice], known: tuple[Board, Columns]
) -> tuple[Rejected, ...]:
    """The nearest first: what the strategy weighed, what is unusable, and what Gavel's answer leaves out."""
    board, columns = known
    taken = {one.rent.offer.market for one in choice}
    weighed = [_weighed(offer, settled, under, choice) for offer in settled.fleet.offers if offer.market not in taken]
    weighed.sort(key=lambda one: (one.instead is None, one.instead.usd_per_work if one.instead else 0.0))
    unusable = (why_unusable(board, row) for row in question.unusable[:_NAMED])
    told = (Rejected(market, why) for market, why in unusable)
    return (*weighed, *told, *islice(_left_out(settled, board, columns), _NAMED))


def _weighed(offer: Offer, settled: Settled, under: Conditions, choice: Sequence[Choice]) -> Rejected:
    price = settled.prices[offer.market]
    if price > offer.on_demand:
        return Rejected(
            offer.market, f"costs ${format_usd(price)} an hour, more than ${format_usd(offer.on_demand)} on demand"
        )
    limits = settled.limits
    machines = min(max(floor(settled.fleet.most_nu / offer.nu + 1e-9), limits.least, 1), limits.most)
    rent = Rent(offer, machines, _bid_alike(offer, price, choice[0]))
    beta = beta_of(settled.past, rent, price)
    share = first_hour([Part.of(rent, price, beta)], under).shares[0]
    instead = Choice(rent, price, beta, usd_per_work(share))
    return Rejected(offer.market, _compared(instead, choice), instead)


def _bid_alike(offer: Offer, price: int, chosen: Choice) -> int:
    """As far above the price as was bid elsewhere; on-demand where that was bid, or rented."""
    bid = chosen.rent.bid
    if bid is None or bid == chosen.rent.offer.on_demand:
        return offer.on_demand
    return price + bid - chosen.price


def _compared(instead: Choice, choice: Sequence[Choice]) -> str:
    dearest = max(one.usd_per_work for one in choice)
    if not isfinite(instead.usd_per_work):
        return f"evicted too often to make progress ({instead.beta.probability:.0%} per hour)"
    more = instead.usd_per_work / dearest - 1
    told = f"${instead.usd_per_work:.4g} per unit of work"
    if 0 <= more < _SAME:
        return f"costs the same: {told}, beta {instead.beta.probability:.1%}"
    if more > 0:
        return f"{more:.0%} more expensive: {told}, beta {instead.beta.probability:.1%}"
    return f"not chosen by the strategy: {told} by this estimate, beta {instead.beta.probability:.1%}"


def _left_out(settled: Settled, board: Board, columns: Columns) -> Iterator[Rejected]:
    """Kinds by their price for the work, each by its markets; then what is too dear to be weighed."""
    for j, why in sorted(settled.passed_over.items(), key=lambda pair: float(columns.usd_per_hour[pair[0]])):
        for row in columns.rows[j]:
            yield Rejected(board.markets[row], why)
    offered = set(settled.rows)
    for j, rows in enumerate(columns.rows):
        if j not in settled.passed_over and offered & set(rows):
            yield from (
                Rejected(board.markets[row], "more expensive than the markets considered")
                for row in rows
                if row not in offered
            )
