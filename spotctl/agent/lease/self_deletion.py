"""Has the cloud delete the machine that this runs on: `python3 self_deletion.py FILE`, as any user.

FILE is the part `self_deletion` of the cloud's package, with `TRY_SECONDS` and
`deletion(fetch_metadata)`, which returns the URL that deletes this machine, and a token for the
machine's own identity. FILE is empty for a cloud whose machines end by being switched off. The
script succeeds once the cloud accepts the deletion, and fails if that takes too long; in either
case the caller then switches the machine off.

This file is also part of the start-up script, so that a machine that no launcher ever reached can
end itself: it imports only the standard library.
"""

import http.client
import os
import runpy
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

METADATA_HOST = "169.254.169.254"

MAX_PAUSE_SECONDS = 30
CALL_SECONDS = 20


def system_variables(path: str = "/etc/environment") -> dict[str, str]:
    """The variables set in the image, such as a company's proxy: lines of NAME=VALUE, possibly
    quoted.
    """
    try:
        with open(path) as file:  # noqa: PTH123 - as little as possible is imported here
            lines = [line.strip() for line in file if not line.lstrip().startswith("#")]
    except OSError:
        return {}

    pairs = [line.partition("=") for line in lines]
    return {
        name.replace("export ", "").strip(): value.strip().strip("\"'")
        for name, equals, value in pairs
        if equals
    }


def ask(
    host: str,
    path: str,
    headers: Mapping[str, str],
    method: str = "GET",
    body: str | None = None,
    seconds: float = CALL_SECONDS,
) -> tuple[int, str, Mapping[str, str]]:
    """Calls a metadata service, never through a proxy. Returns status, body and headers. Raises
    OSError.
    """
    connection = http.client.HTTPConnection(host, timeout=seconds)
    try:
        connection.request(method, path, body=body, headers=dict(headers))
        answer = connection.getresponse()
        return (
            answer.status,
            answer.read().decode(),
            {name.lower(): value for name, value in answer.getheaders()},
        )
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


def delete_self(
    part: Mapping[str, Any], say: Callable[[str], None], seconds: float | None = None
) -> bool:
    """Repeats the call until it succeeds or the time is up. Returns whether it succeeded.

    `part` has the names of the cloud's part.
    """
    if "deletion" not in part:
        return True

    give_up = time.monotonic() + (part["TRY_SECONDS"] if seconds is None else seconds)
    pause = 1.0
    while True:
        try:
            url, token = part["deletion"](fetch_metadata)
            headers = {"Authorization": f"Bearer {token}"}
            # The cloud's API.
            request = urllib.request.Request(url, method="DELETE", headers=headers)  # noqa: S310
            try:
                urllib.request.urlopen(request, timeout=CALL_SECONDS).close()  # noqa: S310
            except urllib.error.HTTPError as error:
                # Otherwise the machine is already gone.
                if error.code != 404:
                    answered = error.read()[:300].decode(errors="replace")
                    problem = f"DELETE {url}: status {error.code}: {answered}"
                    raise OSError(problem) from None
        except (OSError, ValueError, KeyError) as error:
            say(f"this machine cannot delete itself: {error}")
        else:
            return True
        if time.monotonic() + pause > give_up:
            return False
        time.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE_SECONDS)


if __name__ == "__main__":
    os.environ.update(system_variables())
    deleted = delete_self(
        runpy.run_path(sys.argv[1]),
        lambda text: print("spotctl:", text, flush=True),  # noqa: T201
    )
    sys.exit(0 if deleted else 1)
