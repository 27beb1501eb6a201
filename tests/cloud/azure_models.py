"""What Azure accepts in a request, according to the SDK's own models and not to the author of the
provider.

The SDK declares the fields of each model with their names in JSON, their types and who may set
them. A body with a field that no model has, one that only Azure sets, a value outside an
enumeration or without a required field is refused in Resource Manager's words. The version of the
API must be that of the models.
"""

from __future__ import annotations

import datetime
import sys
import types
import typing
from collections.abc import Hashable, Mapping
from enum import Enum
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

from azure.mgmt import compute, network
from azure.mgmt.compute.operations._operations import (
    build_virtual_machines_create_or_update_request,
)
from azure.mgmt.network.operations._operations import (
    build_virtual_networks_create_or_update_request,
)
from azure.mgmt.resource import deployments, resources
from azure.mgmt.resource.deployments.operations._operations import (
    build_deployments_create_or_update_request,
)
from azure.mgmt.resource.resources.operations._operations import (
    build_resource_groups_create_or_update_request,
)


class BadBody(Exception):
    """A request that does not fit the SDK's models: Resource Manager's code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


MODELS: dict[str, type[Any]] = {
    "microsoft.compute/virtualmachines": compute.models.VirtualMachine,
    "microsoft.compute/proximityplacementgroups": compute.models.ProximityPlacementGroup,
    "microsoft.network/virtualnetworks": network.models.VirtualNetwork,
    "microsoft.network/networksecuritygroups": network.models.NetworkSecurityGroup,
    "microsoft.network/networkinterfaces": network.models.NetworkInterface,
    "microsoft.network/publicipaddresses": network.models.PublicIPAddress,
    "microsoft.resources/resourcegroups": resources.models.ResourceGroup,
    "microsoft.resources/deployments": deployments.models.Deployment,
}
"""The model of each type that can be made."""

_CREATE = "create"


@cache
def newest_versions() -> Mapping[str, str]:
    """The version of the API that each namespace's models describe."""
    requests = {
        "microsoft.compute": build_virtual_machines_create_or_update_request(
            "group", "name", "subscription"
        ),
        "microsoft.network": build_virtual_networks_create_or_update_request(
            "group", "name", "subscription"
        ),
        "microsoft.resources": build_resource_groups_create_or_update_request(
            "group", "subscription"
        ),
        "microsoft.resources/deployments": build_deployments_create_or_update_request(
            "group", "name", "subscription"
        ),
    }
    versions = {
        kind: parse_qs(urlsplit(one.url).query)["api-version"][0] for kind, one in requests.items()
    }
    return versions | {
        "microsoft.authorization": "2022-04-01",
        "microsoft.insights": "2015-04-01",
        "microsoft.managedidentity": "2024-11-30",
        "microsoft.storage": "2023-05-01",
    }


def check_version(kind: str, version: str, *, body: bool = False) -> None:
    """Refuses a version that the namespace of a type does not have, and with a body, any but that
    of the models.

    Fields depend on the version: an older one may not accept a field that the models have.
    """
    newest = newest_versions().get(kind.lower()) or newest_versions().get(
        kind.lower().partition("/")[0], ""
    )
    try:
        datetime.date.fromisoformat(version)
    except ValueError:
        version = ""
    if not ("2015-04-01" <= version <= newest) or (body and version != newest):
        raise BadBody(
            "InvalidApiVersionParameter",
            f"The api-version '{version}' is invalid; {kind} has {newest}.",
        )


def check_body(kind: str, body: object) -> None:
    """Refuses what a request to create a resource of this type must not hold, or lacks."""
    model = MODELS.get(kind.lower())
    if model is None:
        raise BadBody("InvalidResourceType", f"The resource type {kind!r} cannot be made here.")
    _check(body, model, kind.rpartition("/")[2])


