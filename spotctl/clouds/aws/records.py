"""Converts EC2's description of an instance to a machine of the provider contract. Pure.

The codes are those of `StateReason` in the EC2 API Reference. The time of an end is in `StateTransitionReason`, as
"User initiated (2026-01-31 10:12:34 GMT)"; if that has none, the update time of the spot request's status is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pricing_data.errors import BadInput
from pricing_data.market import Market
from pricing_data.units import parse_time
from spotctl.clouds.aws.labels import bid_of, own_tags
from spotctl.clouds.aws.rows import Row
from spotctl.clouds.provider import EndReason, Machine, MachineState

CLOUD = "aws"

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
"""All other codes (no capacity after all, an internal error, a disk that could not be made) are failures."""

_SPOT_ENDS = {
    "instance-terminated-by-user": EndReason.RETURNED,
    "instance-terminated-launch-group-constraint": EndReason.EVICTED,
    "instance-terminated-by-price": EndReason.EVICTED,
    "instance-terminated-by-schedule": EndReason.EVICTED,
    "instance-terminated-by-service": EndReason.EVICTED,
    "instance-terminated-capacity-oversubscribed": EndReason.EVICTED,
    "instance-terminated-no-capacity": EndReason.EVICTED,
}
"""How the status of a spot request says that its instance ended (EC2 User Guide, Spot request status)."""

_END_TIME = re.compile(r"\((\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def machine_id(region: str, instance: str) -> str:
    """The id of a machine or of any resource: with its region, so that a call about it needs no state."""
    return f"{CLOUD}:{region}:{instance}"


def parts_of(machine: str) -> tuple[str, str] | None:
    """The region and the id in a name made by `machine_id`; None for anything else."""
    cloud, _, rest = machine.partition(":")
    region, _, instance = rest.partition(":")
    return (region, instance) if cloud == CLOUD and region and instance else None


def machine_of(row: Row, region: str, company: Mapping[str, str], request: Row | None = None) -> Machine:
    """The machine of an instance; `request` is its spot request, if that was fetched."""
    state = _STATES[row["State"]["Name"]]
    gone = state is MachineState.GONE
    return Machine(
        id=machine_id(region, row["InstanceId"]),
        market=Market(CLOUD, region, row["Placement"]["AvailabilityZone"], row["InstanceType"]),
        bid=bid_of(row),
        state=state,
        started=started_of(row),
        tags=own_tags(row, company),
        address=row.get("PrivateIpAddress") or "",
        ended=_ended(row, request) if gone else None,
        end_reason=_end_reason(row, request) if gone else None,
    )


def started_of(row: Row) -> int:
    """When an instance was launched."""
    return parse_time(row["LaunchTime"])


def needs_spot_request(row: Row) -> bool:
    """Whether only the spot request of a terminated instance says when or why the instance ended."""
    if row["State"]["Name"] != "terminated" or not row.get("SpotInstanceRequestId"):
        return False
    return not row.get("StateReason", {}).get("Code") or _said_end(row) is None


def order_of(row: Row) -> tuple[str, int]:
    """The order in which machines were granted."""
    return row["LaunchTime"], int(row.get("AmiLaunchIndex", 0))


def _ended(row: Row, request: Row | None) -> int | None:
    said = _said_end(row)
    if said is None and request is not None:
        said = _time(request.get("Status", {}).get("UpdateTime", ""))
    # Times are cut to seconds; nothing ended before it began.
    return None if said is None else max(said, started_of(row))


def _end_reason(row: Row, request: Row | None) -> EndReason:
    code = row.get("StateReason", {}).get("Code", "")
    if not code and request is not None:
        return _SPOT_ENDS.get(request.get("Status", {}).get("Code", ""), EndReason.FAILED)
    return _REASONS.get(code, EndReason.FAILED)


def _said_end(row: Row) -> int | None:
    match = _END_TIME.search(row.get("StateTransitionReason") or "")
    return None if match is None else _time(f"{match[1]}T{match[2]}Z")


def _time(text: str) -> int | None:
    try:
        return parse_time(text)
    except BadInput:
        return None
