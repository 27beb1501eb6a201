"""The callers of object stores: a rented machine, which has an identity of its own in each cloud, or a launcher."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from spotctl.agent.cloud_parts import STORAGE, cloud_part
from spotctl.agent.data.blobs.http import HttpCall

EARLY_SECONDS = 300.0
"""How long before their expiry credentials are fetched again."""


class StoreIdentity(Protocol):
    """A caller of object stores. StoreRefused: there are no credentials, or they cannot be used."""

    def at(self, cloud: str) -> Any:  # noqa: ANN401 - each cloud's store asks for something else
        """The identity in a cloud, as the cloud's part `storage` asks for it."""
        ...


class TokenIdentity(Protocol):
    """An identity that is proved by a token."""

    def token(self) -> tuple[str, float]:
        """A token, and the seconds for which it is valid."""
        ...


class BearerToken:
    """Sends a token; `token` returns a new one, and the seconds for which it is valid."""

    def __init__(self, token: Callable[[], tuple[str, float]]) -> None:
        self._fetch = token
        self._token, self._until = "", 0.0

    def __call__(self, _: HttpCall) -> Mapping[str, str]:
        if time.monotonic() > self._until - EARLY_SECONDS:
            self._token, seconds = self._fetch()
            # A token that expires sooner than `EARLY_SECONDS` is used once.
            self._until = time.monotonic() + seconds
        return {"Authorization": f"Bearer {self._token}"}


class MachineIdentities:
    """The identities of this machine; credentials in the environment come first."""

    def at(self, cloud: str) -> Any:  # noqa: ANN401 - see `StoreIdentity`
        part = cloud_part(cloud, STORAGE)
        assert part is not None
        return part.MACHINE


MACHINE = MachineIdentities()
