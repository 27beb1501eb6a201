"""`RemoteMachine`: a provider's description of a machine that is reached over ssh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

USER = "spotctl"
"""The user that the start-up script creates: it runs the payloads, and the launcher logs in as
it."""


@dataclass(frozen=True, slots=True)
class RemoteMachine:
    """A machine that boots with our start-up script. `index` is its number within its request, from
    0.

    `console` returns the console output that the cloud shows by now, which proves the machine's ssh
    host key, or raises an error of a provider. `gone` says whether the cloud has ended the machine.
    Both are called from threads of `RemoteAgents`.
    """

    id: str
    index: int
    host: str
    port: int
    console: Callable[[], str]
    gone: Callable[[], bool]
    user: str = USER
