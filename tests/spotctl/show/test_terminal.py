from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pricing_data import units
from pricing_data.library import STALE, CloudPrices
from pricing_data.units import HOUR
from spotctl.home.cloud import rented_clouds
from spotctl.show import terminal
from spotctl.show.terminal import fetch_command, freshness_remarks
from tests.pricing_data.histories import series

NOW = 100 * STALE


@given(
    st.dictionaries(st.integers(0, 5000), st.integers(1, 10**6), min_size=1, max_size=30),
    st.integers(1, 200),
)
def test_a_sparkline_shows_the_highest_price_of_each_interval(
    shape: dict[int, int], width: int
) -> None:
    drawn = terminal.sparkline(series(*sorted(shape.items())), width)
    assert len(drawn) == width
    # The last event ends the last interval, so a price that occurs only there is not drawn.
    tops = [price for _, price in sorted(shape.items())[:-1]]
    if tops and max(tops) == max(shape.values()) > min(shape.values()):
        assert "█" in drawn


def test_short_spikes_are_visible_and_tall_ones_do_not_hide_the_rest() -> None:
    assert terminal.sparkline(series((0, 10), (400, 20), (401, 10), (1000, 10)), 4) == "▁█▁▁"
    assert (
        terminal.sparkline(series((0, 10), (300, 30), (600, 1000), (601, 10), (1000, 10)), 4)
        == "▁▃█▁"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (90, "2 min"), (7200, "2 h"), (86_400 * 3881, "3881 d")],
)
def test_ages_are_written_in_their_largest_unit(seconds: float, text: str) -> None:
    assert units.age(seconds) == text


def test_fresh_prices_need_no_remark() -> None:
    fresh = [CloudPrices("aws", NOW - HOUR)]
    assert freshness_remarks(fresh, NOW) == []
    assert fetch_command(fresh, NOW) is None


def test_what_is_missing_or_old_is_named_with_its_command() -> None:
    clouds = [CloudPrices("aws", NOW), CloudPrices("gcp", None), CloudPrices("azure", 0)]
    (remark,) = freshness_remarks(clouds, NOW, ["us-east-1"])
    assert remark.startswith("no prices of gcp are stored, prices of azure are ")
    assert remark.endswith(
        "fetch them: spotctl prices fetch --cloud gcp --cloud azure --region us-east-1"
    )


def test_where_all_clouds_are_fetched_none_is_named() -> None:
    assert fetch_command([CloudPrices(name, None) for name in rented_clouds()], NOW) == (
        "spotctl prices fetch"
    )
