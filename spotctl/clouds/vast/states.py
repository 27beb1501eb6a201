"""The states of an instance of Vast.ai: whether it runs, was outbid, or failed.

An instance has a word for its container (`actual_status`), three for its contract (`cur_state`,
`next_state`, `intended_status`), and the message of its host's Docker. Only being outbid is an
eviction: it says something of the odds of later bids, a container that ended says nothing.

Sources: docs.vast.ai/sdk/python/reference/show-instance (the words) and cli/reference/start-instance
(who waits for a machine that others have is "scheduling", maybe for ever); dstack's
`update_provisioning_data` for Vast.ai (a refused container stays `created`; who is outbid has
`stopped` in all three words of the contract); github.com/dizcza/docker-hashcat/issues/21 (a driver
that is too old). Read on 2026-12-01. Which messages are final, and that a host which is offline is
given up at once, are choices of ours: no account has tried them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spotctl.clouds.provider import MachineState

_LONGEST = 200
_NEVER_RUNS = re.compile(
    r"OCI runtime create failed|unsatisfied condition|pull access denied|manifest unknown"
    r"|manifest for .* not found|no matching manifest|invalid reference format"
    r"|no space left on device",
    re.IGNORECASE,
)
"""Messages after which a host's Docker does not try again."""


def message_of(row: Mapping[str, Any]) -> str:
    """The word of an instance's host, such as how far its image has come, on one line."""
    words = str(row.get("status_msg") or "").split()
    return "".join(filter(str.isprintable, " ".join(words)))[:_LONGEST]


def state_of(row: Mapping[str, Any]) -> tuple[MachineState, str]:
    """The state of an instance, and its failure. One that is paused without a failure was outbid,
    or another renter took its machine on demand: spotctl stops none. Before its container was
    made, an instance may be stopped because it is about to run.

    >>> stopped = {"cur_state": "stopped", "next_state": "running", "is_bid": True}
    >>> state_of(stopped), state_of(stopped | {"actual_status": "exited"})
    ((<MachineState.STARTING: 'starting'>, ''), (<MachineState.PAUSED: 'paused'>, ''))
    """
    actual, message = row.get("actual_status"), message_of(row)
    if row.get("cur_state") == "stopped" or actual == "stopped":
        if row.get("next_state") == "running" and actual in (None, "created", "loading"):
            return MachineState.STARTING, ""
        by_others = "stopped by its host, or because the credit of the account is used up"
        return MachineState.PAUSED, "" if row.get("is_bid") is True else by_others
    if actual == "exited":
        return MachineState.PAUSED, f"its container ended{message and f': {message}'}"
    if actual == "offline":
        return MachineState.PAUSED, "its host is offline"
    if actual != "running" and _NEVER_RUNS.search(message):
        return MachineState.PAUSED, f"its container cannot start: {message}"

    return MachineState.RUNNING if actual == "running" else MachineState.STARTING, ""
