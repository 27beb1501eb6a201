"""How the processes of a job find each other: addresses, the shared secret and blobs, all by name.

A process gets its rendezvous as part of its role. It never derives a path from a name, so that an implementation
for several computers (TCP with TLS, blobs in a cloud) can replace the folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agileml.runtime.blob_store import BlobStore, FileBlobStore
from agileml.transport import Address, UnixAddress


class Rendezvous(Protocol):
    """An immutable value that can be pickled: roles carry it to other processes."""

    @property
    def secret(self) -> bytes:
        """The key by which the job's processes authenticate each other; empty in a role that is published."""
        ...

    @property
    def blobs(self) -> BlobStore:
        """What every process of the job can read and write, and what survives all of them."""
        ...

    def address(self, name: str) -> Address:
        """Where the process of this name listens, whether it runs or not. Raises BadAddress if it has none."""
        ...


@dataclass(frozen=True, slots=True)
class FolderRendezvous:
    """Processes of one computer: Unix sockets and files in a folder."""

    folder: Path
    secret: bytes = field(repr=False)

    def address(self, name: str) -> UnixAddress:
        """A socket in the folder. Raises BadAddress if its path is too long for the system."""
        return UnixAddress(str(self.folder / f"{name}.sock"))

    @property
    def blobs(self) -> FileBlobStore:
        """Files in the folder."""
        return FileBlobStore(self.folder)
