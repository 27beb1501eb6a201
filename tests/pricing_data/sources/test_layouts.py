"""Files that are read in columns."""

from __future__ import annotations

import csv
import io

from hypothesis import given, strategies as st

from pricing_data.sources import files
from pricing_data.sources.layouts import header_of, rows_of_facts
from pricing_data.store.table import PriceTable
from pricing_data.units import format_usd
from tests.pricing_data.store.test_table import contents

cell_times = st.sampled_from(
    [
        "2016-02-25T00:35:34Z",
        "2016-02-25T00:35:34.5Z",
        "2016-02-30T00:00:00Z",
        "soon",
        "2016-02-25 00:35:34",
    ]
)


cell_prices = st.integers(1, 10**12).map(format_usd) | st.sampled_from(
    ["0", "-1", "", "x", "1e-3", "99999", "0.12345678949"]
)


cell_clouds = st.sampled_from(["aws", "gcp", "azure", "ibm", ""])


@given(
    st.lists(
        st.tuples(
            cell_times,
            cell_clouds,
            st.sampled_from(["us-east-1", "us_east", "us-central1"]),
            cell_prices,
        ),
        max_size=80,
    )
)
def test_reading_in_columns_equals_reading_row_by_row(
    rows: list[tuple[str, str, str, str]],
) -> None:
    """The fast and the slow parser find the same prices and the same bad rows."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("timestamp", "cloud", "region", "instance_type", "spot_price"))
    writer.writerows((time, cloud, region, "t.small", price) for time, cloud, region, price in rows)
    head, _, body = text.getvalue().partition("\n")
    header = header_of(head.split(","))
    fast = files._batch(body.encode(), header, 2, 0)
    facts, bad, count = files._row_by_row(body.encode().splitlines(), header, 2)
    assert contents(PriceTable.of(fast.fetched.prices)) == contents(
        PriceTable.of(rows_of_facts(facts).prices)
    )
    assert (fast.bad, fast.rows) == (bad, count)
