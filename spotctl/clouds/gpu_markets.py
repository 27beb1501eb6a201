"""Types of machines in markets of GPUs, where hosts differ and the API names models, not machines.

Names of models are the API's, with _ for a space. A type is a number of GPUs of one model, and
promises what each of its hosts has: 4 vCPUs and 8 GiB of memory for each GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pricing_data.catalog import GPU_MEMORY_GIB, NVIDIA, X86, InstanceType, MachineTraits

VCPUS_PER_GPU, GIB_PER_GPU = 4, 8
COUNTS = (1, 2, 4, 8)
"""The numbers of GPUs of the markets. Others exist, with few hosts."""

CUDA = 12.8
"""The version for an image whose name does not say one: that of PyTorch's wheels."""

_CUDA = re.compile(r"\bcu(?:da)?[:_-]?(\d{2})\.?(\d)")
"""As in `nvidia/cuda:12.8.1-base`, `pytorch:2.9.1-cuda12.8-cudnn9` and `2.9.1-cu128`."""

_FORMS = re.compile(r"SXM\d?|PCIE", re.IGNORECASE)


def cuda_of(image: str) -> float:
    """The version of CUDA that a driver must have for an image.

    >>> cuda_of("pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime"), cuda_of("ubuntu:24.04")
    (13.0, 12.8)
    """
    named = _CUDA.search(image)
    return float(".".join(named.groups())) if named else CUDA


def type_name(gpu: str, count: int, gib: float) -> str:
    """The type of a machine; the memory tells apart models of one name.

    >>> type_name("RTX 4090", 1, 24), type_name("A100 SXM4", 8, 80)
    ('1xRTX_4090', '8xA100_SXM4+80GB')
    """
    base = accelerator_of(gpu)
    is_larger = f"{base}-{gib:.0f}GB" in GPU_MEMORY_GIB
    return f"{count}x{gpu.replace(' ', '_')}{f'+{gib:.0f}GB' if is_larger else ''}"


def accelerator_of(model: str) -> str:
    """A model as other clouds write it, whatever its form.

    >>> [accelerator_of(model) for model in ("RTX 4090", "H100 SXM", "Tesla V100", "RTX_PRO_6000", "A100_SXM4+80GB")]
    ['RTX4090', 'H100', 'V100', 'RTX-PRO-6000', 'A100-80GB']
    """
    words = model.replace("_", " ").replace("+", " ").removeprefix("Tesla ").split()
    name = "-".join(word for word in words if not _FORMS.fullmatch(word))
    return re.sub(r"^(RTX|GTX)-(?=A?\d)", r"\1", name)


def types_of(cloud: str, memory: Iterable[tuple[str, float]]) -> tuple[InstanceType, ...]:
    """Types by their names and the memory of a GPU, with the hardware that each promises."""
    least: dict[str, float] = {}
    for name, gib in memory:
        least[name] = min(gib, least.get(name, gib))

    types = []
    for name, gib in sorted(least.items()):
        number, _, model = name.partition("x")
        count = int(number)
        traits = MachineTraits(X86, 1.0, spot=True, accelerator_gib=round(gib), driver=NVIDIA)
        vcpus, memory_gib = VCPUS_PER_GPU * count, float(GIB_PER_GPU * count)
        gpu = accelerator_of(model)
        types.append(InstanceType(cloud, name, vcpus, memory_gib, gpu, count, traits=traits))

    return tuple(types)
