"""Files of the public SkyPilot catalog: what is a price in them, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from pricing_data.catalog import Catalog, InstanceType
from pricing_data.errors import NoAnswer
from pricing_data.fetched_rows import FetchedRows
from pricing_data.market import Market
from pricing_data.series import WatchRecord
from pricing_data.sources.base import FetchRequest
from pricing_data.sources.public_catalog import CatalogFile, read_catalog
from pricing_data.units import HOUR, Span, parse_time
from tests.pricing_data.sources.catalog_rows import (
    AWS_COLUMNS,
    GCP_COLUMNS,
    aws_row,
    csv_of,
    gcp_gpus,
    gcp_row,
)

AT = parse_time("2026-11-30T19:00:00Z")
REQUEST = FetchRequest(AT - HOUR, AT)


def of_aws(*rows: str, version: int = 9, request: FetchRequest = REQUEST) -> FetchedRows:
    file = CatalogFile("aws", version, AT, csv_of(AWS_COLUMNS, rows))
    return read_catalog(file, request, Catalog(), by_zone=True)


def of_gcp(*rows: str) -> FetchedRows:
    """Types with `gpu` in their names have GPUs, of which only those of a2 are known."""
    file = CatalogFile("gcp", 9, AT, csv_of(GCP_COLUMNS, rows))

    def gpus_of(name: str) -> tuple[str, int] | None:
        if name.startswith("a2"):
            return "A100", 8
        return None if "gpu" in name else ("", 0)

    return read_catalog(file, REQUEST, Catalog(), by_zone=False, gpus_of=gpus_of)


def spot(fetched: FetchedRows) -> dict[str, float]:
    """Spot prices in dollars by market."""
    prices = (price / 1e9 for price in fetched.prices.prices.tolist())
    return dict(zip(map(str, fetched.prices.markets), prices, strict=True))


def on_demand(fetched: FetchedRows) -> dict[str, float]:
    """On-demand prices in dollars by region and type."""
    return {f"{p.region}/{p.instance_type}": p.price / 1e9 for p in fetched.on_demand}


def test_a_machine_has_its_prices_and_its_description() -> None:
    fetched = of_aws(aws_row())

    assert spot(fetched) == {"aws/us-east-1/use1-az1/p4d.24xlarge": 11.25}
    assert on_demand(fetched) == {"us-east-1/p4d.24xlarge": 30.5}
    assert fetched.types == (InstanceType("aws", "p4d.24xlarge", 96, 1152, "A100", 8),)
    (listed,) = fetched.on_demand
    assert (listed.source, listed.as_of) == ("SkyPilot catalog v9", AT)


def test_a_look_at_prices_watches_no_time() -> None:
    fetched = of_aws(aws_row())

    market = Market("aws", "us-east-1", "use1-az1", "p4d.24xlarge")
    assert fetched.watched == {market: WatchRecord((Span(AT, AT),))}
    assert fetched.prices.times.tolist() == [AT]


@pytest.mark.parametrize("none", ["", "0.00", "0", "700.0", "-1", "nan", "x", "1e9"])
def test_what_is_no_price_gives_no_price(none: str) -> None:
    fetched = of_aws(aws_row(spot=none), aws_row(price=none, place="us-east-1,use1-az2"))

    assert spot(fetched) == {"aws/us-east-1/use1-az2/p4d.24xlarge": 11.25}
    assert on_demand(fetched) == {"us-east-1/p4d.24xlarge": 30.5}
    assert "1 row without a spot price" in fetched.notes[0]


def test_of_a_row_that_is_repeated_the_higher_price_counts() -> None:
    rows = [aws_row(spot="3.1"), aws_row(spot="3.3"), aws_row(spot="3.2")]

    assert list(spot(of_aws(*rows)).values()) == [3.3]


def test_names_that_an_account_gives_to_zones_are_not_taken_for_zones() -> None:
    rows = [aws_row(place="us-east-1,us-east-1a")]
    fetched = of_aws(*rows, version=4)

    assert not spot(fetched)
    assert on_demand(fetched) == {"us-east-1/p4d.24xlarge": 30.5}


def test_a_file_without_zones_prices_regions() -> None:
    columns = AWS_COLUMNS.replace(",AvailabilityZone", "")
    row = aws_row(place="eastus", type_="Standard_ND96asr_v4")
    file = CatalogFile("azure", 6, AT, csv_of(columns, [row]))
    fetched = read_catalog(file, REQUEST, Catalog(), by_zone=False)

    assert spot(fetched) == {"azure/eastus/-/Standard_ND96asr_v4": 11.25}


def test_machines_of_google_cloud_get_the_price_of_their_gpus() -> None:
    fetched = of_gcp(gcp_row(), gcp_gpus())

    assert spot(fetched) == {"gcp/us-central1/-/a2-highgpu-8g": 12.0}
    assert on_demand(fetched) == {"us-central1/a2-highgpu-8g": 30.0}
    assert fetched.types == (InstanceType("gcp", "a2-highgpu-8g", 96, 680, "A100", 8),)


@pytest.mark.parametrize(
    "gpus",
    [
        gcp_gpus(gpu="A100,1"),
        gcp_gpus(gpu="H100,8"),
        gcp_gpus(place="us-central1,us-central1-b"),
        gcp_gpus(price="", spot=""),
        gcp_gpus(price="700.0", spot="0.00"),
    ],
)
def test_without_the_price_of_its_gpus_a_machine_has_none(gpus: str) -> None:
    fetched = of_gcp(gcp_row(), gpus)

    assert not spot(fetched)
    assert not on_demand(fetched)


@pytest.mark.parametrize(("price", "spot_price"), [("9.0", "9.5"), ("12.0", "9.5")])
def test_the_price_of_flex_start_is_none_on_demand(price: str, spot_price: str) -> None:
    west = "us-west1,us-west1-a"
    cheap = gcp_gpus(price=price, spot=spot_price, place=west)
    fetched = of_gcp(gcp_row(), gcp_gpus(), gcp_row(place=west), cheap)

    assert on_demand(fetched) == {"us-central1/a2-highgpu-8g": 30.0}
    assert spot(fetched)["gcp/us-west1/-/a2-highgpu-8g"] == 12.0


def test_zones_that_an_account_has_to_enable_are_left_out() -> None:
    local = aws_row(spot="1.0", place="us-east-1,use1-atl2-az1")
    fetched = of_aws(local, aws_row(place="us-gov-east-1,usge1-az1"), aws_row())

    assert set(spot(fetched)) == {
        "aws/us-east-1/use1-az1/p4d.24xlarge",
        "aws/us-gov-east-1/usge1-az1/p4d.24xlarge",
    }


def test_a_machine_whose_gpus_are_unknown_is_not_sold_without_them() -> None:
    fetched = of_gcp(gcp_row("z9-megagpu-8g"), gcp_row("n2-standard-8", "8.0,32.0"), gcp_gpus())

    assert list(spot(fetched)) == ["gcp/us-central1/-/n2-standard-8"]


def test_a_share_of_a_gpu_is_no_machine_with_one() -> None:
    fetched = of_aws(aws_row("g6f.large", "L4,0.125", "2.0,8.0"))

    assert not fetched.types
    assert spot(fetched)


def test_what_is_known_is_not_stored_again_but_for_spot_prices() -> None:
    first = of_aws(aws_row(), aws_row(place="eu-west-1,euw1-az1"))
    known = Catalog(first.types, first.on_demand)
    rows = [aws_row(), aws_row(place="eu-west-1,euw1-az1", price="31.5")]
    later = CatalogFile("aws", 9, AT + HOUR, csv_of(AWS_COLUMNS, rows))
    fetched = read_catalog(later, REQUEST, known, by_zone=True)

    assert not fetched.types
    assert on_demand(fetched) == {"eu-west-1/p4d.24xlarge": 31.5}
    assert len(spot(fetched)) == 2


def test_only_what_is_asked_for_is_kept() -> None:
    rows = [
        aws_row(),
        aws_row("c5.large", ",", "2.0,4.0"),
        aws_row(place="eu-west-1,euw1-az1"),
    ]
    request = replace(REQUEST, regions=("us-east-1",), types=("p4*",))

    assert list(spot(of_aws(*rows, request=request))) == ["aws/us-east-1/use1-az1/p4d.24xlarge"]


@pytest.mark.parametrize("name", ["Price", "SpotPrice", "Region", "InstanceType"])
def test_a_renamed_column_is_named(name: str) -> None:
    columns = ",".join("Renamed" if column == name else column for column in AWS_COLUMNS.split(","))
    file = CatalogFile("aws", 9, AT, csv_of(columns, [aws_row()]))

    with pytest.raises(NoAnswer, match=rf"v9 .* another format: it lacks a column {name};"):
        read_catalog(file, REQUEST, Catalog(), by_zone=True)


@given(st.data())
def test_no_part_of_a_file_is_taken_for_the_whole(data: st.DataObject) -> None:
    whole = csv_of(AWS_COLUMNS, [aws_row(place=f"us-east-1,use1-az{n}") for n in range(4)])
    length = data.draw(st.integers(0, len(whole) - 1))
    file = CatalogFile("aws", 9, AT, whole[:length])

    if length and whole[length - 1 : length] == b"\n":
        assert len(read_catalog(file, REQUEST, Catalog(), by_zone=True).prices) < 4
    else:
        with pytest.raises(NoAnswer, match="cut off"):
            read_catalog(file, REQUEST, Catalog(), by_zone=True)


def test_a_broken_row_costs_no_other_row() -> None:
    fetched = of_aws("p4d.24xlarge,A100", aws_row(), aws_row("p5/48", place="us-east-1,use1-az2"))

    assert list(spot(fetched)) == ["aws/us-east-1/use1-az1/p4d.24xlarge"]


def test_machines_without_a_spot_price_in_a_region_are_sold_on_demand_only() -> None:
    rows = [aws_row(spot="", place=f"us-east-1,use1-az{zone}") for zone in (1, 2)] + [
        aws_row(spot="", place="eu-west-1,euw1-az1"),
        aws_row(place="eu-west-1,euw1-az2"),
    ]
    fetched = of_aws(*rows, aws_row("c5.large", ",", price="", spot=""))

    # The least above the price on demand, for which no plan bids.
    assert spot(fetched) == {
        "aws/eu-west-1/euw1-az2/p4d.24xlarge": 11.25,
        "aws/us-east-1/use1-az1/p4d.24xlarge": 30.500000001,
        "aws/us-east-1/use1-az2/p4d.24xlarge": 30.500000001,
    }
    assert "1 spot price; 4 rows without a spot price" in fetched.notes[0]
