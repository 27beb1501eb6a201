"""How often a bid this far above the price would have been exceeded within an hour:
`CrossingHistory`.
"""

from pathlib import Path

import numpy as np

from bidbrain.eviction.crossing import CrossingHistory
from pricing_data.library import Library, Selection
from pricing_data.store import PriceStore
from pricing_data.units import HOUR, NANOS_PER_DOLLAR

library = Library(PriceStore(Path("no-such-folder")))
market = library.select(Selection("local", types=("c4.xlarge",)))[0]
history = CrossingHistory(library.series(market), window=HOUR)
deltas = np.array([0.0001, 0.01, 0.4]) * NANOS_PER_DOLLAR
betas = history.betas(deltas.astype(np.int64))
assert 1 >= betas[0] >= betas[1] >= betas[2] >= 0
print(f"probability of an eviction within an hour: {betas.round(3).tolist()}")
