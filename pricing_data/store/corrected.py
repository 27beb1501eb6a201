"""Stored prices as they were corrected."""

from dataclasses import replace

import numpy as np

from pricing_data.corrections import CorrectedPrices
from pricing_data.store.table import PriceTable


def corrected(table: PriceTable, in_force: CorrectedPrices) -> PriceTable:
    """The rows of a table with their corrections: with other prices, and without what was withdrawn."""
    affected = [i for i, market in enumerate(table.markets) if str(market) in in_force] if in_force else []
    if not affected:
        return table
    prices, kept = table.prices.copy(), np.ones(len(table), dtype=np.bool_)
    for i in affected:
        start, end = int(table.starts[i]), int(table.starts[i + 1])
        for time, price in in_force[str(table.markets[i])].items():
            at = start + int(np.searchsorted(table.times[start:end], time))
            if at == end or table.times[at] != time:
                continue
            if price is None:
                kept[at] = False
            else:
                prices[at] = price
    rest = replace(table, prices=prices)
    return rest if kept.all() else replace(rest.only(kept), watched=table.watched)
