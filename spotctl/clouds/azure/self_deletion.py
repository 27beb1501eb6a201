"""How a machine of Azure deletes itself: a machine that is only switched off still costs money.

This file is part of the start-up script, so it imports only the standard library.
"""

from __future__ import annotations

import json
import os
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

METADATA_HOST = "169.254.169.254"
TRY_SECONDS = 900
"""Long, because the network may come back: a machine that is switched off costs as much as a
running one."""

ENDPOINTS = {
    "AzureUSGovernmentCloud": "https://management.usgovcloudapi.net",
    "AzureChinaCloud": "https://management.chinacloudapi.cn",
}


def deletion(fetch: Callable[[str, str, Mapping[str, str]], str]) -> tuple[str, str]:
    """The URL that deletes this machine, and the token."""

    host = os.environ.get("AZURE_METADATA_HOST") or METADATA_HOST

    def values(path: str) -> Any:  # noqa: ANN401 - JSON from outside
        return json.loads(fetch(host, f"/metadata/{path}", {"Metadata": "true"}))

    machine = values("instance?api-version=2021-02-01")["compute"]
    known = ENDPOINTS.get(machine.get("azEnvironment"), "https://management.azure.com")
    endpoint = os.environ.get("AZURE_RESOURCE_MANAGER_URL", known).rstrip("/")
    resource = urllib.parse.quote(known + "/", safe="")
    token = values(f"identity/oauth2/token?api-version=2018-02-01&resource={resource}")[
        "access_token"
    ]

    return f"{endpoint}{machine['resourceId']}?api-version=2024-07-01", token
