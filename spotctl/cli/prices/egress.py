"""`spotctl lab prices egress`: what it costs to move data."""

from typing import Annotated

import typer

from pricing_data.units import format_time, parse_time
from spotctl.cli.session import JsonOption, Session


def egress(
    context: typer.Context,
    origin: Annotated[str, typer.Argument(help="Place the data is in: aws/us-east-1, or with a zone.")],
    target: Annotated[str, typer.Argument(help="Place the data goes to: gcp/us-central1, or `internet`.")],
    gb: Annotated[float, typer.Option(help="GB to send.")] = 1.0,
    after_gb: Annotated[float, typer.Option(help="GB that the account has already sent this month.")] = 0.0,
    at: Annotated[
        str, typer.Option(help="Use the price list of this day: 2026-01-31.", show_default="the newest")
    ] = "",
    json_: JsonOption = False,
) -> None:
    """Show the list price of sending data from one place to another.

    To add newer lists, use `prices import` with the columns asof,cloud,origin,target,above_gb,usd_per_gb.

    Example: spotctl lab prices egress aws/us-east-1 gcp/us-central1 --gb 500

    \f

    Fields:
        tiers: price list
        tiers[].above_gb: gigabytes per month above which this price holds
        tiers[].usd_per_gb: price of a gigabyte
    """
    from pricing_data.list_prices import Location, egress as price_of
    from spotctl.show import terminal

    session: Session = context.obj
    lists = session.library.catalog.lists
    places = Location.parse(origin), None if target == "internet" else Location.parse(target)
    price = price_of(*places, parse_time(at) if at else None, lists)
    usd = price.usd(gb, after_gb)
    if not json_:
        session.out.print(terminal.egress(price, gb, usd))
        return
    session.answer_json(
        {
            "origin": origin,  #: region from which data is sent
            "target": target,  #: region to which it is sent, or internet
            "gb": gb,  #: gigabytes
            "usd": usd,  #: cost
            "tiers": [{"above_gb": above, "usd_per_gb": each} for above, each in price.tiers],
            "as_of": format_time(price.as_of),  #: date of the price list
            "source": price.source,  #: where the price list is published
            "approximate": price.approximate,  #: whether a price of similar regions stands in for an unknown one
        }
    )
