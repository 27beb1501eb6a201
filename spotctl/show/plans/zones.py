"""The markets between which a job may move: what each costs to the end of the job, and why the others lost."""

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from bidbrain.strategies.base import Offer
from bidbrain.strategies.regions import ZoneOutlook
from pricing_data.units import counted, format_usd, to_usd, usd_text
from spotctl.planning.facts import declared_gb
from spotctl.planning.values import JobPlan
from spotctl.show.terminal import market_name

_MOST_ZONES = 20


def zones_json(plan: JobPlan) -> list[dict[str, Any]]:
    """The considered markets, the best first."""
    return [
        {
            "market": str(_offer(plan, outlook).market),  #: the market
            "usd_per_hour": to_usd(_price(plan, outlook)),  #: current spot price of a machine
            "chance_of_spot": outlook.chance,  #: probability that spot machines are available there
            "expected_life_hours": outlook.lasts,  #: expected hours until a machine there is evicted
            #: cost of moving the checkpoint there from the market in which the job begins; null if its size is unknown
            "move_usd": _move_usd(plan, outlook),
            #: expected cost to the end of the job if it begins there on spot machines
            "cost_to_end_usd": outlook.spot_usd,
            #: expected cost to the end of the job if it begins there on demand
            "on_demand_to_end_usd": outlook.on_demand_usd,
            #: why the job does not begin there; empty for the market in which it does
            "why_not": _why_not(plan, outlook),
        }
        for outlook in plan.first.outlooks
    ]


def zones_view(plan: JobPlan) -> Group:
    """The considered markets as a table."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("market considered", "price", "spot up", "lasts", "move there", "to the end", "why not"):
        table.add_column(name, justify="left" if name in ("market considered", "why not") else "right", overflow="fold")
    for outlook in plan.first.outlooks[:_MOST_ZONES]:
        move = _move_usd(plan, outlook)
        table.add_row(
            market_name(_offer(plan, outlook).market),
            f"${format_usd(_price(plan, outlook))}",
            f"{outlook.chance:.0%}",
            f"{outlook.lasts:.1f} h",
            "unknown" if move is None else usd_text(move),
            usd_text(outlook.spot_usd),
            _why_not(plan, outlook) or "chosen",
        )
    more = len(plan.first.outlooks) - _MOST_ZONES
    cheapest = min(outlook.on_demand_usd for outlook in plan.first.outlooks)
    remarks = [Text(f"and {counted(more, 'more market')} (--json lists all)")] if more > 0 else []
    remarks.append(Text(f"on demand: at least {usd_text(cheapest)} to the end"))
    remarks.append(Text("a running job moves once that saves at least half of the cost of moving and starting up"))
    return Group(table, *remarks)


def _offer(plan: JobPlan, outlook: ZoneOutlook) -> Offer:
    return plan.decider.offers[outlook.zone]


def _price(plan: JobPlan, outlook: ZoneOutlook) -> int:
    return int(plan.built.market_history.histories[_offer(plan, outlook).market].prices[-1])


def _move_usd(plan: JobPlan, outlook: ZoneOutlook) -> float | None:
    """The cost of moving the checkpoint there from the market in which the job begins; None if unknown."""
    gigabytes, roaming = declared_gb(plan.job.spec), plan.decider.roaming
    if gigabytes is None or roaming is None:
        return None
    return roaming.move_usd(plan.choice[0].rent.offer.market, _offer(plan, outlook).market, gigabytes)


def _why_not(plan: JobPlan, outlook: ZoneOutlook) -> str:
    """Why a job does not begin in a market; empty for the one in which it does."""
    rent, offer = plan.choice[0].rent, _offer(plan, outlook)
    if rent.bid is not None and rent.offer == offer:
        return ""
    if _price(plan, outlook) > offer.on_demand:
        return "costs more than on demand"
    if rent.bid is None:
        return "the decision costs less"
    more = outlook.spot_usd - next(other.spot_usd for other in plan.first.outlooks if _offer(plan, other) == rent.offer)
    return f"{usd_text(more)} more to the end" if more >= 0.005 else "the same to the end"
