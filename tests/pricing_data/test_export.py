from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from pricing_data.catalog import Catalog, InstanceType, OnDemandPrice
from pricing_data.errors import BadInput
from pricing_data.export import export, history_frame, prices_frame
from pricing_data.fetched_rows import PriceBatch, PriceEvent
from pricing_data.market import Market
from pricing_data.stats import describe
from pricing_data.store.table import NO_ROWS, PriceTable
from pricing_data.units import NANOS_PER_DOLLAR, SECOND, parse_time, to_datetime
from tests.pricing_data.histories import START, market, random_batch, series
from tests.pricing_data.sources.test_files import prices_in
from tests.pricing_data.store.test_table import contents

named = st.sampled_from(
    list(
        map(
            Market.parse,
            [
                "aws/sa-east-1/sa-east-1a/t",
                "aws/sa-east-1/sa-east-1a/t/windows",
                "aws/sa-east-1/-/t/linux-vpc",
                "gcp/us-east1/-/n1",
                "azure/eastus/-/D4",
            ],
        )
    )
)
rows = st.lists(st.builds(PriceEvent, named, st.integers(START, START + 10**12), st.integers(1, 10**13)), min_size=1)


@settings(max_examples=40)
@given(rows)
@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz"])
def test_an_export_imports_without_loss(
    tmp_path_factory: pytest.TempPathFactory, name: str, rows: list[PriceEvent]
) -> None:
    path = tmp_path_factory.mktemp("export") / name
    table = PriceTable.of(PriceBatch.of(rows))
    export(table, path)
    assert prices_in(path) == contents(table)


def test_common_spellings_of_times_and_prices_are_read(tmp_path: Path) -> None:
    event = PriceEvent(
        Market.parse("aws/us-east-1/us-east-1a/c4.xlarge"), parse_time("2016-02-25T00:35:34Z"), 16_200_000
    )
    export(PriceTable.of(PriceBatch.of([event])), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[1].replace('"', "") == (
        "2016-02-25T00:35:34Z,aws,us-east-1,us-east-1a,c4.xlarge,Linux/UNIX,0.0162"
    )
    export(PriceTable.of(PriceBatch.of([event])), tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").to_pylist()[0]["spot_price"] == "0.0162"


def test_an_unknown_suffix_and_a_missing_folder_are_reported(tmp_path: Path) -> None:
    table = PriceTable.of(PriceBatch.of([]))
    with pytest.raises(BadInput, match=r"must end with one of \.csv"):
        export(table, tmp_path / "out.xls")
    with pytest.raises(BadInput, match=r"cannot write .*csv: No such file"):
        export(table, tmp_path / "no" / "out.csv")


REGIONAL = Market.parse("azure/eastus/-/Standard_NC6s_v3/windows")


def test_a_history_has_a_row_for_each_price_change() -> None:
    table = PriceTable.of(random_batch(seed=4, markets=3, rows=60))
    frame = history_frame(table)
    assert len(frame) == len(table) == 60
    assert frame["market"].tolist() == [str(table.markets[code]) for code in table.codes()]
    assert frame["time"].tolist() == [pd.Timestamp(to_datetime(time)) for time in table.times.tolist()]
    assert np.array_equal(frame["usd_per_hour"].to_numpy(), table.prices / NANOS_PER_DOLLAR)
    last = frame.iloc[-1]
    assert (last["cloud"], last["region"], last["zone"], last["os"]) == ("aws", "us-east-1", "us-east-1a", "linux")
    assert last["instance_type"] == table.markets[-1].instance_type


def test_an_empty_frame_has_the_same_types() -> None:
    table = PriceTable.of(random_batch(seed=1, markets=1, rows=5))
    assert history_frame(NO_ROWS).dtypes.equals(history_frame(table).dtypes)
    statistics = [describe(history, Catalog()) for history in table]
    assert prices_frame([], Catalog()).dtypes.equals(prices_frame(statistics, Catalog()).dtypes)


def test_prices_have_a_row_for_each_market_with_its_machine() -> None:
    catalog = Catalog(
        types=(InstanceType("aws", "c4.xlarge", 4, 7.5), InstanceType("azure", "Standard_NC6s_v3", 6, 112, "V100", 1)),
        prices=(OnDemandPrice("aws", "us-east-1", "c4.xlarge", "linux", START, 200_000_000, "list"),),
    )
    histories = (
        series((0, 100_000_000), (3600, 300_000_000), (7200, 50_000_000)),
        series((0, 900_000_000), (60, 800_000_000), of=REGIONAL),
    )
    frame = prices_frame((describe(history, catalog) for history in histories), catalog).set_index("market")
    cheap, dear = frame.loc[str(market())], frame.loc[str(REGIONAL)]
    assert (cheap["price_now"], cheap["mean"], cheap["lowest"], cheap["highest"]) == (0.05, 0.2, 0.05, 0.3)
    assert (cheap["on_demand"], cheap["discount"], cheap["hours_above_on_demand"]) == (0.2, 0.0, 1.0)
    assert (cheap["vcpus"], cheap["memory_gib"], cheap["gpus"], cheap["events"]) == (4, 7.5, 0, 3)
    assert cheap["first"] == cheap["on_demand_as_of"] == pd.Timestamp(to_datetime(START))
    assert cheap["last"] == pd.Timestamp(to_datetime(START + 7200 * SECOND))
    assert (dear["gpu"], dear["gpus"], dear["zone"], dear["os"]) == ("V100", 1, "-", "windows")
    assert dear[["on_demand", "on_demand_as_of", "discount", "hours_above_on_demand"]].isna().all()


def test_a_machine_that_the_catalog_does_not_describe_is_a_missing_value() -> None:
    frame = prices_frame([describe(series((0, 1), (60, 2)), Catalog())], Catalog())
    assert frame[["vcpus", "memory_gib", "gpu", "gpus"]].isna().all(axis=None)


def test_pandas_is_imported_on_first_use_only() -> None:
    script = "import sys, pricing_data.export; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
