"""How a pod of RunPod ends itself: one that is stopped may be billed.

A pod's variables have its number and a key of its own: docs.runpod.io, "Environment variables".
The documentation of `runpodctl` has pods end themselves with it. Which of the two REST APIs takes
the key is not documented, so that each is asked in turn.

This file is part of the start-up script, so it imports only the standard library.
"""

from __future__ import annotations

import os
from itertools import cycle

TRY_SECONDS = 120

APIS = cycle(("https://api.runpod.io/v2", "https://rest.runpod.io/v1"))


def deletion(_: object) -> tuple[str, str]:
    """The URL that ends this pod, and its key."""
    given = os.environ.get("RUNPOD_API_BASE_URL")
    api = f"{given.rstrip('/')}/v2" if given else next(APIS)
    return f"{api}/pods/{os.environ['RUNPOD_POD_ID']}", os.environ["RUNPOD_API_KEY"]
