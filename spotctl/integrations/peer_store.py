"""The saves of a gang in the memory or on the disks of its machines: a blob store per machine, which the others reach.

Connections are AgileML's: TLS that is keyed by the gang's secret. A lost machine takes its copies along, so each file
is kept on several machines.
"""

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from agileml.errors import AgileMLError
from agileml.protocol.actions import CONTROLLER
from agileml.runtime.blob_link import BLOB_MESSAGES, LinkedBlobStore
from agileml.runtime.blob_server import BlobServer
from agileml.runtime.blob_store import BlobStore, FileBlobStore, fetch_file, file_pieces
from agileml.transport import Endpoint, Identity, Lost, Received, TcpAddress, TransportSettings, new_instance
from agileml.transport.buckets import BUCKET, Assembly, split
from agileml.transport.certificates import tls_of
from agileml.transport.codec import Codec
from agileml.transport.framing import FrameLimits

VERSION = "gang-1"
PATIENCE_SECONDS = 2.0
"""The time to reach a machine of the gang; a machine that has not answered by then counts as gone."""

_TURN_SECONDS = 0.5


class PeerServer:
    """Serves this machine's store to the others, in a thread of its own."""

    def __init__(self, store: BlobStore, secret: bytes, listen: TcpAddress) -> None:
        """Starts serving. Raises BadAddress if the address cannot be used."""
        self._limits = FrameLimits()
        settings = TransportSettings(self._limits, tls=tls_of(secret))
        self._endpoint = Endpoint(Identity(CONTROLLER, new_instance(), VERSION), secret, settings)
        self._blobs = BlobServer(store, self._endpoint.wake)
        self._codec, self._parts = Codec(BLOB_MESSAGES), dict[str, Assembly]()
        self._closing = threading.Event()
        self.address = self._endpoint.listen(listen)
        self._thread = threading.Thread(target=self._run, name="peer store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and all links."""
        self._closing.set()
        self._endpoint.wake()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            for event in self._endpoint.poll(_TURN_SECONDS):
                if isinstance(event, Received):
                    self._receive(event)
                elif isinstance(event, Lost):
                    self._parts.pop(event.peer, None)
                    self._blobs.drop(event.peer)
            for client, answer in self._blobs.answers():
                if client in self._endpoint.peers:
                    for frame in split(self._codec.encode(answer), self._limits):
                        self._endpoint.send(client, *frame)
        self._endpoint.close()

    def _receive(self, event: Received) -> None:
        message = event.kind, event.header, event.arrays
        if event.kind == BUCKET:
            whole = self._parts.setdefault(event.peer, Assembly(self._limits)).add(event.header, event.arrays)
            if whole is None:
                return
            message = whole
        self._blobs.handle(event.peer, self._codec.decode(*message))


class Peers:
    """The stores of all machines of a gang. Stores that do not answer are skipped."""

    def __init__(self, addresses: Sequence[TcpAddress], own: int, secret: bytes, folder: Path) -> None:
        self._links = [LinkedBlobStore(address, secret, VERSION, PATIENCE_SECONDS) for address in addresses]
        self._stores: list[BlobStore] = [*self._links]
        self._stores[own] = FileBlobStore(folder)
        self.addresses, self._own, self._folder = addresses, own, folder
        self.scratch = folder.parent / "scratch"

    def close(self) -> None:
        """Closes the links to other machines."""
        for link in self._links:
            link.close()

    def holders(self, copies: int) -> list[BlobStore]:
        """This machine's store, and those of the next `copies` machines."""
        count = len(self._stores)
        return [self._stores[(self._own + step) % count] for step in range(min(copies + 1, count))]

    def put(self, name: str, path: Path, copies: int) -> int:
        """Stores a file here and on `copies` other machines; returns how many of these answered."""
        reached = 0
        for store in self.holders(copies):
            with suppress(AgileMLError, OSError):
                store.put(name, file_pieces(path))
                reached += store is not self._stores[self._own]
        return reached

    def names(self) -> dict[str, list[BlobStore]]:
        """The files of all machines that answer, each with the stores that have it, this machine's first."""
        holders: dict[str, list[BlobStore]] = {}
        for store in self.holders(len(self._stores)):
            with suppress(AgileMLError, OSError):
                for name in store.list():
                    holders.setdefault(name, []).append(store)
        return holders

    def drop_before(self, prefix: str) -> None:
        """Removes this machine's files whose names sort before a prefix."""
        own = self._stores[self._own]
        for name in own.list():
            if name < prefix:
                own.delete(name)
                # After its last file, a folder is empty; thousands of empty folders would slow down each look.
                with suppress(OSError):
                    (self._folder / name).parent.rmdir()


def fetch(name: str, stores: Iterable[BlobStore], path: Path) -> bool:
    """Copies a file from the first store that still has a whole copy; returns whether there was one."""
    for store in stores:
        with suppress(AgileMLError, OSError):
            fetch_file(store, name, path)
            return True
    return False
