"""Machines of an installation as the provider contract describes them, and all that it can leave in
EC2.

The codes are those of `StateReason` in the EC2 API Reference. The time of an end is in
`StateTransitionReason`, as "User initiated (2026-01-31 10:12:34 GMT)"; if that has none, the update
time of the spot request's status is used.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pricing_data.errors import BadInput
from pricing_data.market import Market
from pricing_data.units import parse_time
from spotctl.clouds.aws.calls import ABSENT, AwsCalls, code_of
from spotctl.clouds.aws.orders import (
    BID,
    CLOUD,
    ON_DEMAND,
    Row,
    all_tags,
    filters_of,
    machine_id,
    own_tags,
    parts_of,
)
from spotctl.clouds.aws.permissions import KINDS, MACHINES, OTHERS
from spotctl.clouds.errors import Unanswered
from spotctl.clouds.provider import EndReason, Machine, MachineState, Resource
from spotctl.home.errors import SpotctlError

_STATES = {
    "pending": MachineState.STARTING,
    "running": MachineState.RUNNING,
    "shutting-down": MachineState.LEAVING,
    "stopping": MachineState.LEAVING,
    # Its disk is still paid for.
    "stopped": MachineState.LEAVING,
    "terminated": MachineState.GONE,
}
_REASONS = {
    "Client.InstanceInitiatedShutdown": EndReason.LEASE_ENDED,
    "Client.UserInitiatedShutdown": EndReason.RETURNED,
    "Client.UserInitiatedHibernate": EndReason.RETURNED,
    "Server.SpotInstanceShutdown": EndReason.EVICTED,
    "Server.SpotInstanceTermination": EndReason.EVICTED,
}
"""All other codes (no capacity after all, an internal error, a disk that could not be made) are
failures."""
_CURES = {
    "Client.InternalError": "; mostly the key of encrypted disks (kms_key in [aws], or the "
    "account's default) is one that the launcher may not use: allow it kms:CreateGrant, "
    "kms:Decrypt, kms:DescribeKey, kms:GenerateDataKeyWithoutPlaintext and kms:ReEncrypt*",
}
"""Cures where EC2's words name none
(github.com/aws-samples/aws-service-catalog-reference-architectures/issues/103)."""

_SPOT_ENDS = {
    "instance-terminated-by-user": EndReason.RETURNED,
    "instance-terminated-launch-group-constraint": EndReason.EVICTED,
    "instance-terminated-by-price": EndReason.EVICTED,
    "instance-terminated-by-schedule": EndReason.EVICTED,
    "instance-terminated-by-service": EndReason.EVICTED,
    "instance-terminated-capacity-oversubscribed": EndReason.EVICTED,
    "instance-terminated-no-capacity": EndReason.EVICTED,
}
"""How the status of a spot request says that its instance ended (EC2 User Guide, Spot request
status)."""

_END_TIME = re.compile(r"\((\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def machine_of(
    row: Row, region: str, company: Mapping[str, str], request: Row | None = None
) -> Machine:
    """The machine of an instance; `request` is its spot request, if that was fetched."""
    state = _STATES[row["State"]["Name"]]
    ended = reason = None
    failure = ""
    if state is MachineState.GONE:
        why = row.get("StateReason", {})
        code = why.get("Code", "")
        reason = _REASONS.get(code, EndReason.FAILED)
        ended = _said_end(row)
        if request is not None:
            status = request.get("Status", {})
            if ended is None:
                ended = _time(status.get("UpdateTime", ""))
            if not code:
                reason = _SPOT_ENDS.get(status.get("Code", ""), EndReason.FAILED)
        # Times are cut to seconds; nothing ended before it began.
        ended = None if ended is None else max(ended, parse_time(row["LaunchTime"]))
        if reason is EndReason.FAILED:
            failure = why.get("Message", code) + _CURES.get(code, "")

    bid = all_tags(row).get(BID, ON_DEMAND)
    return Machine(
        id=machine_id(region, row["InstanceId"]),
        market=Market(CLOUD, region, row["Placement"]["AvailabilityZone"], row["InstanceType"]),
        bid=None if bid == ON_DEMAND else int(bid),
        state=state,
        started=parse_time(row["LaunchTime"]),
        tags=own_tags(row, company),
        address=row.get("PrivateIpAddress") or "",
        ended=ended,
        end_reason=reason,
        failure=failure,
    )


def needs_spot_request(row: Row) -> bool:
    """Whether only the spot request of a terminated instance says when or why the instance
    ended."""
    if row["State"]["Name"] != "terminated" or not row.get("SpotInstanceRequestId"):
        return False
    return not row.get("StateReason", {}).get("Code") or _said_end(row) is None


def order_of(row: Row) -> tuple[str, int]:
    """The order in which machines were granted."""
    return row["LaunchTime"], int(row.get("AmiLaunchIndex", 0))


def _said_end(row: Row) -> int | None:
    match = _END_TIME.search(row.get("StateTransitionReason") or "")
    return None if match is None else _time(f"{match[1]}T{match[2]}Z")


def _time(text: str) -> int | None:
    try:
        return parse_time(text)
    except BadInput:
        return None


PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0)
"""Seconds between attempts to remove resources that ending machines still use: a machine takes up
to two minutes."""


def left_in(
    calls: AwsCalls, region: str, tags: Mapping[str, str], company: Mapping[str, str]
) -> list[Resource]:
    """All resources with these tags in a region."""
    left: list[Resource] = []
    for kind in KINDS:
        filters = filters_of(tags) | ({kind.state[0]: list(kind.state[1])} if kind.state else {})
        rows = calls.described(region, kind.describe, kind.holding, filters)
        if kind is MACHINES:
            rows = [instance for row in rows for instance in row["Instances"]]
        for row in rows:
            # What stays when machines end: a disk or interface that is unattached, or kept.
            attached = row.get("Attachments") or [row.get("Attachment")]
            if any(on and on.get("DeleteOnTermination") is not False for on in attached):
                continue

            # For the person who decides whether to remove it.
            named = ("GroupName", "InstanceType", "PublicIp", "KeyName")
            words = [str(row[name]) for name in named if row.get(name)]
            if row.get("Size"):
                words.append(f"{row['Size']} GiB")
            detail = words[0] if words else all_tags(row).get("Name", "")

            id_ = machine_id(region, row[kind.id])
            left.append(Resource(kind.name, id_, own_tags(row, company), detail))

    return left


def remove(
    calls: AwsCalls, resources: Iterable[Resource], terminate: Callable[[Sequence[str]], None]
) -> None:
    """Removes machines first, then the resources that they used. Unanswered: something stayed in
    use. If a removal fails, the others are still tried; then the first failure is raised.
    """
    wanted, failures = list(resources), list[SpotctlError]()
    machines = [resource.id for resource in wanted if resource.kind == MACHINES.name]
    if machines:
        terminate(machines)
    left = [resource for kind in OTHERS for resource in wanted if resource.kind == kind.name]

    for seconds in (*PAUSES, None):
        in_use = []
        for resource in left:
            try:
                if not _try_to_remove(calls, resource):
                    in_use.append(resource)
            except SpotctlError as error:
                failures.append(error)

        left = in_use
        if not left or seconds is None:
            break
        time.sleep(seconds)

    if failures:
        raise failures[0]
    if left:
        names = ", ".join(f"{resource.kind} {resource.id}" for resource in left)
        cure = "try again in a minute"
        raise Unanswered(f"{names}: still in use by machines that are ending; {cure}")


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


_IN_USE = frozenset(
    """
    DependencyViolation InvalidGroup.InUse InvalidIPAddress.InUse InvalidNetworkInterface.InUse
    InvalidPlacementGroup.InUse VolumeInUse
    """.split()
)
