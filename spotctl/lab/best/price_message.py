"""The message about a price that was waited for."""

from collections.abc import Sequence

from pricing_data.units import age, counted
from spotctl.lab.best.offers import RankedOffer, to_json
from spotctl.lab.best.price_condition import PriceCondition
from spotctl.run.notify.webhook import Message


def price_message(condition: PriceCondition, offers: Sequence[RankedOffer], now: int) -> Message:
    """The message that a condition holds for these offers, of which the first is the best."""
    best = offers[0]
    lines = {
        "Condition": condition.text,
        "Price": f"${best.usd_per_hour:,.4f} per hour{' (estimated)' if best.estimated else ''}",
        "Evicted within an hour": "unknown" if best.eviction is None else f"{best.eviction:.2%}",
        "Price seen": f"{age(best.age_seconds(now))} ago",
        "Offers that fit": counted(len(offers), "offer"),
    }
    facts = {"event": "price condition holds", "condition": condition.text, **to_json(best, now)}
    return Message(
        f"{best.market} {best.seen} {best.price} {condition.text}",
        f"{best.market}: {condition.shown(best)}",
        good=True,
        lines=lines,
        facts=facts,
    )
