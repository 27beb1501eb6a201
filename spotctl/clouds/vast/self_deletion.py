"""How an instance of Vast.ai destroys itself: one that is only stopped still costs its disk.

The container's variables have its number and a key that may do nothing but show, start, stop and
destroy it: https://docs.vast.ai/documentation/instances/connect/networking, "Predefined environment
variables".

This file is part of the start-up script, so it imports only the standard library.
"""

from __future__ import annotations

import os

TRY_SECONDS = 120


def deletion(_: object) -> tuple[str, str]:
    """The URL that destroys this instance, and its key."""
    server = os.environ.get("VAST_URL") or "https://console.vast.ai"
    return f"{server.rstrip('/')}/api/v0/instances/{os.environ['CONTAINER_ID']}/", os.environ[
        "CONTAINER_API_KEY"
    ]
