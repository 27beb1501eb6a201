"""Machines and resources as their callers see them, from Google's descriptions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pricing_data.units import parse_time
from spotctl.clouds.gcp.history import MachineEnd, Past
from spotctl.clouds.gcp.labels import BID_LABEL, described, tags_of
from spotctl.clouds.gcp.names import CLOUD, machine_id, parsed
from spotctl.clouds.provider import Machine, MachineState, Resource
from spotctl.home.installation import INTENT_TAG

_STATES = {
    "PROVISIONING": MachineState.STARTING,
    "STAGING": MachineState.STARTING,
    "PENDING": MachineState.STARTING,
    "REPAIRING": MachineState.STARTING,
    "RUNNING": MachineState.RUNNING,
    "PENDING_STOP": MachineState.LEAVING,
    "STOPPING": MachineState.LEAVING,
    "DEPROVISIONING": MachineState.LEAVING,
    "SUSPENDING": MachineState.LEAVING,
    "SUSPENDED": MachineState.GONE,
    "STOPPED": MachineState.GONE,
    "TERMINATED": MachineState.GONE,
}
"""A stopped machine is gone: it is never started again, and `spotctl gc` deletes it with its disk."""


def last_part(link: str) -> str:
    """The name at the end of a resource's address."""
    return link.rpartition("/")[2]


def machine_of(instance: Any, past: Past | None, mandatory: Mapping[str, str]) -> Machine | None:  # noqa: ANN401  # the SDK's messages are not annotated
    """A machine that exists; None if its name is not one of spotctl's."""
    known, zone = parsed(instance.name), last_part(instance.zone)
    if known is None:
        return None
    order, _ = known
    accelerators = instance.guest_accelerators
    attached = [f"+{card.accelerator_count}-{last_part(card.accelerator_type)}" for card in accelerators]
    bid = instance.labels.get(BID_LABEL)
    state = _STATES.get(instance.status, MachineState.STARTING)
    end = past.end if past is not None and state is MachineState.GONE else None
    stopped = parse_time(instance.last_stop_timestamp) if instance.last_stop_timestamp else None
    return Machine(
        machine_id(zone, instance.name),
        replace(order.market(zone), instance_type="".join([last_part(instance.machine_type), *attached])),
        int(bid) if bid else None,
        state,
        past.started if past is not None else parse_time(instance.creation_timestamp),
        tags_of(instance.labels, mandatory),
        instance.network_interfaces[0].network_i_p if instance.network_interfaces else "",
        (end.at if end and end.at else stopped) if state is MachineState.GONE else None,
        end.reason if end else None,
    )


def gone_machine(past: Past, end: MachineEnd, tags: Mapping[str, str]) -> Machine:
    """A machine that Google has deleted, whose run has these tags. Its bid is no longer known."""
    known = parsed(past.name)
    assert known is not None, past.name
    order, _ = known
    own = {key: value for key, value in tags.items() if key != INTENT_TAG}
    if order.intent:
        own[INTENT_TAG] = order.intent
    return Machine(
        machine_id(past.zone, past.name),
        order.market(past.zone),
        None,
        MachineState.GONE,
        past.started,
        own,
        ended=end.at,
        end_reason=end.reason,
    )


def resource_of(kind: str, item: Any, mandatory: Mapping[str, str], detail: str = "") -> Resource:  # noqa: ANN401  # the SDK's messages are not annotated
    """Something with labels that spotctl created."""
    place = last_part(item.zone or "") if kind != "address" else last_part(item.region or "") or "global"
    return Resource(kind, f"{CLOUD}:{place}:{item.name}", tags_of(item.labels, mandatory), detail)


def rule_of(firewall: Any) -> Resource | None:  # noqa: ANN401  # the SDK's messages are not annotated
    """A firewall rule that spotctl created: its description holds its tags. None for any other."""
    if (tags := described(firewall.description)) is None:
        return None
    return Resource("firewall rule", f"{CLOUD}:global:{firewall.name}", tags, last_part(firewall.network))


def has_tags(held: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(held.get(key) == value for key, value in wanted.items())
