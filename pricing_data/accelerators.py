"""Accelerators by the names of the catalog: their memory, and the family of drivers that each needs. Pure."""

from __future__ import annotations

GPU_MEMORY_GIB = {
    "A10": 24, "A100": 40, "A100-80GB": 80, "A10G": 24, "B200": 180, "GB200": 186, "H100": 80, "H200": 141, "K520": 4,
    "K80": 12, "L4": 24, "L40S": 48, "M60": 8, "MI300X": 192, "P100": 16, "P4": 8, "P40": 24, "T4": 16, "V100": 16,
    "V100-32GB": 32,
}  # fmt: skip
"""Memory of one GPU."""

NVIDIA, NVIDIA_OLD, NVIDIA_VGPU, AMD, NEURON = "nvidia", "nvidia-old", "nvidia-vgpu", "amd", "neuron"

# NVIDIA's open kernel modules support only the Turing generation and later ones.
_OLD = frozenset({"K520", "K80", "M2050", "M60", "P4", "P40", "P100", "V100", "V100-32GB"})
_FIRST_WORDS = {
    NVIDIA: ("A10", "A100", "A10G", "B200", "B300", "GB200", "GB300", "H100", "H200", "L4", "L40S", "RTX", "T4", "T4g"),
    AMD: ("MI25", "MI300X", "Radeon", "V620", "V710"),
    NEURON: ("Inferentia", "Inferentia2", "Trainium", "Trainium2"),
}
_FAMILIES = {word: family for family, words in _FIRST_WORDS.items() for word in words}


def driver_of(accelerator: str | None) -> str | None:
    """The family of an accelerator's drivers; None if it is unknown, or if there is no accelerator.

    >>> driver_of("V100"), driver_of("A100-80GB"), driver_of("L4 (1/8)"), driver_of("RTX-PRO-6000"), driver_of("Gaudi")
    ('nvidia-old', 'nvidia', 'nvidia', 'nvidia', None)
    """
    if accelerator is None:
        return None
    if accelerator in _OLD:
        return NVIDIA_OLD
    return _FAMILIES.get(accelerator.partition(" ")[0].partition("-")[0])
