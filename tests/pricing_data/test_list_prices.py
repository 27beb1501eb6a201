"""Egress, disks and addresses: the tables are complete and dated, and the look-ups find the right
row.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.errors import BadInput, UnknownPrice
from pricing_data.ingest import ingest
from pricing_data.library import Library
from pricing_data.list_prices import (
    EGRESS,
    ListPrice,
    ListPrices,
    Location,
    address,
    disk,
    egress,
    rows_of,
)
from pricing_data.store import PriceStore
from pricing_data.units import parse_time

EAST, EAST_2, WEST = (
    Location("aws", "us-east-1"),
    Location("aws", "us-east-2"),
    Location("aws", "us-west-2"),
)
TOKYO = Location("aws", "ap-northeast-1")


@pytest.mark.parametrize(
    ("origin", "target", "usd_per_gb"),
    [
        (EAST, EAST, 0.0),
        (
            Location("aws", "us-east-1", "us-east-1a"),
            Location("aws", "us-east-1", "us-east-1b"),
            0.02,
        ),
        (Location("aws", "us-east-1", "us-east-1a"), EAST, 0.0),
        (EAST, EAST_2, 0.01),
        (EAST, WEST, 0.02),
        (TOKYO, EAST, 0.09),
        (EAST, None, 0.09),
        (TOKYO, Location("gcp", "us-central1"), 0.114),
        (Location("gcp", "us-central1"), Location("gcp", "us-east1"), 0.02),
        (Location("gcp", "us-central1"), Location("gcp", "europe-west4"), 0.05),
        (Location("gcp", "us-central1"), EAST, 0.12),
        (Location("azure", "us_east"), Location("azure", "westus2"), 0.02),
        (Location("azure", "eastus"), Location("azure", "westeurope"), 0.05),
        (Location("azure", "brazilsouth"), Location("azure", "eastus"), 0.16),
        (Location("azure", "eastus"), None, 0.087),
        (Location("local", "sim-east"), None, 0.0),
    ],
)
def test_the_place_that_sends_decides_the_price(
    origin: Location, target: Location | None, usd_per_gb: float
) -> None:
    assert egress(origin, target).usd_per_gb == usd_per_gb


def test_tiers_are_billed_each_at_its_own_price() -> None:
    price = egress(EAST, None)
    assert price.usd(100) == 0
    assert price.usd(150) == pytest.approx(50 * 0.09)
    assert price.usd(50, after_gb=100) == pytest.approx(50 * 0.09)
    assert price.usd(20_000, after_gb=100) == pytest.approx(10_240 * 0.09 + 9_760 * 0.085)
    with pytest.raises(BadInput, match="at least 0"):
        price.usd(-1)


def test_every_row_has_a_date_a_page_and_a_certainty() -> None:
    for table in ("egress", "disks", "addresses"):
        for row in rows_of(table):
            ListPrice.of_row(table, row)
            assert row["source"].startswith("https://")
            assert row["certainty"] in ("list", "approximate")


def test_a_disk_of_a_fixed_size_is_billed_whole() -> None:
    assert disk("azure", "eastus", "StandardSSD_LRS", 100) == disk(
        "azure", "eastus", "StandardSSD_LRS", 128
    )
    assert disk("aws", "us-east-1", "gp3", 100) == pytest.approx(8 / 730)
    for bad, error in (("gp9", UnknownPrice), ("gp3", BadInput)):
        with pytest.raises(error):
            disk("aws", "us-east-1", bad, 0 if bad == "gp3" else 1)


def test_what_is_not_in_the_tables_is_an_error() -> None:
    with pytest.raises(UnknownPrice, match="egress from aws/moon-1 to the internet"):
        egress(Location("aws", "moon-1"), None)
    with pytest.raises(BadInput, match="not one of"):
        egress(Location("ibm", "x"), None)


def test_what_is_below_the_first_tier_of_a_list_is_not_free() -> None:
    names = "asof,cloud,origin,target,above_gb,usd_per_gb,certainty,source".split(",")
    tiers = ((500, 0.04), (900, 0.02))
    rows = [f"2026-10-01,aws,*,internet,{above},{usd},list,here".split(",") for above, usd in tiers]
    given = ListPrices(
        tuple(ListPrice.of_row(EGRESS, dict(zip(names, row, strict=True))) for row in rows)
    )
    assert egress(EAST, None, lists=given).usd(1000) == pytest.approx(900 * 0.04 + 100 * 0.02)


TABLES = {
    "asof,cloud,origin,target,above_gb,usd_per_gb": (
        "2026-10-01,aws,north-america,internet,500,0.04",
        "2026-10-01,aws,north-america,internet,0,0",
        "2026-10-01,moon,north-america,internet,0,0",
        "2026-10-01,aws,us-east-1,us-west-2,x,0.01",
        "2098-10-01,aws,us-east-1,us-west-2,0,0.01",
    ),
    "asof,cloud,regions,kind,up_to_gib,usd_per_month": (
        "2026-10-01,aws,us-*,gp3,,0.06",
        "2026-10-01,aws,us-east-1,gp3,,0.05",
        "2026-10-01,aws,us-east-1,gp3,,nan",
    ),
    "asof,cloud,regions,purchase,usd_per_hour,certainty,source": (
        "2026-10-01,aws,*,spot,0.009,approximate,here",
        "2026-10-01,aws,*,borrowed,0.009,list,here",
    ),
}


def test_newer_lists_are_imported_and_hold_from_their_date_on(tmp_path: Path) -> None:
    store = PriceStore(tmp_path / "store")
    for number, (header, rows) in enumerate(TABLES.items()):
        path = tmp_path / f"{number}.csv"
        path.write_text("\n".join([header, *rows]))
        reports = [ingest(store, path) for _ in range(2)]
        bad = [3, 1, 1][number]
        assert [(report.skipped, report.facts) for report in reports] == [
            (bad, len(rows) - bad)
        ] * 2
    lists = Library(store).catalog.lists
    before, after = parse_time("2026-09-30"), parse_time("2026-10-01")
    assert (
        egress(EAST, None, after, lists).usd(1000)
        == egress(EAST, None, None, lists).usd(1000)
        == pytest.approx(20)
    )
    assert egress(EAST, None, before, lists) == egress(EAST, None)
    assert egress(EAST, None, parse_time("2020-01-01"), lists) == egress(EAST, None)
    assert disk("aws", "us-east-1", "gp3", 730, lists=lists) == pytest.approx(0.05)
    assert disk("aws", "us-east-2", "gp3", 730, lists=lists) == pytest.approx(0.06)
    assert address("aws", "us-east-1", "spot", lists=lists) == 0.009
    assert address("aws", "us-east-1", "on-demand", lists=lists) == address(
        "aws", "us-east-1", "on-demand"
    )
