"""Checks requests against AWS's service models, which botocore carries.

An SDK checks what it sends; this checks what a server receives, whether or not an SDK sent it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

from botocore.model import ServiceModel, Shape
from botocore.session import get_session
from botocore.validate import ParamValidator

from tests.servers.loopback import Request

_TARGETS = {
    "AmazonSSM": "ssm",
    "AWSPriceListService": "pricing",
    "ServiceQuotasV20190624": "service-quotas",
}
_VERSIONS = {"2016-11-15": "ec2", "2011-06-15": "sts", "2010-05-08": "iam"}
_PROTOCOL = ("Action", "Version")


@cache
def _model(service: str) -> ServiceModel:
    return get_session().get_service_model(service)


def misfits(request: Request) -> list[str]:
    """The ways in which a request differs from the model of its service; an unknown service is one,
    too.
    """
    if target := request.headers.get("x-amz-target", ""):
        service, _, name = target.partition(".")
        return list(_json_misfits(_TARGETS.get(service, ""), name, request.body))
    if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        arguments = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        return list(_form_misfits(_VERSIONS.get(arguments.get("Version", ""), ""), arguments))
    return list(_path_misfits("fis", request))


def _json_misfits(service: str, name: str, body: bytes) -> Iterator[str]:
    if not service or name not in _model(service).operation_names:
        yield f"no service has the operation {name!r}"
        return
    operation = _model(service).operation_model(name)
    yield from _value_misfits(name, json.loads(body), operation.input_shape)


def _path_misfits(service: str, request: Request) -> Iterator[str]:
    model = _model(service)
    for name in model.operation_names:
        operation = model.operation_model(name)
        pattern = re.sub(r"\{\w+\}", "[^/]+", operation.http["requestUri"])
        if operation.http["method"] == request.method and re.fullmatch(pattern, request.path):
            in_body: dict[str, object] = json.loads(request.body or b"{}")
            in_path = re.findall(r"\{(\w+)\}", operation.http["requestUri"])
            yield from _value_misfits(
                name, {**dict.fromkeys(in_path, "x"), **in_body}, operation.input_shape
            )
            return
    yield f"{service} has no operation for {request.method} {request.path}"


def _value_misfits(name: str, value: Mapping[str, Any], shape: Shape | None) -> Iterator[str]:
    assert shape is not None
    if report := ParamValidator().validate(value, shape).generate_report():
        yield f"{name}: {report}"
    yield from (f"{name}: no member {member!r}" for member in _strange_members(value, shape))


# Botocore's shapes.
def _strange_members(value: object, shape: Any) -> Iterator[str]:  # noqa: ANN401
    """Members that a structure lacks; botocore's own check passes over them in what has no
    validator.
    """
    if isinstance(value, Mapping) and shape is not None and shape.type_name == "structure":
        for name, item in value.items():
            if name not in shape.members:
                yield name
            else:
                yield from _strange_members(item, shape.members[name])
    elif isinstance(value, list):
        for item in value:
            yield from _strange_members(item, shape.member)


def _form_misfits(service: str, arguments: Mapping[str, str]) -> Iterator[str]:
    name = arguments.get("Action", "")
    if not service or name not in _model(service).operation_names:
        yield f"no service has the action {name!r} in version {arguments.get('Version')!r}"
        return
    shape: Any = _model(service).operation_model(name).input_shape
    given = {key: value for key, value in arguments.items() if key not in _PROTOCOL}
    for key, value in given.items():
        if problem := _misfit(shape, key.split("."), value):
            yield f"{name}: {key}={value!r}: {problem}"
    for member in shape.required_members if shape is not None else ():
        sent = _sent_name(member, shape.members[member])
        if not any(key == sent or key.startswith(f"{sent}.") for key in given):
            yield f"{name}: {member} is missing"


def _misfit(shape: Any, parts: list[str], value: str) -> str:  # noqa: ANN401  # botocore's shapes
    """Why a form's argument does not fit a shape; `parts` leads to it. EC2 flattens all lists."""
    if not parts:
        return _scalar_misfit(shape, value)
    if shape is None:
        return "nothing was expected"
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            if _sent_name(name, member) == parts[0]:
                return _misfit(member, parts[1:], value)
        return f"no member {parts[0]!r}"
    if shape.type_name == "list":
        return (
            _misfit(shape.member, parts[1:], value)
            if parts[0].isdigit()
            else f"{parts[0]!r} is no position"
        )
    return f"a {shape.type_name} has no parts"


def _sent_name(name: str, member: Any) -> str:  # noqa: ANN401  # botocore's shapes
    """The name of a member in a request: EC2's own rule."""
    location: str | None = member.serialization.get("name")
    return str(
        member.serialization.get("queryName")
        or (location and location[0].upper() + location[1:])
        or name
    )


_PATTERNS = {
    "integer": r"-?\d+",
    "long": r"-?\d+",
    "boolean": "true|false",
    "double": r"-?[\d.]+",
    "float": r"-?[\d.]+",
    "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z",
}


def _scalar_misfit(shape: Any, value: str) -> str:  # noqa: ANN401  # botocore's shapes
    if shape.type_name in ("structure", "list"):
        return f"a value where a {shape.type_name} is expected"
    if not re.fullmatch(_PATTERNS.get(shape.type_name, ".*"), value, re.DOTALL):
        return f"not a {shape.type_name}"
    if (values := getattr(shape, "enum", ())) and value not in values:
        return f"not one of {', '.join(values)}"
    return ""
