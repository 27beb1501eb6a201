"""Access to moto's internals: which actions a server answers itself, and what moto stores for an
account.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Any

from moto.ec2.responses.general import General
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.security_groups import SecurityGroups
from moto.ec2.responses.spot_instances import SpotInstances
from moto.kms import models as kms
from moto.kms.utils import generate_private_key

from tests.cloud.host import LAPTOP

SERVERS: dict[str, object] = {}
"""The running servers by account. Their methods have the names of moto's."""

_REPLACED: dict[str, type] = {
    "run_instances": InstanceResponse,
    "terminate_instances": InstanceResponse,
    "describe_instances": InstanceResponse,
    "describe_instance_status": InstanceResponse,
    "describe_spot_price_history": SpotInstances,
    "get_spot_placement_scores": SpotInstances,
    "cancel_spot_instance_requests": SpotInstances,
    "get_console_output": General,
    "delete_security_group": SecurityGroups,
    "create_placement_group": General,
    "describe_placement_groups": General,
    "delete_placement_group": General,
}
ORIGINALS: dict[str, Callable[[Any], Any]] = {}


def install_hooks() -> None:
    """Lets the accounts of servers answer these actions themselves. For all others moto answers as
    before.
    """
    if ORIGINALS:
        return
    # moto would make 1,300 images, each with a snapshot, for every region of every account. No test
    # boots one of them.
    os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
    # The key of encrypted disks is made once, not for every account; no test asks KMS for a
    # signature.
    vars(kms)["generate_private_key"] = cache(generate_private_key)
    for action, owner in _REPLACED.items():
        ORIGINALS[action] = getattr(owner, action, _not_in_moto)
        setattr(owner, action, _hook(action))


def _not_in_moto(response: Any) -> Any:  # noqa: ANN401
    raise NotImplementedError(f"moto has no such action: {response}")


def _hook(action: str) -> Callable[[Any], Any]:
    def answer(response: Any) -> Any:  # noqa: ANN401
        server = SERVERS.get(response.current_account)
        return getattr(server, action)(response) if server else ORIGINALS[action](response)

    return answer


def without(reservation: Any, names: set[str]) -> Any:  # noqa: ANN401
    seen = [one for one in reservation.instances if one.id not in names]
    if len(seen) == len(reservation.instances):
        return reservation
    part = type(reservation)(reservation.id, reservation.owner_id)
    part.groups, part.instances = reservation.groups, seen
    return part


def admits_ssh(instance: Any) -> bool:  # noqa: ANN401
    """Whether a security group of an instance lets this computer in at port 22."""
    groups = {group.id: group for eni in instance.nics.values() for group in eni.group_set}
    rules = [rule for group in groups.values() for rule in group.ingress_rules]
    return any(
        ip_address(laptop) in ip_network(rule.cidr_ipv4)
        for rule in rules
        for laptop in LAPTOP
        if rule.cidr_ipv4
        and (rule.ip_protocol == "-1" or (rule.ip_protocol == "tcp" and _has_ssh(rule)))
    )


def _has_ssh(rule: Any) -> bool:  # noqa: ANN401
    return bool(rule.from_port <= 22 <= rule.to_port)


def existing_in(backend: Any) -> Iterable[tuple[str, list[Any]]]:  # noqa: ANN401
    """What exists in a region, apart from what every account has there."""
    yield "instance", [one for one in backend.all_instances() if one.state != "terminated"]
    yield "volume", list(backend.volumes.values())
    yield "network interface", list(backend.enis.values())
    groups = [group for of_vpc in backend.groups.values() for group in of_vpc.values()]
    yield "security group", [group for group in groups if group.name != "default"]
    yield "key pair", list(backend.key_pairs.values())
    yield "address", list(backend.addresses)
    yield "launch template", list(backend.launch_templates.values())
    open_requests = [
        one for one in backend.spot_instance_requests.values() if one.state in ("open", "active")
    ]
    yield "spot request", open_requests
