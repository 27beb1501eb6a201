"""Reports on cost and usage of AWS."""

from __future__ import annotations

import gzip
from pathlib import Path

from spotctl.show.costs.bills.read import read_bill
from spotctl.show.costs.bills.reconcile import reconcile
from tests.spotctl.show.costs.bills.exports import ROWS, WHOLE, as_csv


def test_cur_2_as_parquet_and_compressed_csv(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def renamed(name: str) -> str:
        return (
            "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
            .replace("/_", "_")
            .replace("/", "_")
        )

    rows = [
        {renamed(key): text for key, text in line.items() if "Tags" not in key}
        for line in WHOLE["aws"]
    ]
    tags = [[("user_spotctl_run", "job-1")]] * len(rows)
    table = pa.Table.from_pylist(rows).append_column(
        "resource_tags", pa.array(tags, pa.map_(pa.string(), pa.string()))
    )
    pq.write_table(table, tmp_path / "cur.snappy.parquet")
    bill = read_bill(tmp_path / "cur.snappy.parquet")
    assert bill.has_tags
    assert {line.run for line in bill.lines} == {"job-1"}
    assert reconcile(ROWS["aws"], bill, 0.0).agrees
    (tmp_path / "cur.csv.gz").write_bytes(gzip.compress(as_csv(WHOLE["aws"]).encode()))
    assert reconcile(ROWS["aws"], read_bill(tmp_path / "cur.csv.gz"), 0.0).agrees
