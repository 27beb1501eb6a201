"""How Vast.ai bills interruptible instances, and takes them back.

https://docs.vast.ai/documentation/instances/pricing (read on 2026-11-28): instances are charged by
the second. "Rental Types" there: bids are direct, you pay what you bid. A renter on demand takes
the machine from any bid.
"""

from __future__ import annotations

from bidbrain.billing.rules import CloudTerms, PerSecond

TERMS = CloudTerms(PerSecond("vast", minimum=0), pays_bid=True)
