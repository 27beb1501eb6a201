"""What is said of missing and old prices, and the command that fetches them."""

from __future__ import annotations

from pricing_data.library import STALE, CloudPrices
from pricing_data.units import HOUR
from spotctl.home.cloud import rented_clouds
from spotctl.show.freshness import fetch_command, freshness_remarks

NOW = 100 * STALE


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
