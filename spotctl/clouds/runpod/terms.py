"""How RunPod bills pods, and takes those with a bid back.

docs.runpod.io, "Pricing" (read on 2026-12-01): by the second. A pod that others outbid is stopped
after a signal and five seconds: the same page until May 2026.
"""

from __future__ import annotations

from bidbrain.billing.rules import CloudTerms, PerSecond

TERMS = CloudTerms(PerSecond("runpod", minimum=0), pays_bid=True)
