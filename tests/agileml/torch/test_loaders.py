"""DataLoaders, and processes that read batches ahead."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

import agileml
from agileml import reference
from agileml.errors import AgileMLError, BadTrainer
from agileml.reference import model_digest
from agileml.torch.loaders import Streams
from tests.agileml.torch.nets import (
    BATCH,
    SAMPLES,
    Line,
    Shared,
    data,
    momentum,
    objective,
    trainer,
)


class Noisy(Dataset[Any]):
    """Draws random numbers in every way, and notices whether the job's own process reads."""

    def __init__(self, fails: int = -1, dies: int = -1) -> None:
        self._samples, self._fails, self._dies = data(), fails, dies
        self.process = os.getpid()

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, number: int) -> Any:  # noqa: ANN401
        if number == self._fails:
            raise OSError("the disk is gone")
        if number == self._dies and os.getpid() != self.process:
            os._exit(9)
        numbers, words, targets = self._samples[number]
        noise = (
            torch.randn(4)
            + float(np.random.normal())
            + random.random()
            + (os.getpid() == self.process)
        )
        return numbers + 0.1 * noise, words, targets


def noisy_loader() -> DataLoader[Any]:
    return DataLoader(Noisy(), BATCH, shuffle=True, num_workers=2)


@pytest.mark.slow
def test_a_killed_node_changes_no_bit_of_a_model_whose_batches_are_read_ahead() -> None:
    given = trainer(Shared, momentum, noisy_loader, tolerance=float("inf"))
    expected = reference.run(given, 9, 4)
    trained = agileml.train(
        given, "1+1", clocks=9, deterministic=True, chaos="at clock 4 kill 1", seed=4
    )
    assert model_digest(trained.model) == model_digest(expected)


def test_other_processes_read_the_batches() -> None:
    # Every number that the job's own process had read would be larger by .1.
    here, there = (
        reference.run(
            trainer(Shared, momentum, Noisy, workers=workers, tolerance=float("inf")), 2, 4
        )
        for workers in (0, 1)
    )
    assert model_digest(here) != model_digest(there)
    again = reference.run(trainer(Shared, momentum, Noisy, workers=2, tolerance=float("inf")), 2, 4)
    assert model_digest(again) == model_digest(there)


@pytest.mark.parametrize(
    ("dataset", "problem"),
    [
        (lambda: Noisy(fails=7), "sample 7 of the dataset: OSError: the disk is gone"),
        (lambda: Noisy(dies=7), r"a process that reads batches \(workers\) was killed"),
    ],
)
def test_an_error_of_a_process_that_reads_is_that_of_the_job(dataset: Any, problem: str) -> None:  # noqa: ANN401
    with pytest.raises(AgileMLError, match=problem):
        # Every sample is read, and the loss reads none.
        for _ in reference.iterate(
            trainer(Shared, momentum, dataset, workers=1), 0, sample_items=1
        ):
            pass


def seen(dataset: Any, clocks: int, **options: Any) -> list[torch.Tensor]:  # noqa: ANN401
    """The inputs of the batches of a job, in order."""
    batches: list[torch.Tensor] = []

    def noting(net: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        if net.training:
            batches.append(batch[0])
        return objective(net, batch)

    reference.run(trainer(Shared, momentum, dataset, noting, parts=1, **options), clocks, seed=1)
    return batches


def test_a_loader_says_the_order_and_whether_the_last_batch_counts() -> None:
    epoch = SAMPLES // BATCH
    batches = seen(lambda: DataLoader(data(), BATCH, drop_last=True), epoch + 1)
    assert torch.equal(torch.cat(batches[:epoch]), data().tensors[0][: epoch * BATCH])
    assert torch.equal(batches[epoch], batches[0])
    assert [len(batch) for batch in seen(lambda: DataLoader(data(), BATCH), epoch + 1)] == [
        BATCH
    ] * epoch + [16]
    shuffled = seen(lambda: DataLoader(data(), BATCH, shuffle=True), 1)[0]
    assert not torch.equal(shuffled, batches[0])


def test_a_loader_that_says_something_else_is_refused() -> None:
    for loader, problem in (
        (DataLoader(data(), 7), "batch_size is 24, but the DataLoader has 7"),
        (DataLoader(data(), batch_sampler=[[0, 1], [2]]), "a sampler of its own"),
    ):
        with pytest.raises(AgileMLError, match=problem):
            reference.run(trainer(Shared, momentum, loader), 1, seed=0)


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
def test_a_part_continues_anywhere_where_another_node_has_stopped(
    dataset: IterableDataset[int],
) -> None:
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
    with pytest.raises(
        BadTrainer,
        match=r"T: the state of Growing has grown to \d+ bytes, and there is room for 256",
    ):
        streams.read(0, row, 0, 5, "")
    with pytest.raises(
        BadTrainer, match="the state_dict of Opaque holds more than numbers, texts, lists and dicts"
    ):
        Streams("T", Opaque(), 1).positions()


def test_a_part_without_samples_is_named() -> None:
    streams = Streams("T", Numbers(), 12)
    with pytest.raises(
        BadTrainer, match="part 11 of 12 has no sample in the stream of Numbers; use fewer parts"
    ):
        streams.read(11, streams.positions()[11], 0, 1, "")


def collated(_: list[Any]) -> object:
    raise ValueError("no batch of these")


def test_a_loader_of_a_stream_gives_its_batches() -> None:
    loader = DataLoader(Line(), 24, collate_fn=default_collate, num_workers=2)
    given = [
        reference.run(trainer(optimizer=momentum, dataset=some), 2, seed=3)
        for some in (loader, Line())
    ]
    assert reference.model_digest(given[0]) == reference.model_digest(given[1])
    with pytest.raises(
        AgileMLError,
        match="samples of the stream do not make a batch: ValueError: no batch of these",
    ):
        reference.run(trainer(dataset=Line(), collate=collated), 1, seed=0)
