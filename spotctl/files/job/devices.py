"""Accelerators as data sheets describe them: enough to carry a profile from one to another."""

from dataclasses import dataclass

CPU = "cpu"
"""A core of a machine without accelerators."""


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """Peak fp32 rate in TFLOP/s, and memory in GiB."""

    tflops: float
    memory_gib: float


ACCELERATOR_SPEEDS = {
    "M2050": DeviceSpeed(1.03, 3),
    "K520": DeviceSpeed(2.4, 4),
    "K80": DeviceSpeed(4.1, 12),
    "M60": DeviceSpeed(4.8, 8),
    "P4": DeviceSpeed(5.5, 8),
    "T4": DeviceSpeed(8.1, 16),
    "P100": DeviceSpeed(9.3, 16),
    "V100": DeviceSpeed(15.7, 16),
    "V100-32GB": DeviceSpeed(15.7, 32),
    "A100": DeviceSpeed(19.5, 40),
    "A100-80GB": DeviceSpeed(19.5, 80),
    "L4": DeviceSpeed(30.3, 24),
    "A10G": DeviceSpeed(31.2, 24),
    "H100": DeviceSpeed(67.0, 80),
    "L40S": DeviceSpeed(91.6, 48),
}
"""By the names of the catalog. A K80 and an M60 count as two, as clouds sell them."""
