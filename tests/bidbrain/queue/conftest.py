"""Fixtures of the tests in this folder."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bidbrain.queue import order
from bidbrain.queue.values import (
    JobQueue,
)


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each list that is played to its end."""
    count, ends_of = list[int](), order.ends_of

    def counted(
        given: JobQueue, pairs: Sequence[order.Pair], held: order.MachinesHeld
    ) -> dict[str, float]:
        count.append(1)
        return ends_of(given, pairs, held)

    monkeypatch.setattr(order, "ends_of", counted)
    return count
