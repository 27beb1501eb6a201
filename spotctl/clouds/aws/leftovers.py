"""What exists under tags and costs money or clutters the account, and how each kind of it is removed."""

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
from spotctl.clouds.base import Resource
from spotctl.clouds.errors import Unanswered
from spotctl.home.errors import SpotctlError

PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0)
"""Seconds between attempts to remove what ending machines still use: they take up to two minutes."""


def left_in(calls: AwsCalls, region: str, tags: Mapping[str, str], company: Mapping[str, str]) -> list[Resource]:
    """What exists under these tags in a region."""
    return [
        Resource(kind.name, machine_id(region, row[kind.id]), own_tags(row, company), _detail(row))
        for kind in KINDS
        for row in _rows(calls, region, kind, tags)
        if kind.is_left(row)
    ]


def remove(calls: AwsCalls, resources: Iterable[Resource], terminate: Callable[[Sequence[str]], None]) -> None:
    """Removes them: machines first, then what they used. Unanswered: something was in use all the time.

    What cannot be removed does not spare the others; the first failure is raised then.
    """
    wanted, failures = list(resources), list[SpotctlError]()

    def stays(one: Resource) -> bool:
        try:
            return not _removed(calls, one)
        except SpotctlError as error:
            failures.append(error)
            return False

    machines = [one.id for one in wanted if one.kind == MACHINES.name]
    if machines:
        terminate(machines)
    left = sorted((one for one in wanted if one.kind in _ORDER), key=lambda one: _ORDER[one.kind])
    for seconds in (*PAUSES, None):
        left = [one for one in left if stays(one)]
        if not left or seconds is None:
            break
        time.sleep(seconds)
    if failures:
        raise failures[0]
    if left:
        names = ", ".join(f"{one.kind} {one.id}" for one in left)
        raise Unanswered(f"{names}: still in use by machines that are ending; try again in a minute")


def _removed(calls: AwsCalls, resource: Resource) -> bool:
    """Whether it is gone now; False while it is in use."""
    parts = parts_of(resource.id)
    if parts is None:
        return True
    region, id_ = parts
    kind = next(one for one in OTHERS if one.name == resource.kind)
    argument: dict[str, Any] = {kind.argument: [id_] if kind.argument.endswith("Ids") else id_}
    try:
        calls.ec2(region, kind.remove, **argument)
    except Unanswered as error:
        if code_of(error) in _IN_USE:
            return False
        raise
    except SpotctlError as error:
        if code_of(error) not in ABSENT:
            raise
    return True


_ORDER = {kind.name: number for number, kind in enumerate(OTHERS)}
_IN_USE = frozenset(
    "DependencyViolation InvalidGroup.InUse InvalidNetworkInterface.InUse InvalidIPAddress.InUse VolumeInUse".split()
)


def _rows(calls: AwsCalls, region: str, kind: ResourceKind, tags: Mapping[str, str]) -> list[Row]:
    filters = filters_of(tags) | ({kind.state[0]: list(kind.state[1])} if kind.state else {})
    rows = calls.described(region, kind.describe, kind.holding, filters)
    return [one for row in rows for one in row["Instances"]] if kind is MACHINES else rows


def _detail(row: Row) -> str:
    """A short description for the person who decides whether to remove it."""
    named = (row.get("GroupName"), row.get("InstanceType"), row.get("PublicIp"), row.get("KeyName"))
    size = f"{row['Size']} GiB" if row.get("Size") else None
    return next((word for word in (*named, size) if word), "") or all_tags(row).get("Name", "")
