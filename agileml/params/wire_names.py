"""Formats in which parameters and updates can travel; without numpy, for code that only reads files."""

FULL = "fp32"
"""Nothing is rounded: every number travels in the type of its parameter."""

BF16, FP16 = "bf16", "fp16"
WIRES = (FULL, BF16, FP16)
