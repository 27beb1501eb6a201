"""Small Parquet files of the store: whole tables of plain values, whose every page carries a checksum."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pricing_data.errors import StoreError
from pricing_data.store.manifest import damaged


def write_rows(path: Path, schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> None:
    """Writes a table as a new file."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path, compression="zstd", write_page_checksum=True)


def read_rows(path: Path) -> Iterator[tuple[Any, ...]]:
    """The rows of a file. Raises StoreError for a damaged one, and FileNotFoundError for none."""
    try:
        # `read_table` would first import Arrow's dataset module, which is large.
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            columns = [column.to_pylist() for column in file.read().columns]
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise StoreError(damaged(path, error)) from error
    return zip(*columns, strict=True)
