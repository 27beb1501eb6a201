from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from pricing_data.errors import BadInput
from pricing_data.export import export
from pricing_data.fetched_rows import PriceBatch, PriceEvent
from pricing_data.market import Market
from pricing_data.store.table import PriceTable
from pricing_data.units import parse_time
from tests.pricing_data.histories import START
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
rows = st.lists(
    st.builds(PriceEvent, named, st.integers(START, START + 10**12), st.integers(1, 10**13)),
    min_size=1,
)


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
        Market.parse("aws/us-east-1/us-east-1a/c4.xlarge"),
        parse_time("2016-02-25T00:35:34Z"),
        16_200_000,
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
