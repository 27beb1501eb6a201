"""Figures printed in chapter 6 of the dissertation, for comparison with results on other prices."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bidbrain.gavel.effective_price import EgressTariff


@dataclass(frozen=True, slots=True)
class Speedup:
    """A model's throughput relative to the K80's, plain and per dollar on demand (Google's list prices)."""

    throughput: float
    per_dollar: float


SPEEDUPS: Mapping[str, Mapping[str, Speedup]] = MappingProxyType(
    {
        "Transformer": {"p100": Speedup(3.3, 1.0), "v100": Speedup(3.3, 0.8)},
        "A3C": {"p100": Speedup(1.2, 0.4), "v100": Speedup(2.2, 0.4)},
        "CycleGAN": {"p100": Speedup(4.5, 1.4), "v100": Speedup(9.3, 1.7)},
        "ResNet-18": {"p100": Speedup(4.0, 1.2), "v100": Speedup(6.8, 1.2)},
        "ResNet-50": {"p100": Speedup(3.7, 1.1), "v100": Speedup(9.6, 1.8)},
    }
)
"""Table 6.1. The underlying batch sizes are not printed."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Sizes in GB, and the cost of one transfer to the internet as a share of 160 V100-hours."""

    dataset_gb: float
    model_gb: float
    dataset_share: float
    model_share: float


TRANSFERS: Mapping[str, Transfer] = MappingProxyType(
    {
        "ResNet-50": Transfer(150, 0.098, 0.0913, 0.00006),
        "BERT-Base": Transfer(17, 0.408, 0.0098, 0.00025),
    }
)
"""Table 6.2, with Amazon's prices."""
TRANSFER_HOURS = 160.0
MODEL_TRANSFERS = 10_000
"""A single model transfer is so small that the paper divides the cost of this many."""

SPOT_DISCOUNTS: Mapping[tuple[str, str, str], float] = MappingProxyType(
    {
        ("aws", "us-east-1", "K80"): 2.7,
        ("aws", "us-east-1", "V100"): 3.3,
        ("azure", "eastus", "K80"): 7.3,
        ("azure", "eastus", "P100"): 8.0,
        ("azure", "eastus", "V100"): 5.1,
    }
)
"""Table 6.3: on-demand price over the lowest spot price of a machine with one accelerator."""

LENGTH_OF_FIGURE_6_5 = 4.0
BEST_REDUCTION = 3.5
BEST_DYNAMIC_REDUCTION = 1.4
MOST_SWITCHES = 3
"""Figure 6.5 (jobs of 4 V100-days: cheapest 1xV100 over dynamic) and Figure 6.6 (multi-cloud over dynamic)."""

_UNBOUNDED = float("inf")
LIST_TARIFFS_2020: Mapping[str, EgressTariff] = MappingProxyType(
    {
        "aws": EgressTariff(
            ((1, 0.0), (10_000, 0.09), (50_000, 0.085), (150_000, 0.07), (_UNBOUNDED, 0.05)), 0.02, 0.01
        ),
        "azure": EgressTariff(
            ((5, 0.0), (10_000, 0.087), (50_000, 0.083), (150_000, 0.07), (_UNBOUNDED, 0.05)), 0.02, 0.0
        ),
        "gcp": EgressTariff(((1_000, 0.12), (10_000, 0.11), (_UNBOUNDED, 0.08)), 0.01, 0.01),
    }
)
"""List prices of early 2020 for egress from a North American region. With Amazon's free first GB and $0.918 for a
V100-hour they give Table 6.2 of the dissertation to the last digit. Ingress is free on every cloud."""
