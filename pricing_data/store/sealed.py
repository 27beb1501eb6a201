"""Sealed files: Parquet files in which no changed byte goes unnoticed, and which say to what store
they belong.

The footer has a checksum of every block of the data before the footer, and the file's name has a
digest of the footer. So a reader checks the footer and the blocks that it needs, and nothing else.
"""

import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from pricing_data.errors import StoreError
from pricing_data.store.manifest import damaged

_SEAL = b"spotctl.seal"
_DESCRIPTION = b"spotctl.store"
_BLOCK = 1 << 16
_MAGIC = 8
"""Bytes after the footer: its length, and the format's name."""
_NAME = re.compile(
    r"(?P<kind>[a-z_]+)(?P<sources>-[0-9a-f]{32})?-(?P<number>\d{8})-(?P<digest>[0-9a-f]{32})\.parquet"
)


@dataclass(frozen=True, slots=True)
class Origin:
    """A file's name: what the file holds, which commit wrote it, and whether it follows from other
    files.
    """

    kind: str
    number: int
    digest: str
    derived: bool

    @classmethod
    def of(cls, name: str) -> "Origin | None":
        """The origin of a sealed file; None for any other."""
        match = _NAME.fullmatch(name)
        if match:
            has_sources = bool(match["sources"])
            return cls(match["kind"], int(match["number"]), match["digest"], has_sources)
        return None


class BlockSums(io.FileIO):
    """A new file, with the checksum of each block written to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "wb")
        self._sums: list[int] = []
        self._at = 0

    def write(self, data: Any) -> int:  # noqa: ANN401  # any buffer, as for every file
        """Writes all of the data."""
        rest = memoryview(data).cast("B")
        while rest:
            part = rest[: _BLOCK - self._at % _BLOCK]
            done = super().write(part) or 0
            begun = self._at % _BLOCK != 0
            before = self._sums.pop() if begun else 0
            total = crc32(part[:done], before)
            self._sums.append(total)
            self._at += done
            rest = rest[done:]

        return memoryview(data).nbytes

    def seal(self, description: bytes) -> dict[bytes, bytes]:
        """Metadata for the footer, once everything before the footer is written."""
        seal = {"end": self._at, "block": _BLOCK, "sums": self._sums}
        text = json.dumps(seal)
        return {_SEAL: text.encode(), _DESCRIPTION: description}


def name_of(kind: str, number: int, path: Path) -> str:
    """The name of a complete file."""
    with path.open("rb") as file:
        return f"{kind}-{number:08d}-{_digest(_footer(file)[1])}.parquet"


def _digest(footer: bytes) -> str:
    return blake2b(footer, digest_size=16).hexdigest()


def _footer(file: io.BufferedReader) -> tuple[int, bytes]:
    """Where the footer begins, and its bytes to the end of the file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _MAGIC, 0))
    length = int.from_bytes(file.read(4), "little") + _MAGIC
    if not _MAGIC < length < size:
        raise ValueError("it has no footer")
    file.seek(size - length)
    return size - length, file.read()


@dataclass(frozen=True, slots=True)
class FileSeal:
    """The checksums of a file whose footer is as it was written."""

    path: Path
    block: int
    sums: tuple[int, ...]
    end: int

    def check(self, start: int = 0, end: int | None = None) -> None:
        """Raises StoreError if the data in this range is not as it was written."""
        first = start // self.block
        until = self.end if end is None else end
        last = -(-until // self.block)
        with self.path.open("rb") as file:
            file.seek(first * self.block)
            for index in range(first, last):
                size = min(self.block, self.end - index * self.block)
                if crc32(file.read(size)) != self.sums[index]:
                    raise StoreError(
                        damaged(self.path, f"block {index} does not match its checksum")
                    )


def seal_of(path: Path, metadata: Mapping[bytes, bytes]) -> FileSeal | None:
    """The seal of an open Parquet file; None for a file whose name has no digest.

    Raises ValueError if the footer is not as it was written.
    """
    origin = Origin.of(path.name)
    if origin is None:
        return None

    with path.open("rb") as file:
        start, footer = _footer(file)
    if _digest(footer) != origin.digest:
        raise ValueError("the footer does not match the name")

    content = json.loads(metadata[_SEAL])
    if content["end"] != start:
        raise ValueError("bytes were added or removed before the footer")
    return FileSeal(path, content["block"], tuple(content["sums"]), start)


def description_of(path: Path) -> dict[str, Any]:
    """How a sealed file describes itself and the store at the time. Raises StoreError if its footer
    is damaged.
    """
    try:
        with pq.ParquetFile(path) as file:
            metadata = file.metadata.metadata
        seal_of(path, metadata)
        description: dict[str, Any] = json.loads(metadata[_DESCRIPTION])
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise StoreError(damaged(path, error)) from error
    return description


def write_rows(
    path: Path, schema: pa.Schema, rows: Iterable[tuple[Any, ...]], description: bytes
) -> None:
    """Writes a table as a new file."""
    by_column = list(zip(*rows, strict=True))
    columns = by_column or [()] * len(schema)
    typed = zip(columns, schema, strict=True)
    arrays = [pa.array(values, field.type) for values, field in typed]
    with BlockSums(path) as out:
        writer = pq.ParquetWriter(out, schema, compression="zstd", write_page_checksum=True)
        with writer:
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            writer.add_key_value_metadata(out.seal(description))


def read_rows(path: Path) -> Iterator[tuple[Any, ...]]:
    """The rows of a file. Raises StoreError for a damaged one, and FileNotFoundError for none."""
    try:
        # `read_table` would first import Arrow's dataset module, which is large.
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if seal := seal_of(path, file.metadata.metadata):
                seal.check()
            columns = [column.to_pylist() for column in file.read().columns]
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise StoreError(damaged(path, error)) from error
    return zip(*columns, strict=True)


def copy_rows(source: Path, path: Path, description: bytes) -> None:
    """Writes the rows of a file as a new one with another description."""
    with pq.ParquetFile(source) as file:
        schema = file.schema_arrow
    write_rows(path, schema.remove_metadata(), read_rows(source), description)
