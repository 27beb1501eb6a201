"""Azure's machine sizes as their names describe them, for a computer without an account. Pure.

A name is a tier, a family, vCPUs, letters of features and a version: `Standard_D16plds_v5`.
Sources: https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions, `generation-2`
and `sizes/general-purpose` of the same documentation. `lists/retirements.csv` has the sizes that
Azure has announced to retire.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib.resources import files

from pricing_data.catalog import (
    ARM,
    GPU_MEMORY_GIB,
    NVIDIA,
    NVIDIA_VGPU,
    X86,
    InstanceType,
    MachineTraits,
    driver_of,
)
from pricing_data.units import parse_time

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


def traits_of(name: str) -> MachineTraits:
    """See `MachineTypesPart`. No traits for a name that does not follow Azure's scheme."""
    match = _PARTS.fullmatch(name.lower())
    if match is None:
        return MachineTraits()

    has_gpus = match["family"] in ("nc", "nd", "ng", "nv", "ncc")
    accelerator = accelerator_of(name) if has_gpus else None
    is_arm = "p" in match["features"] or bool(re.search(r"_gb\d+", match["rest"]))
    ends = [end for sizes, end in _retirements() if sizes.fullmatch(name.lower())]
    # Azure sells A10s only as virtual GPUs.
    is_virtual = accelerator in ("A10", "A10-slice")
    driver = NVIDIA_VGPU if is_virtual else driver_of(accelerator)
    gpu_gib = GPU_MEMORY_GIB.get(accelerator or "")
    architecture = ARM if is_arm else X86
    # Sizes up to version 3 boot generation 2 only with premium storage (`s`); the newest boot
    # nothing else.
    version = int(match["version"] or 1)
    is_newest = version >= 6 or match["family"] in ("dc", "ec", "ncc")
    is_first_ds = match["family"] in ("ds", "gs") and match["version"] is None
    has_premium_storage = "s" in match["features"] or match["family"].endswith("s")
    if is_arm or is_newest or re.search(r"_(a100|h100|h200|mi300x)", match["rest"]):
        boots = "V2"
    elif version >= 4 or (has_premium_storage and not is_first_ds):
        boots = "V1 V2"
    else:
        boots = "V1"

    spot = False if _WITHOUT_SPOT.fullmatch(name.lower()) else None
    retires, baseline = ends[0] if ends else None, _baseline(match)
    return MachineTraits(
        architecture, baseline, "hyper-v", boots, spot, gpu_gib, driver, retires=retires
    )


FABRIC = "InfiniBand", re.compile(r"Standard_(ND\d+[a-z]*r\w*|H[BCX]\w+|H16m?r|NC\d+rs?\w*)")
"""See `MachineTypesPart`: sizes with an r after their vCPUs, and those for HPC:
https://learn.microsoft.com/azure/virtual-machines/setup-infiniband"""


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


@cache
def _retirements() -> tuple[tuple[re.Pattern[str], int], ...]:
    lines = (files(__package__) / "lists/retirements.csv").read_text(encoding="utf-8").splitlines()
    return tuple(
        (re.compile(row["sizes"]), parse_time(row["retires"])) for row in csv.DictReader(lines)
    )


UNKNOWN_ACCELERATOR = "gpu"

# Parts of a size's name in the place of an accelerator's that name none.
_DESCRIPTORS = frozenset({"cc", "ndr", "promo", "xl"})
_LOWER_CASE = frozenset({"cc", "xl"})
# A v with three digits is an accelerator (V620), not a version.
_VERSION = re.compile(r"v\d{1,2}|\d+")

# Older sizes, whose names do not contain the accelerator.
_UNNAMED_ACCELERATORS = (
    (r"nc\d+r?", "K80"),
    (r"nc\d+r?s_v2", "P100"),
    (r"nc\d+r?s_v3", "V100"),
    (r"nd\d+r?s", "P40"),
    (r"nd\d+r?s_v2", "V100"),
    (r"nd\d+asr_v4", "A100"),
    (r"nv\d+", "M60"),
    (r"nv\d+s_v[23]", "M60"),
    (r"nv\d+as_v4", "MI25"),
)
# Sizes with a fraction of one accelerator, which the API counts as a whole one.
_SLICES = re.compile(
    r"nv(4|8|16)as_v4|nv(6|12|18)adm?s_a10_v5|nv(4|8|12)ads_v710_v5|ng(8|16)adm?s_v620_v1",
)


def spelled(name: str) -> str:
    """A size's name in Azure's capitalization: Resource Graph may answer in lower case, the price
    list does not.

    >>> spelled("standard_nc24ads_a100_v4"), spelled("Standard_D4s_v3")
    ('Standard_NC24ads_A100_v4', 'Standard_D4s_v3')
    """
    tier, _, rest = name.partition("_")
    if name != name.lower() or not rest:
        return name

    size, *parts = rest.split("_")
    family = re.match(r"[a-z]*", size)
    letters = family.end() if family else 0
    words = [tier.capitalize(), size[:letters].upper() + size[letters:]]
    for part in parts:
        if part == "promo":
            words.append("Promo")
        elif part in _LOWER_CASE or _VERSION.fullmatch(part):
            words.append(part)
        else:
            words.append(part.upper())

    return "_".join(words)


def accelerator_of(name: str) -> str:
    """The accelerator of a size that has one; `gpu` if the name does not identify it.

    A fraction of one has its own name (`A10-slice`), because it trains at a fraction of the speed.

    >>> accelerator_of("Standard_NC6s_v3"), accelerator_of("Standard_NV6ads_A10_v5")
    ('V100', 'A10-slice')
    """
    size = name.lower().partition("_")[2].removesuffix("_promo")
    named = ""
    for part in size.split("_")[1:]:
        if part not in _DESCRIPTORS and not _VERSION.fullmatch(part):
            named = part.upper()

    # The A100 with 40 GB is only in sizes whose names do not contain it.
    accelerator = "A100-80GB" if named == "A100" else named
    if not named:
        fitting = (gpu for sizes, gpu in _UNNAMED_ACCELERATORS if re.fullmatch(sizes, size))
        accelerator = next(fitting, UNKNOWN_ACCELERATOR)
    return f"{accelerator}-slice" if _SLICES.fullmatch(size) else accelerator
