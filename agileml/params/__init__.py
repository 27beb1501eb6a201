"""The model's parameters: how they are partitioned, updated, viewed and committed.

This module imports nothing: code that only reads job files needs the formats in which parameters
and updates travel.
"""

FULL = "fp32"
"""Nothing is rounded: every number travels in the type of its parameter."""

BF16, FP16 = "bf16", "fp16"
WIRES = (FULL, BF16, FP16)
