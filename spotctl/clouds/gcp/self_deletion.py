"""How a machine of Compute Engine deletes itself: a machine that is only switched off still costs
money.

This file is part of the start-up script, so it imports only the standard library.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping

METADATA_HOST = "169.254.169.254"
TRY_SECONDS = 120


def deletion(fetch: Callable[[str, str, Mapping[str, str]], str]) -> tuple[str, str]:
    """The URL that deletes this machine, and the token."""

    host = os.environ.get("GCE_METADATA_HOST") or METADATA_HOST

    def value(path: str) -> str:
        return fetch(host, f"/computeMetadata/v1/{path}", {"Metadata-Flavor": "Google"})

    endpoint = os.environ.get(
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "https://compute.googleapis.com/compute/v1/"
    )
    endpoint = endpoint.rstrip("/")
    if not endpoint.endswith("/compute/v1"):
        endpoint += "/compute/v1"
    token = json.loads(value("instance/service-accounts/default/token"))["access_token"]
    project, zone, name = (
        value(path) for path in ("project/project-id", "instance/zone", "instance/name")
    )
    zone = zone.rpartition("/")[2]

    return f"{endpoint}/projects/{project}/zones/{zone}/instances/{name}", token
