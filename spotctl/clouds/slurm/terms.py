"""How a Slurm cluster takes nodes back: when the owners of a partition of a higher tier want them,
whatever anyone would pay. The price is the user's own (`usd_per_hour`), by the second.
"""

from __future__ import annotations

from bidbrain.billing.rules import CloudTerms, PerSecond

TERMS = CloudTerms(PerSecond("slurm", minimum=0))
