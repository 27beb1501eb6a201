"""Uses the library from a script: the cheapest calm markets with at least 8 vCPUs, by price per vCPU.

A market was calm if its price did not exceed on-demand for a week.
"""

from pathlib import Path

from pricing_data.export import prices_frame
from pricing_data.library import Library, Selection
from pricing_data.stats import describe
from pricing_data.store import PriceStore
from pricing_data.units import DAY

library = Library(PriceStore(Path("no-such-folder")))  # an empty store falls back to the synthetic sample
table = library.table(library.select(Selection("local", vcpus=(8, 1 << 30))))
weeks = [describe(series.window(series.last - 7 * DAY, series.last), library.catalog) for series in table]
prices = prices_frame(weeks, library.catalog)
calm = prices[prices["hours_above_on_demand"] == 0]

for market in calm.assign(per_vcpu=calm["mean"] / calm["vcpus"]).nsmallest(5, "per_vcpu").itertuples():
    print(f"${market.per_vcpu:.5f} per vCPU-hour  {market.market} (synthetic), {market.discount:.0%} below on-demand")
