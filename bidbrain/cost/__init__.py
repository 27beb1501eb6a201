"""Cost per work (Harlap, Eq. 4.1-4.4): of one footprint with its terms, and with each of many candidates.

`footprint` computes one footprint and explains it, `candidates` does the same over arrays. A test compares the two.
"""

from bidbrain.cost.candidates import Candidates, Outcomes, with_each
from bidbrain.cost.footprint import (
    Application,
    CostPerWork,
    CostShare,
    Dependence,
    FootprintAllocation,
    ImpossibleAllocation,
    chance_of_eviction,
    evaluate,
)

__all__ = [
    "Application",
    "Candidates",
    "CostPerWork",
    "CostShare",
    "Dependence",
    "FootprintAllocation",
    "ImpossibleAllocation",
    "Outcomes",
    "chance_of_eviction",
    "evaluate",
    "with_each",
]
