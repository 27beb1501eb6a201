"""A small market for tests: cheap, then expensive, then cheap again; and requests for it."""

from __future__ import annotations

import sys

import numpy as np

from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, parse_time
from spotctl.agent.container.payload import Payload
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import MachineRequest

BEGIN = parse_time("2024-03-01T00:00:00Z")
CALM = Market.parse("local/here/here-a/small")
WILD = Market.parse("local/here/here-b/small")
UNKNOWN = Market.parse("local/there/there-a/small")
PRICE, BID, PEAK = 100, 200, 300
PEAK_AT = BEGIN + 30 * MINUTE
CLOSES = BEGIN + 2000 * HOUR


def series(market: Market, *steps: tuple[int, int]) -> PriceSeries:
    times, prices = zip(*steps, strict=True)
    return PriceSeries(market, np.array(times, dtype=np.int64), np.array(prices, dtype=np.int64))


def market() -> Replayed:
    """`CALM` never changes; `WILD` rises above the bid after half an hour, for half an hour."""
    return Replayed.of(
        [
            series(CALM, (BEGIN, PRICE), (CLOSES, PRICE)),
            series(
                WILD,
                (BEGIN, PRICE),
                (PEAK_AT, PEAK),
                (PEAK_AT + 30 * MINUTE, PRICE),
                (CLOSES, PRICE),
            ),
        ]
    )


def python(
    code: str, name: str = "work", *, term_at_notice: bool = True, grace_seconds: float = 5.0
) -> Payload:
    """A payload that runs Python code, without site packages because that starts faster."""
    command = (sys.executable, "-S", "-c", code)
    return Payload(name, command, {}, "", term_at_notice, grace_seconds)


def order(
    token: str,
    lease_until: int,
    machines: int = 2,
    bid: int | None = BID,
    payload: Payload | None = None,
    run: str = "a",
) -> MachineRequest:
    return MachineRequest(
        token, CALM, machines, bid, lease_until, {"run": run, "allocation": token}, payload
    )
