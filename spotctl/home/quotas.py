"""Quotas of cloud accounts, as the settings state them: how much may run at a time, by cloud,
region and family.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

_AMOUNT: Final = re.compile(r"(\d+)\s*(vcpus?|machines?|gpus?)?", re.IGNORECASE)
_ANY: Final = "*"
_ON_DEMAND: Final = " on demand"
_LETTERS: Final = re.compile(r"[a-z]*")
EXAMPLE: Final = '"aws/us-east-1/p3" = 64'


class QuotaUnit(StrEnum):
    """The unit of a quota."""

    VCPUS = "vCPUs"
    MACHINES = "machines"
    GPUS = "GPUs"


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that may run in a cloud at a time, or in one of its regions, or of a family there.

    A region of `*` means every region, each with this amount. The spot machines of all jobs of a
    plan count together; on-demand machines have quotas of their own, not `spot`. A family is one as
    `family_of` names it, or several that share the amount, by the letters that their names begin
    with, or by their whole names: `g+vt`, `p5+p5e`. Machine types that share an amount are named in
    the same way: `Standard_D2s_v5+Standard_D4s_v5`.
    """

    cloud: str
    region: str | None
    family: str | None
    amount: int
    unit: QuotaUnit
    spot: bool = True

    def __str__(self) -> str:
        return f"{self.name}={self.amount} {self.unit}"

    @property
    def name(self) -> str:
        """The place where the quota holds: `aws/us-east-1/p3`, with ` on demand` for on-demand
        machines.
        """
        where = "/".join(part for part in (self.cloud, self.region, self.family) if part)
        return where if self.spot else where + _ON_DEMAND

    def covers(self, cloud: str, region: str, family: str, type_: str = "") -> bool:
        """Whether machines of a family, or of a type of it, in a region count against this
        quota."""
        if cloud != self.cloud or self.region not in (None, _ANY, region):
            return False
        if self.family is None:
            return True
        letters = _LETTERS.match(family)
        return not {family, type_, letters[0] if letters else ""}.isdisjoint(self.family.split("+"))

    @property
    def is_for_each_region(self) -> bool:
        """Whether this is a quota for every region, each with this amount."""
        return self.region == _ANY

    def within(self, region: str) -> "Quota":
        """The quota for one region; the quota itself, unless it is for every region."""
        return replace(self, region=region) if self.is_for_each_region else self


def quotas_from(value: object) -> tuple[Quota, ...]:
    """The quotas of a table of the settings file, or of an environment variable
    (`aws/us-east-1/p3=64, ...`).

    Raises ValueError with what was expected.
    """
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if not all(equals for _, equals, _ in pairs):
            raise ValueError("a list such as aws/us-east-1/p3=64, gcp/us-central1/a2=8 machines")
        value = {name.strip(): amount.strip() for name, _, amount in pairs}

    if not isinstance(value, Mapping):
        raise ValueError(f"a table of amounts by cloud, region and family, such as {EXAMPLE}")

    quotas = list[Quota]()
    for key, amount in value.items():
        name = str(key)
        place = name.removesuffix(_ON_DEMAND)
        parts = place.split("/")
        if not 1 <= len(parts) <= 3 or not all(parts) or _ANY in (parts[0], *parts[2:]):
            raise ValueError(
                f"amounts by CLOUD, CLOUD/REGION or CLOUD/REGION/FAMILY ({EXAMPLE}), not by "
                f"{name!r}"
            )
        matched = _AMOUNT.fullmatch(str(amount).strip())
        if matched is None or isinstance(amount, bool | float):
            raise ValueError(
                f'whole numbers of vCPUs, or such as "8 machines" or "4 GPUs"; {name} is {amount!r}'
            )
        unit = (matched[2] or "vcpus").lower().rstrip("s")
        region, family = (*parts[1:], None, None)[:2]
        quotas.append(
            Quota(parts[0], region, family, int(matched[1]), _UNITS[unit], spot=place == name)
        )

    return tuple(quotas)


_UNITS: Final = {"vcpu": QuotaUnit.VCPUS, "machine": QuotaUnit.MACHINES, "gpu": QuotaUnit.GPUS}