# A type, or what typing calls one.
def _check(value: object, kind: Any, path: str) -> None:  # noqa: ANN401
    if kind is Any or kind is object:
        return
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        _check_union(value, parts, path)
    elif origin is list:
        _require(isinstance(value, list), value, path, "an array")
        for index, item in enumerate(typing.cast("list[object]", value)):
            _check(item, parts[0], f"{path}[{index}]")
    elif origin is dict:
        _require(isinstance(value, dict), value, path, "an object")
        for name, item in typing.cast("dict[str, object]", value).items():
            _check(item, parts[1], f"{path}.{name}")
    elif isinstance(kind, type) and any(
        base.__module__.endswith("_utils.model_base") for base in kind.__mro__
    ):
        _check_model(value, kind, path)
    else:
        _check_scalar(value, kind, path)


def _check_union(value: object, kinds: tuple[Any, ...], path: str) -> None:
    enums = [one for one in kinds if isinstance(one, type) and issubclass(one, Enum)]
    others = [one for one in kinds if one not in enums and one is not type(None)]
    if enums and enums != [
        compute.models.VirtualMachineSizeTypes
    ]:  # the SDK says that its list of sizes is not kept
        allowed = [member.value for one in enums for member in one]
        _require(value in allowed, value, path, f"one of {', '.join(map(str, allowed))}")
    elif value is not None or type(None) not in kinds:
        _check(value, others[0], path)


def _check_scalar(value: object, kind: type, path: str) -> None:
    if isinstance(kind, type) and issubclass(kind, Enum):
        _require(value in [member.value for member in kind], value, path, f"a {kind.__name__}")
    elif kind is float:
        _require(
            isinstance(value, int | float) and not isinstance(value, bool), value, path, "a number"
        )
    elif kind is int:
        _require(isinstance(value, int) and not isinstance(value, bool), value, path, "an integer")
    elif kind in (datetime.datetime, datetime.date, datetime.timedelta, bytes):
        _require(isinstance(value, str), value, path, "text")
    else:
        _require(isinstance(value, kind), value, path, f"a {kind.__name__}")


def _check_model(value: object, model: type[Any], path: str) -> None:
    _require(isinstance(value, dict), value, path, "an object")
    body = typing.cast("dict[str, object]", value)
    fields = _fields_of(typing.cast("Hashable", model))
    for name, item in body.items():
        if name not in fields:
            raise BadBody(
                "InvalidRequestContent",
                f"Could not find member '{name}' on object of type '{path}'.",
            )
        kind, visibility = fields[name]
        if visibility is not None and _CREATE not in visibility and visibility:
            raise BadBody("PropertyReadOnly", f"Property '{path}.{name}' is read-only.")
        _check(item, kind, f"{path}.{name}")
    for name, (kind, visibility) in fields.items():
        optional = type(None) in typing.get_args(kind) or (
            visibility is not None and _CREATE not in visibility
        )
        if name not in body and not optional:
            raise BadBody(
                "InvalidParameter", f"Required parameter '{path}.{name}' is missing (null)."
            )


@cache
def _fields_of(model: Hashable) -> Mapping[str, tuple[Any, list[str] | None]]:
    """The fields of a model by their names in JSON: the type, and who sees or sets it."""
    kind: Any = model
    kind.__new__(kind)  # the SDK completes its tables when the first instance is made
    hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("azure.mgmt."):
            own = vars(base).get("__annotations__", {})
            hints |= {name: _resolved(text, base) for name, text in own.items() if name[0] != "_"}
    return {
        field._rest_name: (hints[name], field._visibility)
        for name, field in kind._attr_to_rest_field.items()
    }


def _resolved(kind: Any, model: type[Any]) -> Any:  # noqa: ANN401  # as typing declares it
    """A type in which no name is left as text."""
    package = sys.modules[model.__module__.rpartition(".")[0]]
    names = {"_models": package, **vars(sys.modules[model.__module__])}
    return typing.get_type_hints(types.SimpleNamespace(__annotations__={"it": kind}), names)["it"]


def _require(fits: bool, value: object, path: str, expected: str) -> None:
    if not fits:
        shown = str(value)[:60]
        raise BadBody(
            "InvalidParameter",
            f"The value '{shown}' of parameter '{path}' is invalid: it must be {expected}.",
        )
