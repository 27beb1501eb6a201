"""Cost per work of a footprint, with its terms (Harlap, Eq. 4.1-4.4)."""

from bidbrain.cost.footprint import (
    Application,
    CostPerWork,
    CostShare,
    FootprintAllocation,
    ImpossibleAllocation,
    chance_of_eviction,
    evaluate,
)

__all__ = [
    "Application",
    "CostPerWork",
    "CostShare",
    "FootprintAllocation",
    "ImpossibleAllocation",
    "chance_of_eviction",
    "evaluate",
]
