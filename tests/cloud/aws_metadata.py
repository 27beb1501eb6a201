"""169.254.169.254 as an EC2 instance sees it: version 2 of the service, with session tokens."""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cloud.aws_orders import Order
from tests.cloud.host import MetadataAnswer, MetadataRequest
from tests.servers.loopback import Reply

_TOKEN, _LIFETIME = "x-aws-ec2-metadata-token", "x-aws-ec2-metadata-token-ttl-seconds"
_LONGEST_SECONDS = 21600

LOOPBACK_KEYS = {"AccessKeyId": "ASIALOOPBACK", "SecretAccessKey": "loopback", "Token": "loopback"}
"""Keys of a role, for servers that do not check them."""


def iso(micros: int) -> str:
    """A moment as AWS writes it."""
    return datetime.fromtimestamp(micros // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class InstanceMetadata:
    """What one instance can read. `facts` are files by path; notices are set when they are
    announced (microseconds).

    `tokens` is the order's setting for version 1: with "required", only requests with a token are
    answered.
    """

    facts: Mapping[str, str]
    dynamic: Mapping[str, str]
    user_data: bytes
    keys: Mapping[str, str]
    tokens: str = "optional"
    enabled: bool = True
    role: str | None = None
    evicted_at: int | None = None
    rebalance_at: int | None = None
    _sessions: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: MetadataRequest) -> MetadataAnswer:
        if not self.enabled:
            return Reply(403)
        if request.path == "/latest/api/token":
            return self._new_token(request)
        if request.method != "GET":
            return Reply(405)
        given = request.headers.get(_TOKEN)
        if given is None and self.tokens == "required":
            return Reply(401)
        if given is not None and self._sessions.get(given, 0.0) < time.monotonic():
            return Reply(401)
        return self._file(request.path)

    def _new_token(self, request: MetadataRequest) -> MetadataAnswer:
        lifetime = request.headers.get(_LIFETIME, "")
        # A proxy on the machine must not hand out tokens.
        if request.method != "PUT" or "x-forwarded-for" in request.headers:
            return Reply(405 if request.method != "PUT" else 403)
        if not lifetime.isdigit() or not 1 <= int(lifetime) <= _LONGEST_SECONDS:
            return Reply(400)
        token = base64.urlsafe_b64encode(secrets.token_bytes(40)).decode()
        with self._lock:
            self._sessions[token] = time.monotonic() + int(lifetime)
        return Reply(200, token.encode(), {"Content-Type": "text/plain", _LIFETIME: lifetime})

    def _file(self, path: str) -> MetadataAnswer:
        if path == "/latest/user-data":
            return Reply(200, self.user_data) if self.user_data else Reply(404)
        tree, _, rest = path.removeprefix("/latest/").partition("/")
        if tree not in ("meta-data", "dynamic"):
            return Reply(404)
        return _read(self._facts() if tree == "meta-data" else dict(self.dynamic), rest)

    def _facts(self) -> dict[str, str]:
        files = dict(self.facts)
        if self.evicted_at is not None:
            files["spot/instance-action"] = json.dumps(
                {"action": "terminate", "time": iso(self.evicted_at)}
            )
            files["spot/termination-time"] = iso(self.evicted_at)
        if self.rebalance_at is not None:
            files["events/recommendations/rebalance"] = json.dumps(
                {"noticeTime": iso(self.rebalance_at)}
            )
        if self.role is not None:
            files[f"iam/security-credentials/{self.role}"] = _credentials(self.keys)
        return files


def metadata_of(
    instance: Any,  # noqa: ANN401
    order: Order,
    region: str,
    account: str,
    keys: Mapping[str, str],
) -> InstanceMetadata:
    facts = {
        "ami-id": instance.image_id,
        "hostname": instance.private_dns_name,
        "instance-action": "none",
        "instance-id": instance.id,
        "instance-life-cycle": "spot" if order.spot else "on-demand",
        "instance-type": order.type,
        "placement/availability-zone": order.zone,
        "placement/region": region,
        "services/domain": "amazonaws.com",
    }
    if order.metadata.get("InstanceMetadataTags") == "enabled":
        facts |= {
            f"tags/instance/{name}": value for name, value in order.tags.get("instance", {}).items()
        }
    return InstanceMetadata(
        facts=facts,
        dynamic=_identity(instance, order, region, account),
        user_data=order.user_data,
        keys=keys,
        tokens=order.metadata.get("HttpTokens", "optional"),
        enabled=order.metadata.get("HttpEndpoint", "enabled") == "enabled",
        role=order.profile,
    )


def _identity(instance: Any, order: Order, region: str, account: str) -> dict[str, str]:  # noqa: ANN401
    document = {
        "accountId": account,
        "availabilityZone": order.zone,
        "imageId": instance.image_id,
        "instanceId": instance.id,
        "instanceType": order.type,
        "region": region,
    }
    return {"instance-identity/document": json.dumps(document)}


def _credentials(keys: Mapping[str, str]) -> str:
    now = datetime.now(UTC)
    times = {"LastUpdated": now, "Expiration": now + timedelta(hours=6)}
    return json.dumps(
        {
            "Code": "Success",
            "Type": "AWS-HMAC",
            **keys,
            **{name: when.strftime("%Y-%m-%dT%H:%M:%SZ") for name, when in times.items()},
        }
    )


def _read(files: dict[str, str], path: str) -> MetadataAnswer:
    """A file, or the list of what is in a folder."""
    if path in files:
        return Reply(200, files[path].encode(), {"Content-Type": "text/plain"})
    folder = path.rstrip("/") + "/" if path.rstrip("/") else ""
    names = {name.removeprefix(folder) for name in files if name.startswith(folder)}
    listed = sorted(
        {
            head + ("/" if slash else "")
            for head, slash, _ in (name.partition("/") for name in names)
        }
    )
    return (
        Reply(200, "\n".join(listed).encode(), {"Content-Type": "text/plain"})
        if listed
        else Reply(404)
    )
