"""Names of Azure's machine sizes: their spelling, and the accelerators in them. Pure."""

from __future__ import annotations

import re

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
    """A size's name in Azure's capitalization: Resource Graph may answer in lower case, the price list does not.

    >>> spelled("standard_nc24ads_a100_v4"), spelled("Standard_D4s_v3")
    ('Standard_NC24ads_A100_v4', 'Standard_D4s_v3')
    """
    tier, _, rest = name.partition("_")
    if name != name.lower() or not rest:
        return name
    size, *parts = rest.split("_")
    family = re.match(r"[a-z]*", size)
    letters = family.end() if family else 0
    return "_".join((tier.capitalize(), size[:letters].upper() + size[letters:], *map(_spelled_part, parts)))


def _spelled_part(part: str) -> str:
    if part == "promo":
        return "Promo"
    return part if part in _LOWER_CASE or _VERSION.fullmatch(part) else part.upper()


def accelerator_of(name: str) -> str:
    """The accelerator of a size that has one; `gpu` if the name does not identify it.

    A fraction of one has its own name (`A10-slice`), because it trains at a fraction of the speed.

    >>> accelerator_of("Standard_NC6s_v3"), accelerator_of("Standard_NV6ads_A10_v5")
    ('V100', 'A10-slice')
    """
    size = name.lower().partition("_")[2].removesuffix("_promo")
    named = [part for part in size.split("_")[1:] if part not in _DESCRIPTORS and not _VERSION.fullmatch(part)]
    known = (accelerator for pattern, accelerator in _UNNAMED_ACCELERATORS if re.fullmatch(pattern, size))
    accelerator = named[-1].upper() if named else next(known, UNKNOWN_ACCELERATOR)
    # The A100 with 40 GB is only in sizes whose names do not contain it.
    accelerator = "A100-80GB" if named and accelerator == "A100" else accelerator
    return f"{accelerator}-slice" if _SLICES.fullmatch(size) else accelerator
