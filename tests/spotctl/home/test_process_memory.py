"""A ceiling for the memory of this process, and a pause of the garbage collector."""

from __future__ import annotations

import gc
import resource

import pytest

from spotctl.home.process_memory import memory_ceiling, without_garbage_collection


def test_within_the_block_memory_has_a_ceiling_and_afterwards_none() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(MemoryError), memory_ceiling(1 << 20):
        bytearray(8 << 30)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_the_collector_is_as_before_even_after_an_error() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="'no'"), without_garbage_collection():
        int("yes" if gc.isenabled() else "no")
    assert gc.isenabled()
    gc.disable()
    try:
        with without_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
