"""Which kinds of machines count together against a quota. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.eviction.hazard import family_of
from bidbrain.gavel.arrays import FloatArray
from pricing_data.catalog import InstanceType
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.planning.offers import MachineKind

_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class QuotaGroup:
    """An amount that several kinds share, and its use by one machine of each kind (0 for kinds that do not count)."""

    quota: Quota
    per_machine: FloatArray
    most: float

    def machines(self, unlimited: float) -> FloatArray:
        """The most machines of each kind, if it had the whole amount."""
        uses = self.per_machine
        return np.where(uses > 0, np.floor(self.most / np.where(uses > 0, uses, 1.0) + _ROUNDING), unlimited)


def quota_groups(
    kinds: Sequence[MachineKind], machines: Sequence[InstanceType | None], quotas: Sequence[Quota]
) -> list[QuotaGroup]:
    """The groups of kinds that share an amount, by quota and region."""
    used: dict[Quota, FloatArray] = {}
    for quota in quotas:
        for j, (kind, machine) in enumerate(zip(kinds, machines, strict=True)):
            if quota.covers(kind.cloud, kind.region, family_of(kind.type), kind.type):
                used.setdefault(quota.within(kind.region), np.zeros(len(kinds)))[j] = use_of(machine, quota.unit)
    return [QuotaGroup(quota, uses, float(quota.amount)) for quota, uses in used.items()]


def use_of(machine: InstanceType | None, unit: QuotaUnit) -> float:
    """How much of a quota one machine uses; a machine that the catalog does not know counts as one."""
    if unit is QuotaUnit.MACHINES or machine is None:
        return 1.0
    return float(machine.vcpus if unit is QuotaUnit.VCPUS else machine.accelerators)
