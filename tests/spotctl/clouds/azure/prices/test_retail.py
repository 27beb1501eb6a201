"""The public price list: what is asked again, and what it may not answer."""

from __future__ import annotations

import pytest

from pricing_data.units import to_datetime
from spotctl.clouds.azure.prices.retail import retry_after
from tests.spotctl.clouds.azure.prices.test_source_faults import (
    NOW,
)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("", None),
        ("x", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str, seconds: float | None) -> None:
    assert retry_after(header, to_datetime(NOW)) == seconds
