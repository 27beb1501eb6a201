"""Stores of earlier versions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from pricing_data.store.facts import TYPES
from pricing_data.store.sealed import write_rows
from tests.pricing_data.store.test_facts import MACHINE


def test_a_store_from_before_traits_is_read(tmp_path: Path) -> None:
    schema = pa.schema(list(TYPES.schema)[:7])
    write_rows(tmp_path / "types", schema, [("aws", "t4g.small", 2, 2.0, None, 0, None)], b"")
    assert TYPES.read(tmp_path / "types") == [MACHINE]
