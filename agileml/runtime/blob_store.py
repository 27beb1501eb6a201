"""Named blobs that outlive the process that wrote them: the contract, and files of one computer as
an implementation.

What a job must not lose goes through a blob store: checkpoints, and the role that joining nodes
read. A store of a cloud is one more class with these four methods that passes
`tests/agileml/runtime/blob_store_suite.py`.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from agileml.errors import BadArgument, Unrecoverable
from agileml.runtime.ground import replaced

DIGEST_BYTES = 32
PIECE_BYTES = 1 << 20

BlobBytes = bytes | bytearray | memoryview

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")


class UnreadableBlob(Unrecoverable):
    """A blob is missing, or is not what was written under its name."""


class BlobStore(Protocol):
    """Blobs by name; a name is made of letters, digits and `._-`, with `/` between its parts.

    A blob is whole or absent: no reader sees one that is half written, and a writer that dies
    leaves the blob as it was. When two processes write the same name, the last one wins. Safe to
    use from any thread and process.
    """

    def put(self, name: str, pieces: Iterable[BlobBytes]) -> None:
        """Writes the pieces one after another as one blob, in place of any earlier one.

        The blob survives a crash of the machine once this returns. Raises OSError if it cannot be
        written, and whatever `pieces` raises; the earlier blob then stays.
        """
        ...

    def get(self, name: str) -> Iterator[bytes]:
        """The blob's content, in pieces of at most PIECE_BYTES.

        Raises UnreadableBlob if the blob is missing or damaged. Damage may be noticed only after
        the last piece, so a caller must not act on the content before the iterator has ended.
        """
        ...

    def list(self, prefix: str = "") -> list[str]:
        """Names that begin with `prefix`, sorted. A blob that is being written is not among
        them."""
        ...

    def delete(self, name: str) -> None:
        """Removes a blob; does nothing if there is none."""
        ...


class FileBlobStore:
    """Blobs as files of a folder. Each file begins with the SHA-256 of what follows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str, pieces: Iterable[BlobBytes]) -> None:
        """Two processes may write the same blob if one was declared lost but still runs: each
        writes a file of its own, which takes the blob's place."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path, lasting=True) as new:
            new.touch(0o600)
            with new.open("wb") as file:
                file.write(bytes(DIGEST_BYTES))
                digest = sha256()
                for piece in pieces:
                    digest.update(piece)
                    file.write(piece)
                file.seek(0)
                file.write(digest.digest())

    def get(self, name: str) -> Iterator[bytes]:
        """Reads the file piece by piece, and compares its digest at the end."""
        path = self._path(name)
        try:
            with path.open("rb") as file:
                expected = file.read(DIGEST_BYTES)
                digest = sha256()
                while piece := file.read(PIECE_BYTES):
                    digest.update(piece)
                    yield piece
        except OSError as error:
            raise UnreadableBlob(f"{path} cannot be read: {error.strerror}") from error

        if digest.digest() != expected:
            raise UnreadableBlob(f"{path} is damaged: its content does not match its digest")

    def list(self, prefix: str = "") -> list[str]:
        """Walks the part of the folder that the prefix names."""
        start = self._folder / prefix.rpartition("/")[0]
        names = (
            path.relative_to(self._folder).as_posix() for path in start.rglob("*") if path.is_file()
        )
        return sorted(name for name in names if name.startswith(prefix) and is_name(name))

    def delete(self, name: str) -> None:
        """Removes the file."""
        with contextlib.suppress(FileNotFoundError):
            self._path(name).unlink()

    def _path(self, name: str) -> Path:
        return self._folder / checked_name(name)


def checked_name(name: str) -> str:
    """The name, if it is valid. Raises BadArgument."""
    if not _NAME.fullmatch(name):
        raise BadArgument(
            f"blob name {name!r}: use letters, digits and ._- with / between the parts"
        )
    return name


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def file_pieces(path: Path) -> Iterator[bytes]:
    """A file's content, for `put`."""
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def fetch_file(store: BlobStore, name: str, path: Path) -> None:
    """Writes a blob to a file, which is incomplete if this raises."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.writelines(store.get(name))
