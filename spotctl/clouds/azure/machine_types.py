"""Azure's machine sizes as their names describe them, for a computer without an account. Pure.

A name is a tier, a family, vCPUs, letters of features and a version: `Standard_D16plds_v5`. Sources:
https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions, `generation-2` and `sizes/general-purpose` of
the same documentation. `lists/retirements.csv` has the sizes that Azure has announced to retire.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib.resources import files

from pricing_data.accelerators import GPU_MEMORY_GIB, NVIDIA, NVIDIA_VGPU, driver_of
from pricing_data.catalog import ARM, X86, InstanceType, MachineTraits
from pricing_data.units import parse_time
from spotctl.clouds.azure.size_names import accelerator_of

IMAGE_BOOTS = "V2"
"""The generation of the images that spotctl chooses."""
_PARTS = re.compile(
    r"(?:basic|standard)_(?P<family>[a-z]+)(?P<vcpus>\d+)(?:-\d+)?(?P<features>[a-z]*)(?P<rest>(?:_[a-z0-9]+)*?)"
    r"(?:_v(?P<version>\d+))?(?:_promo)?"
)
_WITHOUT_SPOT = re.compile(r"basic_.*|standard_a\d+|standard_b\d+[a-z]+|.*_promo")
_BASELINES = {"1ls": 0.05, "1s": 0.1, "1ms": 0.2, "2s": 0.2, "2ms": 0.3, "4ms": 0.225}
_LARGE_BASELINE = 0.17
"""The share of the first generation of B sizes from 8 vCPUs on."""


def shipped() -> tuple[InstanceType, ...]:
    """See `MachineTypesPart`; the package lists no sizes."""
    return ()


def traits_of(name: str) -> MachineTraits:
    """See `MachineTypesPart`. No traits for a name that does not follow Azure's scheme."""
    match = _PARTS.fullmatch(name.lower())
    if match is None:
        return MachineTraits()
    accelerator = accelerator_of(name) if match["family"] in ("nc", "nd", "ng", "nv", "ncc") else None
    is_arm = "p" in match["features"] or bool(re.search(r"_gb\d+", match["rest"]))
    return MachineTraits(
        ARM if is_arm else X86,
        _baseline(match),
        "hyper-v",
        "V2" if is_arm else _boots(match),
        False if _WITHOUT_SPOT.fullmatch(name.lower()) else None,
        GPU_MEMORY_GIB.get(accelerator or ""),
        driver_of_size(accelerator),
        retires=_retirement(name.lower()),
    )


def driver_of_size(accelerator: str | None) -> str | None:
    """The family of drivers of a size's accelerator: Azure sells A10s only as virtual GPUs."""
    return NVIDIA_VGPU if accelerator in ("A10", "A10-slice") else driver_of(accelerator)


def obstacle(machine: InstanceType) -> str:
    """See `MachineTypesPart`."""
    traits = machine.traits
    if IMAGE_BOOTS not in (traits.boots or IMAGE_BOOTS):
        return "it boots only images of generation 1, and spotctl's are of generation 2"
    if not machine.accelerators:
        return ""
    if traits.architecture == ARM:
        return "spotctl knows no image for Arm machines with GPUs"
    if traits.driver in (None, NVIDIA) or machine.accelerator == "MI300X":
        return ""
    return f"spotctl knows no image with drivers for its {machine.accelerator}"


def _baseline(match: re.Match[str]) -> float:
    if match["family"] != "b":
        return 1.0
    features = match["features"]
    if match["version"] is None:
        return _BASELINES.get(match["vcpus"] + features, _LARGE_BASELINE)
    return 0.2 if "t" in features else 0.3 if "l" in features else 0.4


def _boots(match: re.Match[str]) -> str:
    """Sizes up to version 3 boot generation 2 only with premium storage (`s`); the newest boot nothing else."""
    version = int(match["version"] or 1)
    if version >= 6 or match["family"] in ("dc", "ec", "ncc") or re.search(r"_(a100|h100|h200|mi300x)", match["rest"]):
        return "V2"
    has_premium_storage = "s" in match["features"] or match["family"].endswith("s")
    is_first_ds = match["family"] in ("ds", "gs") and match["version"] is None
    return "V1 V2" if (has_premium_storage and not is_first_ds) or version >= 4 else "V1"


@cache
def _retirements() -> tuple[tuple[re.Pattern[str], int], ...]:
    lines = (files(__package__) / "lists/retirements.csv").read_text(encoding="utf-8").splitlines()
    return tuple((re.compile(row["sizes"]), parse_time(row["retires"])) for row in csv.DictReader(lines))


def _retirement(name: str) -> int | None:
    return next((retires for sizes, retires in _retirements() if sizes.fullmatch(name)), None)
