"""Whether an IAM policy allows an EC2 request: by AWS's documented rules, for the parts of policies
that we print.

A request is allowed if a statement allows each of its actions on each of its resources, and none
denies one. EC2 evaluates RunInstances and CreateSecurityGroup for every resource that they make or
use, tags at creation as an action of their own (ec2:CreateTags), and an instance profile as
iam:PassRole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends

from tests.servers.loopback import Request

_CREATES = {
    "RunInstances": ("instance", "volume", "network-interface", "spot-instances-request"),
    "CreateSecurityGroup": ("security-group",),
    "CreatePlacementGroup": ("placement-group",),
}
_KINDS = {
    "i": "instance",
    "vol": "volume",
    "eni": "network-interface",
    "sir": "spot-instances-request",
    "sg": "security-group",
    "subnet": "subnet",
    "vpc": "vpc",
    "cr": "capacity-reservation",
    "eipalloc": "elastic-ip",
    "lt": "launch-template",
}
_TESTS: Mapping[str, Callable[[str | None, list[str]], bool]] = {
    "Null": lambda value, wanted: [str(value is None).lower()] == wanted,
    "StringEquals": lambda value, wanted: value in wanted,
    "StringLike": lambda value, wanted: (
        value is not None and any(fnmatchcase(value, glob) for glob in wanted)
    ),
}


@dataclass(frozen=True)
class Access:
    """An action on a resource, in the context that conditions may ask for."""

    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict)


def allows(policy: Mapping[str, Any], access: Access) -> bool:
    effects = [
        statement["Effect"] for statement in policy["Statement"] if _applies(statement, access)
    ]
    return "Allow" in effects and "Deny" not in effects


def _applies(statement: Mapping[str, Any], access: Access) -> bool:
    actions, resources = _listed(statement["Action"]), _listed(statement["Resource"])
    return (
        any(fnmatchcase(access.action.lower(), glob.lower()) for glob in actions)
        and any(fnmatchcase(access.resource, glob) for glob in resources)
        and all(
            _TESTS[operator](access.context.get(key), _listed(wanted))
            for operator, conditions in statement.get("Condition", {}).items()
            for key, wanted in conditions.items()
        )
    )


def accesses(account: str, region: str, arguments: Mapping[str, str]) -> list[Access]:
    """What an EC2 request asks for, given its form arguments."""
    action = f"ec2:{arguments['Action']}"
    asked = list(_accesses(account, region, arguments))
    return (
        asked if any(access.action == action for access in asked) else [Access(action, "*"), *asked]
    )


_TARGETS = {
    "AmazonSSM": "ssm",
    "AWSPriceListService": "pricing",
    "ServiceQuotasV20190624": "servicequotas",
}
"""Services with JSON requests: the first part of their targets, and their names in actions."""


def access_of_target(target: str, region: str, request: Request) -> Access | None:
    """The action that a request to one of these services asks for; None for another service."""
    service, _, operation = target.partition(".")
    if service not in _TARGETS:
        return None
    # Public parameters belong to no account.
    resource = (
        f"arn:aws:ssm:{region}::parameter{request.json()['Name']}"
        if service == "AmazonSSM"
        else "*"
    )
    return Access(f"{_TARGETS[service]}:{operation}", resource)


def _accesses(account: str, region: str, arguments: Mapping[str, str]) -> Iterator[Access]:
    name = arguments["Action"]
    action, arn = f"ec2:{name}", f"arn:aws:ec2:{region}:{account}"
    if name.startswith("Describe"):
        return
    backend = ec2_backends[account][region]
    tagged = _tag_specifications(arguments)
    for kind in _CREATES.get(name, ()):
        if kind == "spot-instances-request" and "InstanceMarketOptions.MarketType" not in arguments:
            continue
        context = {f"aws:RequestTag/{key}": value for key, value in tagged.get(kind, {}).items()}
        yield Access(action, f"{arn}:{kind}/*", context)
        if kind in tagged:
            yield Access("ec2:CreateTags", f"{arn}:{kind}/*", {**context, "ec2:CreateAction": name})
    for value in arguments.values():
        if value.startswith(("ami-", "snap-")):
            yield Access(action, f"arn:aws:ec2:{region}::image/{value}")
        elif re.fullmatch(r"[a-z]+-[0-9a-f]+", value) and value.partition("-")[0] in _KINDS:
            kind = _KINDS[value.partition("-")[0]]
            yield Access(action, f"{arn}:{kind}/{value}", _resource_tags(backend, value))
    if (pair := backend.key_pairs.get(arguments.get("KeyName", ""))) is not None:
        yield Access(
            action, f"{arn}:key-pair/{arguments['KeyName']}", _resource_tags(backend, pair.id)
        )
    yield from (
        Access(action, f"{arn}:placement-group/{group}", _resource_tags(backend, group))
        for group in _placed(arguments)
    )
    # EC2 says of an unknown profile that it is unknown, whatever the policy.
    if role := _role_of(account, arguments.get("IamInstanceProfile.Name", "")):
        context = {"iam:PassedToService": "ec2.amazonaws.com"}
        yield Access("iam:PassRole", f"arn:aws:iam::{account}:role/{role}", context)


def _placed(arguments: Mapping[str, str]) -> Iterator[str]:
    """The placement group that a request uses or removes."""
    if group := arguments.get("Placement.GroupName"):
        yield group
    if arguments["Action"] == "DeletePlacementGroup":
        yield arguments["GroupName"]


def _resource_tags(backend: Any, resource: str) -> dict[str, str]:  # noqa: ANN401  # moto's
    return {
        f"aws:ResourceTag/{key}": value for key, value in backend.tags.get(resource, {}).items()
    }


def _tag_specifications(arguments: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The tags of a request by the kind of resource."""
    tags: dict[str, dict[str, str]] = {}
    for name, kind in arguments.items():
        if match := re.fullmatch(r"(TagSpecification\.\d+)\.ResourceType", name):
            begin = f"{match[1]}.Tag."
            keys = [key for key in arguments if key.startswith(begin) and key.endswith(".Key")]
            tags[kind] = {arguments[key]: arguments.get(f"{key[:-4]}.Value", "") for key in keys}
    return tags


def _role_of(account: str, profile: str) -> str | None:
    """The role of an instance profile, None if there is no such profile; one without a role has one
    of its name.
    """
    for known in iam_backends[account]["aws"].instance_profiles.values():
        if known.name == profile:
            return str(known.roles[0].name) if known.roles else profile
    return None


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
