"""Copies of a training's data for its runner, which builds the trainer once to learn the shape of the model."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from threading import Thread

from spotctl.agent.blobs.identity import StoreIdentity
from spotctl.agent.data_transfer import local_copy
from spotctl.agent.errors import AgentError
from spotctl.agent.store_patience import patiently


class DataHere:
    """Copies data in a thread: it may take longer than a lease, and the run renews leases in its turns."""

    def __init__(
        self, data: Mapping[str, str], cache: Path, who: StoreIdentity, near: Mapping[str, str] | None = None
    ) -> None:
        """`data` are the places by environment variables, and `near` those of copies that are read if they exist."""
        self._data, self._cache, self._who, self._near = data, cache, who, near or {}
        self._thread: Thread | None = None
        self._copies: dict[str, str] = {}
        self._failure: AgentError | None = None

    def copies(self) -> Mapping[str, str] | None:
        """The paths by environment variables, None while data is still being copied. The first call begins.

        TransferFailed: the data does not exist, or cannot be copied.
        """
        if self._thread is None and self._data:
            # A daemon: a process whose run was stopped does not wait for it.
            self._thread = Thread(target=self._copy, name="data", daemon=True)
            self._thread.start()
        if self._thread is not None and self._thread.is_alive():
            return None
        if self._failure is not None:
            raise self._failure
        return self._copies

    def _copy(self) -> None:
        try:
            for variable, location in self._data.items():
                # What is wrong in the end, the run says.
                near = self._near.get(variable, "")
                copy = partial(local_copy, location, self._cache, self._who, near)
                self._copies[variable] = str(patiently(copy, lambda _: None))
        except AgentError as error:
            self._failure = error
