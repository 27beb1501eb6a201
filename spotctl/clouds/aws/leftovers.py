"""Finds the resources under given tags that cost money or clutter the account, and removes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spotctl.clouds.aws.calls import AwsCalls
from spotctl.clouds.aws.kinds import KINDS, MACHINES, OTHERS, ResourceKind
from spotctl.clouds.aws.labels import all_tags, filters_of, own_tags
from spotctl.clouds.aws.records import machine_id, parts_of
from spotctl.clouds.aws.refusals import ABSENT, code_of
from spotctl.clouds.aws.rows import Row
from spotctl.clouds.errors import Unanswered
from spotctl.clouds.provider import Resource
from spotctl.home.errors import SpotctlError

PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0)
"""Seconds between attempts to remove resources that ending machines still use: a machine takes up to two minutes."""


def left_in(calls: AwsCalls, region: str, tags: Mapping[str, str], company: Mapping[str, str]) -> list[Resource]:
    """All resources with these tags in a region."""
    return [
        Resource(kind.name, machine_id(region, row[kind.id]), own_tags(row, company), _detail(row))
        for kind in KINDS
        for row in _rows(calls, region, kind, tags)
        if kind.is_left(row)
    ]


def remove(calls: AwsCalls, resources: Iterable[Resource], terminate: Callable[[Sequence[str]], None]) -> None:
    """Removes machines first, then the resources that they used. Unanswered: something stayed in use. If a removal
    fails, the others are still tried; then the first failure is raised.
    """
    wanted, failures = list(resources), list[SpotctlError]()

    def stays(resource: Resource) -> bool:
        try:
            return not _try_to_remove(calls, resource)
        except SpotctlError as error:
            failures.append(error)
            return False

    machines = [resource.id for resource in wanted if resource.kind == MACHINES.name]
    if machines:
        terminate(machines)
    others = (resource for resource in wanted if resource.kind in _ORDER)
    left = sorted(others, key=lambda resource: _ORDER[resource.kind])
    for seconds in (*PAUSES, None):
        left = [resource for resource in left if stays(resource)]
        if not left or seconds is None:
            break
        time.sleep(seconds)
    if failures:
        raise failures[0]
    if left:
        names = ", ".join(f"{resource.kind} {resource.id}" for resource in left)
        raise Unanswered(f"{names}: still in use by machines that are ending; try again in a minute")


def _try_to_remove(calls: AwsCalls, resource: Resource) -> bool:
    """Returns whether the resource is gone now; False while it is in use."""
    parts = parts_of(resource.id)
    if parts is None:
        return True
    region, id_ = parts
    kind = next(kind for kind in OTHERS if kind.name == resource.kind)
    argument: dict[str, Any] = {kind.argument: [id_] if kind.argument.endswith("Ids") else id_}
    try:
        calls.ec2(region, kind.remove, **argument)
    except SpotctlError as error:
        if code_of(error) in _IN_USE:
            return False
        if code_of(error) not in ABSENT:
            raise
    return True


_ORDER = {kind.name: number for number, kind in enumerate(OTHERS)}
_IN_USE = frozenset(
    """
    DependencyViolation InvalidGroup.InUse InvalidIPAddress.InUse InvalidNetworkInterface.InUse
    InvalidPlacementGroup.InUse VolumeInUse
    """.split()
)


def _rows(calls: AwsCalls, region: str, kind: ResourceKind, tags: Mapping[str, str]) -> list[Row]:
    filters = filters_of(tags) | ({kind.state[0]: list(kind.state[1])} if kind.state else {})
    rows = calls.described(region, kind.describe, kind.holding, filters)
    return [instance for row in rows for instance in row["Instances"]] if kind is MACHINES else rows


def _detail(row: Row) -> str:
    """A short description for the person who decides whether to remove it."""
    named = (row.get("GroupName"), row.get("InstanceType"), row.get("PublicIp"), row.get("KeyName"))
    size = f"{row['Size']} GiB" if row.get("Size") else None
    return next((word for word in (*named, size) if word), "") or all_tags(row).get("Name", "")
