"""Fixtures of the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.store import PriceStore


@pytest.fixture
def store(tmp_path: Path) -> PriceStore:
    return PriceStore(tmp_path / "prices")
