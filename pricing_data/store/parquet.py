"""Small Parquet files of the store: whole tables of plain values, whose every byte is under a checksum."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pricing_data.errors import StoreError
from pricing_data.store.manifest import damaged
from pricing_data.store.sealed import BlockSums, seal_of


def write_rows(path: Path, schema: pa.Schema, rows: Iterable[tuple[Any, ...]], description: bytes) -> None:
    """Writes a table as a new file."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
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
