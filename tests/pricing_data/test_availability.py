"""Spans of observations."""

from __future__ import annotations

import pytest

from pricing_data.availability import AvailabilitySpan
from pricing_data.errors import BadInput
from pricing_data.units import HOUR
from tests.pricing_data.store.test_availability import MARKET, START


@pytest.mark.parametrize(
    "wrong",
    [{"until": START - 1}, {"machines": 5}, {"wanted": 0, "machines": 0}, {"ended": "vanished"}],
    ids=", ".join,
)
def test_a_span_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    right: dict[str, object] = {
        "since": START,
        "until": START,
        "machines": 1,
        "wanted": 4,
        "ended": "",
        "source": "x",
    }
    with pytest.raises(BadInput, match=r"p3\.2xlarge"):
        AvailabilitySpan(MARKET, **{**right, **wrong})  # type: ignore[arg-type]


def test_only_what_was_known_at_a_moment_counts_then() -> None:
    span = AvailabilitySpan(MARKET, START, START + 2 * HOUR, 1, 1, "evicted", "a trace")
    assert span.before(START - 1) is None
    assert span.before(START + 3 * HOUR) == span
    known = span.before(START + HOUR)
    assert known is not None
    assert (known.until, known.ended) == (START + HOUR, "")
