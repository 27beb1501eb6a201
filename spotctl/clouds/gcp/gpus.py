"""Names of Google Cloud's GPUs: the API's, and those that other clouds use. Pure."""

from __future__ import annotations

import re

API_NAMES = {
    "A100": "nvidia-tesla-a100", "A100-80GB": "nvidia-a100-80gb", "H100": "nvidia-h100-80gb",
    "H200": "nvidia-h200-141gb", "L4": "nvidia-l4",
}  # fmt: skip
"""The API's names of the GPUs in the shipped catalog."""
_CARD = re.compile(r"nvidia-(?:tesla-)?(.+?)(?:-mega)?(?:-\d+gb)?")
_ATTACHED = re.compile(r"(?P<type>[a-z0-9-]+)\+(?P<count>\d+)-(?P<card>[a-z0-9-]+)")
_NAMES = {gpu: name for name, gpu in API_NAMES.items()}


def gpu_name(gpu: str, share: str | None = None) -> str:
    """An accelerator's name as other clouds write it: without maker, and without a memory size that all of them have.

    >>> gpu_name("nvidia-a100-80gb"), gpu_name("nvidia-h100-mega-80gb"), gpu_name("nvidia-rtx-pro-6000", "1/8")
    ('A100-80GB', 'H100', 'RTX-PRO-6000 (1/8)')
    """
    nvidia = _CARD.fullmatch(gpu)
    name = _NAMES.get(gpu) or (nvidia[1].upper() if nvidia else gpu)
    return f"{name} ({share})" if share else name


def split_type(instance_type: str) -> tuple[str, tuple[str, int] | None]:
    """The machine type and its attached GPUs.

    N1 machines get GPUs attached (`n1-standard-8+2-nvidia-tesla-t4`); types such as a2, a3 and g2 have their own.
    """
    match = _ATTACHED.fullmatch(instance_type)
    return (match["type"], (match["card"], int(match["count"]))) if match else (instance_type, None)
