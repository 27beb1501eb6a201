"""The public SkyPilot catalog on 127.0.0.1: files by their paths, which are sent only if their tag is
another one."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

from tests.servers.loopback import Reply, Request


@dataclass
class PriceCatalog:
    """Files by version and cloud; with `changed`, the server says when they changed."""

    files: dict[tuple[int, str], bytes] = field(default_factory=dict)
    changed: str = ""

    def answer(self, request: Request) -> Reply:
        by_path = {
            f"/catalogs/v{v}/{cloud}/vms.csv": body for (v, cloud), body in self.files.items()
        }
        body = by_path.get(request.path)
        if body is None:
            return Reply(404, b"404: Not Found")
        tag = f'W/"{sha256(body).hexdigest()}"'
        if request.headers.get("if-none-match") == tag:
            return Reply(304, headers={"ETag": tag})
        dated = {"Last-Modified": self.changed} if self.changed else {}
        return Reply(200, body, {"ETag": tag, **dated})
