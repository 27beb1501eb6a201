"""Datasets without numbers for their samples, in torch modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, IterableDataset, default_collate

from agileml import reference
from agileml.errors import AgileMLError, BadTrainer
from agileml.torch.streams import Streams
from tests.agileml.torch.nets import Line, momentum, trainer


class Numbers(IterableDataset[int]):
    """0 to 9."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


class Counter:
    """An iterator over numbers that knows its own state."""

    def __init__(self) -> None:
        self.next = 0

    def __next__(self) -> int:
        self.next += 1
        if self.next > 10:
            raise StopIteration
        return self.next - 1

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["next"]


class Counted(Numbers):
    """Its iterator has the state."""

    def __iter__(self) -> Any:  # noqa: ANN401
        return Counter()


class Growing(Numbers):
    """Its state takes more and more room."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __iter__(self) -> Iterator[int]:
        for number in range(10):
            self.seen.append("x" * 100)
            yield number

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class Opaque(Numbers):
    """Its state is an object of its own."""

    def state_dict(self) -> object:
        return {"where": object()}


@pytest.mark.parametrize("dataset", [Numbers(), Counted()])
def test_a_part_continues_anywhere_where_another_node_has_stopped(dataset: IterableDataset[int]) -> None:
    here, rows = Streams("T", dataset, 2), Streams("T", dataset, 2).positions()
    seen: list[int] = []
    for clock in range(12):
        some, row = here.read(1, rows[1], 0, 3, "")
        again, same = Streams("T", dataset, 2).read(1, rows[1], 0, 3, "")
        one, _ = here.read(1, rows[1], 1, 2, "")
        assert (again, one) == (some, some[1:2]), clock
        np.testing.assert_array_equal(same, row)
        rows[1], seen = row, seen + some
    assert seen == [1, 3, 5, 7, 9] * 7 + [1]


def test_a_state_that_cannot_be_kept_is_refused() -> None:
    streams = Streams("T", Growing(), 1)
    row = streams.positions()[0]
    with pytest.raises(BadTrainer, match=r"T: the state of Growing has grown to \d+ bytes, and there is room for 256"):
        streams.read(0, row, 0, 5, "")
    with pytest.raises(BadTrainer, match="the state_dict of Opaque holds more than numbers, texts, lists and dicts"):
        Streams("T", Opaque(), 1).positions()


def test_a_part_without_samples_is_named() -> None:
    streams = Streams("T", Numbers(), 12)
    with pytest.raises(BadTrainer, match="part 11 of 12 has no sample in the stream of Numbers; use fewer parts"):
        streams.read(11, streams.positions()[11], 0, 1, "")


def collated(_: list[Any]) -> object:
    raise ValueError("no batch of these")


def test_a_loader_of_a_stream_gives_its_batches() -> None:
    loader = DataLoader(Line(), 24, collate_fn=default_collate, num_workers=2)
    given = [reference.run(trainer(optimizer=momentum, dataset=some), 2, seed=3) for some in (loader, Line())]
    assert reference.model_digest(given[0]) == reference.model_digest(given[1])
    with pytest.raises(AgileMLError, match="samples of the stream do not make a batch: ValueError: no batch of these"):
        reference.run(trainer(dataset=Line(), collate=collated), 1, seed=0)
