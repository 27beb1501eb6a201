"""Has the cloud delete the machine that this runs on: `python3 self_deletion.py aws|gcp|azure`, as any user.

On AWS, a machine's shutdown terminates it. On Google Cloud and Azure, a machine that is only switched off still costs
money, so it deletes itself through the cloud's API, with a token for its own identity from the metadata service. The
script succeeds once the cloud accepts the deletion, and fails if that takes too long; in either case the caller then
switches the machine off.

This file is also part of the start-up script, so that a machine that no launcher ever reached can end itself: it
imports only the standard library.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

METADATA_HOST = "169.254.169.254"

# On Azure a machine that is switched off costs as much as a running one, so it tries longer: the network may come back.
TRY_SECONDS = {"gcp": 120, "azure": 900}
MOST_PAUSE_SECONDS = 30
CALL_SECONDS = 20

AZURE_ENDPOINTS = {
    "AzureUSGovernmentCloud": "https://management.usgovcloudapi.net",
    "AzureChinaCloud": "https://management.chinacloudapi.cn",
}


def system_variables(path: str = "/etc/environment") -> dict[str, str]:
    """The variables set in the image, such as a company's proxy: lines of NAME=VALUE, possibly quoted."""
    try:
        with open(path) as file:  # noqa: PTH123 - as little as possible is imported here
            lines = [line.strip() for line in file if not line.lstrip().startswith("#")]
    except OSError:
        return {}
    pairs = [line.partition("=") for line in lines]
    return {name.replace("export ", "").strip(): value.strip().strip("\"'") for name, equals, value in pairs if equals}


def ask(
    host: str,
    path: str,
    headers: Mapping[str, str],
    method: str = "GET",
    body: str | None = None,
    seconds: float = CALL_SECONDS,
) -> tuple[int, str, Mapping[str, str]]:
    """Calls a metadata service, never through a proxy. Returns status, body and headers. Raises OSError."""
    connection = http.client.HTTPConnection(host, timeout=seconds)
    try:
        connection.request(method, path, body=body, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}
    except http.client.HTTPException as error:
        raise OSError(f"{host}: {error!r}") from None
    finally:
        connection.close()


def fetch_metadata(host: str, path: str, headers: Mapping[str, str]) -> str:
    """The answer of a metadata service."""
    status, body, _ = ask(host, path, headers)
    if status != 200:
        raise OSError(f"http://{host}{path}: status {status}: {body[:200]}")
    return body


def google_host() -> str:
    return os.environ.get("GCE_METADATA_HOST") or METADATA_HOST


def google() -> tuple[str, str]:
    """The URL that deletes this machine, and the token."""

    def value(path: str) -> str:
        return fetch_metadata(google_host(), f"/computeMetadata/v1/{path}", {"Metadata-Flavor": "Google"})

    endpoint = os.environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "https://compute.googleapis.com/compute/v1/")
    endpoint = endpoint.rstrip("/")
    if not endpoint.endswith("/compute/v1"):
        endpoint += "/compute/v1"
    token = json.loads(value("instance/service-accounts/default/token"))["access_token"]
    project, zone, name = (value(path) for path in ("project/project-id", "instance/zone", "instance/name"))
    zone = zone.rpartition("/")[2]
    return f"{endpoint}/projects/{project}/zones/{zone}/instances/{name}", token


def azure_host() -> str:
    return os.environ.get("AZURE_METADATA_HOST") or METADATA_HOST


def azure() -> tuple[str, str]:
    """The URL that deletes this machine, and the token."""

    def values(path: str) -> Any:  # noqa: ANN401 - JSON from outside
        return json.loads(fetch_metadata(azure_host(), f"/metadata/{path}", {"Metadata": "true"}))

    machine = values("instance?api-version=2021-02-01")["compute"]
    known = AZURE_ENDPOINTS.get(machine.get("azEnvironment"), "https://management.azure.com")
    endpoint = os.environ.get("AZURE_RESOURCE_MANAGER_URL", known).rstrip("/")
    resource = urllib.parse.quote(known + "/", safe="")
    token = values(f"identity/oauth2/token?api-version=2018-02-01&resource={resource}")["access_token"]
    return f"{endpoint}{machine['resourceId']}?api-version=2024-07-01", token


def delete(url: str, token: str) -> None:
    """Deletes the machine. Raises OSError unless the cloud accepts, or the machine is already gone."""
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, method="DELETE", headers=headers)  # noqa: S310 - the cloud's API
    try:
        with urllib.request.urlopen(request, timeout=CALL_SECONDS):  # noqa: S310
            return
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise OSError(f"DELETE {url}: status {error.code}: {error.read()[:300].decode(errors='replace')}") from None


def delete_self(cloud: str, say: Callable[[str], None], seconds: float | None = None) -> bool:
    """Repeats the call until it succeeds or the time is up. Returns whether it succeeded."""
    if cloud not in TRY_SECONDS:
        return True
    give_up = time.monotonic() + (TRY_SECONDS[cloud] if seconds is None else seconds)
    pause = 1.0
    while True:
        try:
            delete(*(google() if cloud == "gcp" else azure()))
        except (OSError, ValueError, KeyError) as error:
            say(f"this machine cannot delete itself: {error}")
        else:
            return True
        if time.monotonic() + pause > give_up:
            return False
        time.sleep(pause)
        pause = min(2 * pause, MOST_PAUSE_SECONDS)


if __name__ == "__main__":
    os.environ.update(system_variables())
    deleted = delete_self(sys.argv[1], lambda text: print("spotctl:", text, flush=True))  # noqa: T201 - the console
    sys.exit(0 if deleted else 1)
