"""How Azure bills spot machines and takes them back.

Assumed: Microsoft states that 6 minutes and 45 seconds are billed as 6 minutes, and documents no
refund for an eviction and no fixed price, so a machine costs its market's current price. Published
figures hold for all operating systems.
"""

from __future__ import annotations

from bidbrain.billing.rules import CloudTerms, FullMinutes

TERMS = CloudTerms(FullMinutes("azure"), any_system=True)
