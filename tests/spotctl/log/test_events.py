"""Which events commit money: what their classes say is what folding them shows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from bidbrain.billing import billing_rule
from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.log import events as ev
from spotctl.log.budget import Tariff, committed
from spotctl.log.events import KINDS, Event
from spotctl.log.folding import ABANDONED, fold
from spotctl.log.state import LogRow, RunState
from tests.spotctl.run.worlds import MARKETS, PRICES, RUN, START

MARKET, _ = MARKETS
PRICE, BID = 50_000_000, 100_000_000
UNTIL, NOW, TEARDOWN = START + HOUR, START + 10 * MINUTE, MINUTE
SAMPLES = 60


def order(number: int, machines: int = 2) -> ev.RentIntended:
    return ev.RentIntended(number, MARKET, machines, BID, 2 * BID, 1.0, False, UNTIL)


HISTORY: tuple[Event, ...] = (
    ev.RunBegan("job", "local", {}, "", START),
    order(1),
    ev.Rented(1, (ev.Granted("held", START), ev.Granted("gone", START))),
    ev.MachineEnded("gone", START + 5 * MINUTE, "evicted"),
    order(2),
    ev.RentRefused(2, ABANDONED, "no answer"),
    order(3),
    order(7),
    ev.RentRefused(7, "NoCapacity", "sold out"),
    ev.RenewIntended(4, ("held",), UNTIL + HOUR),
    ev.ReturnIntended(5, ("held",), "not needed"),
    ev.BidIntended(6, "held", 2 * BID),
)
"""A run with an intent of each kind, an order without an answer and a refused one, and a machine
that works and one that is gone."""

OUTCOMES: Mapping[type[Event], tuple[int, ...]] = {
    ev.Rented: (2, 3, 7),
    ev.RentRefused: (3,),
    ev.OrderSettled: (2,),
    ev.Renewed: (4,),
    ev.Returned: (5,),
    ev.BidChanged: (6, 0),
}
"""The intents whose outcomes events of a class can be; any other event with an `intent` begins a
new one."""

GIVEN: Mapping[tuple[type[Event], str], tuple[Any, ...]] = {
    (ev.MachineEnded, "id"): ("held",),
    (ev.BidIntended, "id"): ("held",),
    (ev.BidChanged, "id"): ("held",),
    (ev.RenewIntended, "machines"): (("held",),),
    (ev.ReturnIntended, "machines"): (("held",),),
    (ev.ReturnScheduled, "machines"): ((), ("held",)),
    (ev.AttemptBegan, "machines"): (("held",),),
    (ev.Rented, "machines"): (
        (ev.Granted("new", START),),
        (ev.Granted("new", NOW), ev.Granted("newer", NOW)),
    ),
    (ev.RentIntended, "machines"): (1, 3),
    (ev.RentRefused, "why"): (ABANDONED, "NoCapacity"),
    (ev.ReturnScheduled, "allocation"): (1,),
    (ev.RentIntended, "lease_until"): (UNTIL,),
    (ev.RenewIntended, "lease_until"): (UNTIL + HOUR, UNTIL + 3 * HOUR),
}
"""Values for the fields of a class that not every value of their type makes sense for."""

NAMED: Mapping[str, tuple[Any, ...]] = {
    "id": ("held", "gone"),
    "at": (START + 5 * MINUTE, NOW),
    "bid": (BID, 3 * BID),
    "price": (PRICE,),
    "bytes": (1, 1 << 40),
    "times": ((START, NOW),),
    "prices": ((PRICE, 5 * PRICE),),
}
"""Values for fields of a name."""

TYPED: Mapping[Any, tuple[Any, ...]] = {
    int: (1, 10**9),
    float: (0.5, 2.0),
    str: ("", "text"),
    bool: (False, True),
    ev.JsonFloat: (0.5, 2.0),
    ev.MarketText: (MARKET,),
    dict[str, Any]: ({},),
    tuple[str, ...]: ((), ("text",)),
    int | None: (None, 1, 10**9),
    float | None: (None, 0.5),
}


def choices(kind: type[Event]) -> dict[str, tuple[Any, ...]]:
    """The strategies for the fields of a class of events; nothing for those that keep their
    defaults.
    """
    hints = get_type_hints(kind)

    def of_field(name: str) -> tuple[Any, ...]:
        if name == "intent":
            return OUTCOMES.get(kind, (9,))
        return GIVEN.get((kind, name)) or NAMED.get(name) or TYPED.get(hints[name], ())

    return {field.name: drawn for field in fields(kind) if (drawn := of_field(field.name))}


def samples(kind: type[Event]) -> Iterator[Event]:
    draw, drawn_from = random.Random(kind.__name__), choices(kind)
    for _ in range(SAMPLES):
        yield kind(**{name: draw.choice(values) for name, values in drawn_from.items()})


def folded(events: tuple[Event, ...], state: RunState | None = None) -> RunState:
    return fold(
        [LogRow(i, RUN, START + i * SECOND, event) for i, event in enumerate(events)], state
    )


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@pytest.mark.parametrize("rule", ["per-second", "hourly-refund"])
def test_a_class_says_whether_its_events_can_raise_what_is_committed(
    kind: type[Event], rule: str
) -> None:
    tariff = Tariff(lambda _: billing_rule(rule), lambda market, _: PRICES[market])
    states = [folded(HISTORY[:count]) for count in (len(HISTORY), len(HISTORY) - 1)]
    raised = set()
    for event in samples(kind):
        for state in states:
            before, after = (
                committed(each, NOW, tariff, TEARDOWN) for each in (state, folded((event,), state))
            )
            raised.add(after > before)
    assert (True in raised) == kind.commits


def test_what_the_runner_decides_on_is_never_only_a_fact() -> None:
    """Its intents that cost money commit it before they are sent; to return machines needs no
    budget.
    """
    costs: dict[type[ev.LogEvent], bool] = {
        ev.RentIntended: True,
        ev.RenewIntended: True,
        ev.BidIntended: True,
        ev.ReturnIntended: False,
    }
    assert {kind: kind.commits for kind in costs} == costs
