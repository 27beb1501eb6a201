"""Bills in every form that a provider exports, and files that are none."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from pricing_data.units import parse_time
from spotctl.show.costs.bills.read import read_bill
from tests.spotctl.show.costs.bills.exports import as_csv
from tests.spotctl.show.costs.bills.test_focus_bills import CLOUDS


def test_compressed_and_parquet_exports(tmp_path: Path) -> None:
    """With times, decimals and maps as columns, as AWS writes them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = as_csv([CLOUDS["aws"]])
    (tmp_path / "focus.csv.gz").write_bytes(gzip.compress(text.encode()))
    expected = read_bill(tmp_path / "focus.csv.gz")
    typed: dict[str, Callable[[str], pa.Array]] = {
        **{
            name: lambda value: pa.array([parse_time(value)], pa.timestamp("us"))
            for name in CLOUDS["aws"]
            if "Period" in name
        },
        **{
            name: lambda value: pa.array([Decimal(value)])
            for name in ("BilledCost", "EffectiveCost")
        },
        "Tags": lambda value: pa.array(
            [list(json.loads(value).items())], pa.map_(pa.string(), pa.string())
        ),
    }
    columns = {
        name: typed[name](value) if name in typed else pa.array([value])
        for name, value in CLOUDS["aws"].items()
    }
    pq.write_table(pa.table(columns), tmp_path / "focus.snappy.parquet")
    bill = read_bill(tmp_path / "focus.snappy.parquet")
    assert (bill.begin, bill.end) == (expected.begin, expected.end)
    (line,), (same,) = bill.lines, expected.lines
    assert (line.amount, line.begin, line.end, line.run, line.what) == (
        same.amount,
        same.begin,
        same.end,
        same.run,
        same.what,
    )
