"""Which kinds of machines count together against a quota, and how much of it each job of a plan gets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.eviction.hazard import family_of
from bidbrain.gavel.lp import FloatArray, IntArray
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
            if quota.covers(kind.cloud, kind.region, family_of(kind.type)):
                used.setdefault(quota.within(kind.region), np.zeros(len(kinds)))[j] = use_of(machine, quota.unit)
    return [QuotaGroup(quota, uses, float(quota.amount)) for quota, uses in used.items()]


def use_of(machine: InstanceType | None, unit: QuotaUnit) -> float:
    """How much of a quota one machine uses; a machine that the catalog does not know counts as one."""
    if unit is QuotaUnit.MACHINES or machine is None:
        return 1.0
    return float(machine.vcpus if unit is QuotaUnit.VCPUS else machine.accelerators)


def limits_of(groups: Sequence[QuotaGroup], least: IntArray, wanted: IntArray, held: FloatArray) -> FloatArray:
    """How much of each group (columns) each job (rows) may use.

    `wanted` are the most machines of each kind that each job could hold, `least` the fewest that a job needs in all,
    and `held` the machines that the policy gives to each job. If a group is too small for all jobs, each job gets its
    minimum; the rest is divided in proportion to the machines that the policy gives.
    """
    if not groups:
        return np.zeros((len(wanted), 0))
    return np.stack([_limits(group, least, wanted, held) for group in groups], axis=1)


def _limits(group: QuotaGroup, least: IntArray, wanted: IntArray, held: FloatArray) -> FloatArray:
    needed = np.minimum((wanted * group.per_machine).max(axis=1), group.most)
    if needed.sum() <= group.most:
        return np.full(len(wanted), group.most)
    smallest = np.where((group.per_machine > 0) & (wanted > 0), group.per_machine, np.inf).min(axis=1)
    floor = np.where(np.isfinite(smallest), np.minimum(least * smallest, needed), 0.0)
    if floor.sum() > group.most:
        floor = np.zeros(len(wanted))
    used = (held * group.per_machine).sum(axis=1)
    weight = used if used.sum() > _ROUNDING else needed
    limits: FloatArray = floor + (group.most - floor.sum()) * weight / weight.sum()
    return limits
