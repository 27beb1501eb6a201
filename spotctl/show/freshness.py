"""Clouds whose prices are missing or old, and the command that fetches them."""

from collections.abc import Sequence
from typing import Any

from pricing_data.library import CloudPrices, outdated
from pricing_data.units import SECOND, age, format_time
from spotctl.home.cloud import rented_clouds
from spotctl.show.columns import Column


def freshness_remarks(
    clouds: Sequence[CloudPrices], now: int, regions: Sequence[str] = ()
) -> list[str]:
    """One line about what is missing or old; none if every price is fresh."""
    about = list[str]()
    missing = [prices.cloud for prices in clouds if prices.newest is None]
    if missing:
        about.append(f"no prices of {', '.join(missing)} are stored")
    for prices in outdated(clouds, now):
        if prices.newest is not None:
            old = age((now - prices.newest) / SECOND)
            about.append(f"prices of {prices.cloud} are {old} old")

    if not about:
        return []
    command = fetch_command(clouds, now, regions)
    return [f"{', '.join(about)}; fetch them: {command}"]


def fetch_command(
    clouds: Sequence[CloudPrices], now: int, regions: Sequence[str] = ()
) -> str | None:
    """The command that fetches what is missing or old; None if nothing is."""
    names = [prices.cloud for prices in outdated(clouds, now)]
    if not names:
        return None

    every = set(names) == set(rented_clouds())
    options = [
        *([] if every else [f" --cloud {name}" for name in names]),
        *(f" --region {name}" for name in regions),
    ]

    return "spotctl prices fetch" + "".join(options)


CLOUD_PRICES: tuple[Column[CloudPrices], ...] = (
    Column("cloud", "the cloud"),
    Column(
        "newest",
        "moment of its newest stored price; null if none is stored",
        form=format_time,
    ),
    Column(
        "age_seconds",
        "age of that price; null if none is stored",
        value_at=lambda prices, now: (
            None if prices.newest is None else max(0.0, (now - prices.newest) / SECOND)
        ),
    ),
    Column("state", "fresh, old or missing", value_at=CloudPrices.state),
)
FRESHNESS: tuple[Column[Any], ...] = (
    Column("clouds", "rented clouds that were asked for", each=CLOUD_PRICES),
    Column("fetch", "command that fetches what is missing or old; null if nothing is"),
)
