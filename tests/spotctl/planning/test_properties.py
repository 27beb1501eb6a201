"""Properties of every plan of `auto`, on a few drawn jobs; `python -m
tests.spotctl.planning.properties` checks thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.spotctl.planning.drawn_jobs import PLACES, Case, Prices, drawn
from tests.spotctl.planning.properties import PROPERTIES, coarse_plays, costs_no_more

_ANY = TypeVar("_ANY")
TEN = settings(max_examples=10, suppress_health_check=list(HealthCheck))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    def pick(values: Sequence[_ANY]) -> _ANY:
        return draw(st.sampled_from(values))

    return drawn(pick, small=True)


@pytest.mark.parametrize("name", ["physical", "figures", "has-cure", "cures"])
@TEN
@given(cases())
def test_properties_that_compare_no_plans_hold_of_ten_drawn_jobs(name: str, case: Case) -> None:
    with coarse_plays():
        PROPERTIES[name](case)


def test_on_demand_machines_are_compared_that_are_fast_enough() -> None:
    """Without a deadline a job may take twice its hours: the cheapest machines on demand take 16
    times as long, and the fast ones cost less than waiting for spot machines."""
    drawn_prices = {
        ("a.large", "b"): Prices("steps", 0.7, 149),
        ("b.large", "b"): Prices("sawtooth", 0.3, 12),
        ("b.huge", "b"): Prices("sawtooth", 0.45, 558),
    }
    case = Case(
        year=2026,
        days=3,
        prices=tuple(drawn_prices.get(place, Prices("flat", 1.1, 0)) for place in PLACES),
        types=("b.huge", "a.large", "b.large"),
        zones=("b",),
        kind="command",
        machines=4,
        hours=1,
        on=None,
    )
    with coarse_plays():
        assert costs_no_more(case, replace(case, strategy="on-demand"))
