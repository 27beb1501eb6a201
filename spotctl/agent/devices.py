"""The GPUs of this machine."""

import re
from collections.abc import Sequence
from pathlib import Path

PROCESSES_VARIABLE = "SPOTCTL_NPROC_PER_NODE"
"""Processes of a distributed program on a machine: one for each GPU, or one."""

_CDI = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""The folders in which NVIDIA's toolkit describes a container's needs."""

_NVIDIA, _AMD = re.compile(r"nvidia\d+"), re.compile(r"renderD\d+")


def gpus(devices: Path = Path("/dev")) -> int:
    """How many there are: NVIDIA's driver has a device for each GPU, and AMD's for each GPU that can compute."""
    nvidia = sum(1 for path in devices.glob("nvidia*") if _NVIDIA.fullmatch(path.name))
    amd = sum(1 for path in devices.glob("dri/*") if _AMD.fullmatch(path.name)) if (devices / "kfd").exists() else 0
    return nvidia or amd


def container_options(devices: Path = Path("/dev"), described: Sequence[Path] = _CDI) -> list[str]:
    """podman's options that give a container the GPUs: as NVIDIA's toolkit describes them, or their devices alone."""
    if not gpus(devices):
        return []
    if (devices / "nvidiactl").exists() and any(list(folder.glob("nvidia*")) for folder in described):
        return ["--device=nvidia.com/gpu=all"]
    paths = [*devices.glob("nvidia*"), *devices.glob("kfd"), *devices.glob("dri/renderD*")]
    return ["--group-add=keep-groups", *(f"--device={path}" for path in sorted(paths) if not path.is_dir())]
