"""Azure's metadata service at 169.254.169.254: the machine, its scheduled events, and tokens of its
identity.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from tests.cloud.azure_state import Body, Vm
from tests.cloud.buckets import STORAGE_AUDIENCE
from tests.cloud.host import MetadataAnswer, MetadataRequest

_TOKEN_SECONDS = 3600
_RESOURCES = (
    "https://management.azure.com",
    "https://management.core.windows.net",
    STORAGE_AUDIENCE,
)


def answer(
    vm: Vm, request: MetadataRequest, token: Callable[[str, str], str], approve: Callable[[], None]
) -> MetadataAnswer:
    """The answer to a request from a machine. `token` is made for an identity and a resource, and
    `approve` starts its eviction."""
    if (
        request.headers.get("metadata", "").lower() != "true"
        or "x-forwarded-for" in request.headers
    ):
        return _error(400, "Bad request. Required metadata header not specified")
    if "api-version" not in request.query:
        return _error(400, "Bad request. api-version was not specified in the request")
    path = request.path.rstrip("/")
    if path == "/metadata/scheduledevents":
        return _scheduled_events(vm, request, approve)
    if request.method == "GET" and path == "/metadata/identity/oauth2/token":
        return _identity(vm, request, token)
    if request.method == "GET" and f"{path}/".startswith("/metadata/instance/"):
        return _instance(vm, path, request.query.get("format", ["json"])[0])
    return _error(404, "Not found")


def preemption(vm: Vm, warning_seconds: float) -> Body:
    """The event that announces an eviction."""
    not_before = datetime.now(UTC) + timedelta(seconds=warning_seconds)
    return {
        "EventId": str(uuid.uuid4()).upper(),
        "EventStatus": "Scheduled",
        "EventType": "Preempt",
        "ResourceType": "VirtualMachine",
        "Resources": [vm.name],
        "NotBefore": f"{not_before:%a, %d %b %Y %H:%M:%S} GMT",
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }


def _scheduled_events(
    vm: Vm, request: MetadataRequest, approve: Callable[[], None]
) -> MetadataAnswer:
    if request.method == "GET":
        return MetadataAnswer.of_json({"DocumentIncarnation": vm.incarnation, "Events": vm.events})
    known = {event["EventId"] for event in vm.events}
    try:
        asked = [one["EventId"] for one in json.loads(request.body)["StartRequests"]]
    except (KeyError, TypeError, ValueError):
        return _error(400, "Bad request. StartRequests is missing")
    if not asked or not known.issuperset(asked):
        return _error(400, "Bad request. EventId is not known")
    approve()
    return MetadataAnswer()


def _identity(vm: Vm, request: MetadataRequest, token: Callable[[str, str], str]) -> MetadataAnswer:
    resource = request.query.get("resource", [""])[0]
    if urlsplit(resource).scheme != "https" or resource.rstrip("/") not in _RESOURCES:
        return MetadataAnswer.of_json(
            {
                "error": "invalid_resource",
                "error_description": f"AADSTS500011: {resource!r} was not found",
            },
            400,
        )
    named = request.query.get("client_id", request.query.get("msi_res_id", [""]))[0].lower()
    fitting = [
        identity
        for name, identity in vm.identities.items()
        if named in ("", name.lower(), str(identity["clientId"]).lower())
    ]
    if len(fitting) != 1:
        description = (
            "Identity not found" if not fitting else "Multiple user assigned identities exist"
        )
        return MetadataAnswer.of_json(
            {"error": "invalid_request", "error_description": description}, 400
        )
    now = int(time.time())
    return MetadataAnswer.of_json(
        {
            "access_token": token(fitting[0]["principalId"], resource.rstrip("/")),
            "client_id": fitting[0]["clientId"],
            "expires_in": str(_TOKEN_SECONDS),
            "expires_on": str(now + _TOKEN_SECONDS),
            "ext_expires_in": str(_TOKEN_SECONDS),
            "not_before": str(now),
            "resource": resource,
            "token_type": "Bearer",
        }
    )


def _instance(vm: Vm, path: str, form: str) -> MetadataAnswer:
    value: object = {"compute": _compute(vm), "network": _network(vm)}
    for name in path.split("/")[3:]:
        if isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return _error(404, "Not found")
    if form == "text":
        return MetadataAnswer(200, str(value).encode(), {"Content-Type": "text/plain"})
    return MetadataAnswer.of_json(value)


def _compute(vm: Vm) -> Body:
    properties = vm.properties
    return {
        "azEnvironment": "AzurePublicCloud",
        "customData": "",
        "evictionPolicy": properties.get("evictionPolicy", ""),
        "location": vm.body["location"],
        "name": vm.name,
        "osProfile": {
            "adminUsername": properties["osProfile"]["adminUsername"],
            "computerName": vm.name,
        },
        "osType": "Linux",
        "priority": properties.get("priority", "Regular"),
        "provider": "Microsoft.Compute",
        "resourceGroupName": vm.group.name,
        "resourceId": vm.id,
        "subscriptionId": vm.group.subscription,
        "tags": ";".join(f"{name}:{value}" for name, value in vm.tags.items()),
        "tagsList": [{"name": name, "value": value} for name, value in vm.tags.items()],
        "userData": base64.b64encode(b"").decode(),
        "vmId": vm.vm_id,
        "vmSize": properties["hardwareProfile"]["vmSize"],
        "zone": (vm.body.get("zones") or [""])[0],
    }


def _network(vm: Vm) -> Body:
    address = {"privateIpAddress": vm.addresses.private, "publicIpAddress": ""}
    return {
        "interface": [{"ipv4": {"ipAddress": [address], "subnet": []}, "ipv6": {"ipAddress": []}}]
    }


def _error(status: int, text: str) -> MetadataAnswer:
    return MetadataAnswer.of_json({"error": text}, status)
