"""What holds of every plan of `auto`, on a few drawn jobs; `python -m
tests.spotctl.planning.properties` checks thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.spotctl.planning.drawn_jobs import Case, drawn
from tests.spotctl.planning.properties import PROPERTIES, coarse_plays

_ANY = TypeVar("_ANY")
TEN = settings(max_examples=10, suppress_health_check=list(HealthCheck))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    def pick(values: Sequence[_ANY]) -> _ANY:
        return draw(st.sampled_from(values))

    return drawn(pick, small=True)


@TEN
@given(st.sampled_from(sorted(PROPERTIES)), cases())
def test_a_property_holds_of_a_drawn_job(name: str, case: Case) -> None:
    with coarse_plays():
        PROPERTIES[name](case)


@pytest.mark.parametrize("name", PROPERTIES)
@TEN
@given(cases())
def test_each_property_holds_of_ten_drawn_jobs(name: str, case: Case) -> None:
    with coarse_plays():
        PROPERTIES[name](case)
