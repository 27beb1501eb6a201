"""How a machine of Azure deletes itself: a machine that is only switched off still costs money.

This file is part of the start-up script, so it imports only the standard library.
"""

from __future__ import annotations

import json
import os
import urllib.parse
from collections.abc import Callable, Mapping

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
    header = {"Metadata": "true"}

    described = fetch(host, "/metadata/instance?api-version=2021-02-01", header)
    machine = json.loads(described)["compute"]
    known = ENDPOINTS.get(machine.get("azEnvironment"), "https://management.azure.com")
    endpoint = os.environ.get("AZURE_RESOURCE_MANAGER_URL", known).rstrip("/")
    resource = urllib.parse.quote(known + "/", safe="")
    path = f"/metadata/identity/oauth2/token?api-version=2018-02-01&resource={resource}"
    token = json.loads(fetch(host, path, header))["access_token"]

    return f"{endpoint}{machine['resourceId']}?api-version=2024-07-01", token
