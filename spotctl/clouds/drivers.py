"""Families of drivers by the accelerator that needs them. Pure."""

from __future__ import annotations

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
