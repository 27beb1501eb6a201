"""Uses the library from a script: the cheapest calm markets with at least 8 vCPUs, by price per vCPU.

A market was calm if its price did not exceed on-demand for a week.
"""

from pathlib import Path

from pricing_data.library import Library, Selection
from pricing_data.stats import describe
from pricing_data.store import PriceStore
from pricing_data.units import DAY, to_usd

library = Library(PriceStore(Path("no-such-folder")))  # an empty store falls back to the synthetic sample
choices = []
for series in library.table(library.select(Selection("local", vcpus=(8, 1 << 30)))):
    week = describe(series.window(series.last - 7 * DAY, series.last), library.catalog)
    if week.hours_above_on_demand == 0:
        machine = library.catalog.instance_type(series.market.cloud, series.market.instance_type)
        choices.append((week.mean / machine.vcpus, week))

for mean_per_vcpu, week in sorted(choices, key=lambda choice: choice[0])[:5]:
    print(f"${to_usd(mean_per_vcpu):.5f} per vCPU-hour  {week.market} (synthetic), {week.discount:.0%} below on-demand")
