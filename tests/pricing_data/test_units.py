from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from pricing_data.errors import BadInput
from pricing_data.units import (
    DAY,
    EARLIEST,
    HOUR,
    LATEST,
    format_time,
    format_usd,
    parse_duration,
    parse_time,
    parse_usd,
)


@given(st.integers(EARLIEST, LATEST - 1))
def test_a_time_prints_and_parses_without_loss(micros: int) -> None:
    assert parse_time(format_time(micros)) == micros


@pytest.mark.parametrize(
    "text",
    [
        "2016-02-25T00:35:34Z",
        "2016-02-25 00:35:34",
        "2016-02-25T00:35:34.000000+00:00",
        "2016-02-24T19:35:34-05:00",
    ],
)
def test_every_spelling_of_a_moment_is_the_same_moment(text: str) -> None:
    moment = datetime(2016, 2, 25, 0, 35, 34, tzinfo=UTC)
    assert parse_time(text) == int(moment.timestamp()) * 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2016-13-01T00:00:00Z",
        "2016-02-30",
        "25/02/2016",
        "1970-01-01",
        "2200-01-01",
    ],
)
def test_an_invalid_time_is_reported(text: str) -> None:
    with pytest.raises(BadInput, match="time"):
        parse_time(text)


@given(st.integers(1, 10_000 * 10**9))
def test_a_price_prints_and_parses_without_loss(nanos: int) -> None:
    assert parse_usd(format_usd(nanos)) == nanos
    assert Decimal(format_usd(nanos)) * 10**9 == nanos


def test_digits_below_a_nano_dollar_are_rounded_half_to_even() -> None:
    assert [parse_usd(f"0.000000{digits}") for digits in ("0015", "0025", "00251")] == [2, 2, 3]


@pytest.mark.parametrize(
    "text", ["", "free", "-0.1", "0", "0.0", "nan", "inf", "1e9", "10001", "0.0000000001"]
)
def test_an_invalid_price_is_reported(text: str) -> None:
    with pytest.raises(BadInput, match="spot price"):
        parse_usd(text, "spot price")


def test_durations() -> None:
    assert (parse_duration("90d"), parse_duration("1.5h")) == (90 * DAY, 3 * HOUR // 2)


@pytest.mark.parametrize("text", ["", "90", "d", "-1d", "0h", "1e400d", "nand", "3 fortnights"])
def test_an_invalid_duration_is_reported(text: str) -> None:
    with pytest.raises(BadInput, match="duration"):
        parse_duration(text)
