"""Uses the library from a script: the cheapest calm markets with at least 8 vCPUs, by price per
vCPU.

A market was calm if its price did not exceed on-demand for a week.
"""

from pathlib import Path

from pricing_data.library import Library, Selection
from pricing_data.stats import describe
from pricing_data.store import PriceStore
from pricing_data.units import DAY, to_usd

library = Library(
    PriceStore(Path("no-such-folder"))
)  # an empty store falls back to the synthetic sample
table = library.table(library.select(Selection("local", vcpus=(8, 1 << 30))))
weeks = [
    describe(series.window(series.last - 7 * DAY, series.last), library.catalog) for series in table
]

calm = []
for week in weeks:
    machine = library.catalog.instance_type(week.market.cloud, week.market.instance_type)
    if week.hours_above_on_demand == 0:
        calm.append((to_usd(week.mean) / machine.vcpus, week))

for usd, week in sorted(calm, key=lambda pair: pair[0])[:5]:
    about = f"{week.market} (synthetic), {week.discount:.0%} below on-demand"
    print(f"${usd:.5f} per vCPU-hour  {about}")
