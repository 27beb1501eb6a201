"""Fixtures of the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agileml.runtime.blob_store import FileBlobStore
from agileml.transport import TcpAddress
from spotctl.integrations.gang_saves import (
    Peers,
    PeerServer,
    Saves,
)

SECRET = b"the secret of a gang in a test"


class Three:
    """Three machines, each with a store that it serves."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        stores = [FileBlobStore(folder / str(machine) / "store") for machine in range(3)]
        self.servers = [PeerServer(store, SECRET, TcpAddress("127.0.0.1", 0)) for store in stores]
        self.folder, self._closed, self._stack = folder, set[int](), stack
        for machine in range(3):
            stack.callback(self.lose, machine)

    @property
    def addresses(self) -> list[TcpAddress]:
        found = [server.address for server in self.servers]
        return [address for address in found if isinstance(address, TcpAddress)]

    def peers(self, own: int, secret: bytes = SECRET) -> Peers:
        made = Peers(self.addresses, own, secret, self.folder / str(own) / "store")
        self._stack.callback(made.close)
        return made

    def saves(self, own: int, checkpoints: Path | None = None) -> Saves:
        return Saves(self.peers(own), 1, checkpoints)

    def lose(self, machine: int) -> None:
        if machine not in self._closed:
            self._closed.add(machine)
            self.servers[machine].close()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    with ExitStack() as stack:
        yield Three(tmp_path, stack)
