"""The embedded price store: immutable Parquet segments, and a manifest that is replaced in one
step.
"""

from pricing_data.store.store import Committed, PriceStore

__all__ = ["Committed", "PriceStore"]
