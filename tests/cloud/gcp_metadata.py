"""The metadata service of Compute Engine, as one machine sees it.

https://cloud.google.com/compute/docs/metadata/querying-metadata
"""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field
from typing import Any

from tests.cloud.host import MetadataAnswer, MetadataRequest

_ROOT = "/computeMetadata/v1/"
_FLAVOR = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}
_HELD_SECONDS = 600.0


@dataclass
class MachineMetadata:
    """Answers for one machine. `values` are the paths below /computeMetadata/v1/ and their
    texts."""

    values: dict[str, str]
    token: str
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, request: MetadataRequest) -> MetadataAnswer:
        if (
            request.headers.get("metadata-flavor") != "Google"
            or "x-forwarded-for" in request.headers
        ):
            return MetadataAnswer(403, b"Missing Metadata-Flavor:Google header.", dict(_FLAVOR))
        path = request.path.removeprefix(_ROOT)
        if path == request.path:
            return MetadataAnswer(404, b"", dict(_FLAVOR))
        if path == "instance/service-accounts/default/token":
            body = {"access_token": self.token, "expires_in": 3599, "token_type": "Bearer"}
            return MetadataAnswer(
                200, json.dumps(body).encode(), {"Content-Type": "application/json", **_FLAVOR}
            )
        if request.query.get("wait_for_change") == ["true"]:
            self._wait(path, request)
        return self._told(path)

    def change(self, path: str, text: str) -> None:
        """Answers those who wait for a change of this path."""
        with self._changed:
            self.values[path] = text
            self._changed.notify_all()

    def _wait(self, path: str, request: MetadataRequest) -> None:
        seconds = float(request.query.get("timeout_sec", [str(_HELD_SECONDS)])[0])
        with self._changed:
            known = request.query.get("last_etag", [etag(self.values.get(path, ""))])[0]
            self._changed.wait_for(lambda: etag(self.values.get(path, "")) != known, seconds)

    def _told(self, path: str) -> MetadataAnswer:
        text: Any = self.values.get(path)
        if text is None and path.endswith("/"):
            below = {
                one.removeprefix(path).partition("/")[0]
                for one in self.values
                if one.startswith(path)
            }
            text = "\n".join(sorted(below)) or None
        if text is None:
            return MetadataAnswer(404, b"", dict(_FLAVOR))
        return MetadataAnswer(
            200, text.encode(), {"Content-Type": "application/text", "ETag": etag(text), **_FLAVOR}
        )


def etag(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
