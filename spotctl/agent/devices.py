"""The graphics cards of this machine."""

from __future__ import annotations

import re
from pathlib import Path

PROCESSES_VARIABLE = "SPOTCTL_NPROC_PER_NODE"
"""Processes of a distributed program on a machine: one for each graphics card, or one."""

_NVIDIA, _AMD = re.compile(r"nvidia\d+"), re.compile(r"renderD\d+")


def cards(devices: Path = Path("/dev")) -> int:
    """How many there are: NVIDIA's driver has a device for each; so has AMD's, if it can compute."""
    nvidia = sum(1 for one in devices.glob("nvidia*") if _NVIDIA.fullmatch(one.name))
    amd = sum(1 for one in devices.glob("dri/*") if _AMD.fullmatch(one.name)) if (devices / "kfd").exists() else 0
    return nvidia or amd
