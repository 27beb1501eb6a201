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
    root = "/computeMetadata/v1"
    header = {"Metadata-Flavor": "Google"}

    endpoint = os.environ.get(
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "https://compute.googleapis.com/compute/v1/"
    )
    endpoint = endpoint.rstrip("/")
    if not endpoint.endswith("/compute/v1"):
        endpoint += "/compute/v1"
    answer = fetch(host, f"{root}/instance/service-accounts/default/token", header)
    token = json.loads(answer)["access_token"]
    project = fetch(host, f"{root}/project/project-id", header)
    zone = fetch(host, f"{root}/instance/zone", header).rpartition("/")[2]
    name = fetch(host, f"{root}/instance/name", header)

    return f"{endpoint}/projects/{project}/zones/{zone}/instances/{name}", token
