"""Samples in an order of one's own, and plain PyTorch next to a job: both against loops as anyone
writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    WeightedRandomSampler,
)

import agileml
from agileml.apps.registry import TrainerSource
from agileml.errors import AgileMLError, BadTrainer
from agileml.params.layout import Layout
from agileml.params.view import CacheView, ParamCache
from tests.agileml.torch.nets import (
    BATCH,
    SAMPLES,
    Line,
    Shared,
    data,
    momentum,
    trainer,
)

EPOCHS = 3
WEIGHTS = [1.0 + number % 7 for number in range(SAMPLES)]


class ByNumpy(Sampler[int]):
    """Draws from numpy's generator, and knows its epoch."""

    epoch = 0

    def __len__(self) -> int:
        return 50

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(
            [(number + self.epoch) % SAMPLES for number in np.random.permutation(50).tolist()]
        )


class Pairs(Sampler[list[int]]):
    """Batches of its own: the first half forwards, then the second backwards."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[list[int]]:
        yield list(range(BATCH))
        yield list(range(SAMPLES - 1, SAMPLES - 9, -1))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "shuffled": lambda: DataLoader(data(), BATCH, shuffle=True),
    "shuffled by a generator": lambda: DataLoader(data(), BATCH, shuffle=True, generator=seeded(5)),
    "shuffled, in whole batches": lambda: DataLoader(
        Subset(data(), range(2 * BATCH)), BATCH, shuffle=True
    ),
    "in order": lambda: DataLoader(data(), BATCH),
    "without the last": lambda: DataLoader(data(), BATCH, shuffle=True, drop_last=True),
    "weighted": lambda: DataLoader(data(), BATCH, sampler=WeightedRandomSampler(WEIGHTS, 70)),
    "drawn again": lambda: DataLoader(
        data(), BATCH, sampler=RandomSampler(data(), replacement=True, num_samples=200)
    ),
    "two generators": lambda: DataLoader(
        data(), BATCH, sampler=RandomSampler(data(), generator=seeded(6)), generator=seeded(5)
    ),
    "a generator of the sampler": lambda: DataLoader(
        data(), BATCH, sampler=RandomSampler(data(), generator=seeded(6))
    ),
    "by numpy": lambda: DataLoader(data(), BATCH, sampler=ByNumpy()),
    "batches of its own": lambda: DataLoader(data(), batch_sampler=Pairs()),
    "a batch sampler": lambda: DataLoader(
        data(), batch_sampler=BatchSampler(SequentialSampler(data()), BATCH, drop_last=True)
    ),
    "with processes": lambda: DataLoader(data(), BATCH, shuffle=True, num_workers=2),
    "with processes that stay": lambda: DataLoader(
        data(), BATCH, shuffle=True, num_workers=1, persistent_workers=True
    ),
}


def with_seed(name: str) -> Callable[[], DataLoader[Any]]:
    def made() -> DataLoader[Any]:
        loader = LOADERS[name]()
        torch.manual_seed(9)
        np.random.seed(9)
        return loader

    return made


def looped(name: str) -> list[list[torch.Tensor]]:
    """The batches of a loop over a loader, as anyone writes it."""
    loader, batches = with_seed(name)(), []
    for epoch in range(EPOCHS):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        batches += list(loader)
    return batches


@pytest.mark.parametrize("name", LOADERS)
def test_samples_come_in_the_order_of_a_loop_over_the_loader(name: str) -> None:
    expected = looped(name)
    given = trainer(Shared, momentum, with_seed(name), order="loader")
    for clock, batch in enumerate(expected, 1):
        assert same(given.batch_of(clock, seed=7)[0], batch), clock
    # An epoch before is drawn again.
    assert same(given.batch_of(1)[0], expected[0])


def same(batch: Any, other: Any) -> bool:  # noqa: ANN401 - batches
    return len(batch) == len(other) and all(map(torch.equal, batch, other))


def test_a_sampler_orders_a_dataset_without_a_loader() -> None:
    given = trainer(Shared, momentum, data, order=RandomSampler(data(), generator=seeded(6)))
    loader = LOADERS["a generator of the sampler"]()
    for clock, batch in enumerate(chain(loader, loader), 1):
        assert same(given.batch_of(clock)[0], batch), clock
    fixed = trainer(Shared, momentum, data, order=range(SAMPLES - 1, -1, -1))
    assert same(fixed.batch_of(1)[0], [part.flip(0)[:BATCH] for part in data().tensors])


class Endless(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


class Shrinking(Sampler[int]):
    passes = 0

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        return iter(range(SAMPLES - self.passes))


REFUSED: list[tuple[Any, Any, str]] = [
    (data, "mine", "order is 'mine'; choose 'job', 'loader'"),
    (data, 3, "order is 3; choose"),
    (data, "loader", "order is 'loader', but dataset is TensorDataset; pass a DataLoader"),
    (lambda: DataLoader(data(), BATCH), range(SAMPLES), "order is a sampler, and the DataLoader has one"),
    (lambda: DataLoader(data(), batch_size=None), "loader", "batch_size is 24, but the DataLoader has None"),
    (Line, "loader", "order is for samples with numbers"),
    (lambda: DataLoader(data(), BATCH, sampler=Endless()), "loader", "has no length"),
    (data, [*range(SAMPLES), SAMPLES], f"gives sample {SAMPLES}; the dataset has those from 0 to {SAMPLES - 1}"),
    (lambda: DataLoader(data(), batch_sampler=[[0, 1], [2]]), "loader", "of 1, 2 samples; all must have batch_size"),
    (lambda: DataLoader(data(), 8, shuffle=True), "loader", "batch_size is 24, but the DataLoader has 8"),
    (lambda: DataLoader(data(), BATCH, sampler=ByNumpy()), "job", "sampler of its own .ByNumpy.; pass order='loader'"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[2])
def test_an_order_that_nodes_cannot_draw_is_refused(case: tuple[Any, Any, str]) -> None:
    dataset, order, problem = case
    with pytest.raises(AgileMLError, match=problem):
        trainer(Shared, momentum, dataset, order=order).batch_of(1)


def test_a_sampler_whose_epochs_differ_is_refused() -> None:
    given = trainer(Shared, momentum, data, order=Shrinking())
    with pytest.raises(BadTrainer, match="samples in epoch 2 and"):
        given.batch_of(5)


def test_a_node_that_draws_another_order_is_refused() -> None:
    def unseeded() -> DataLoader[Any]:
        generator = torch.Generator()
        generator.seed()
        return DataLoader(data(), BATCH, shuffle=True, generator=generator)

    given = trainer(Shared, momentum, unseeded, order="loader")
    model = given.init(np.random.default_rng(1))
    cache = ParamCache(Layout.cut(model, 1))
    cache.arrays.update(model)
    other = trainer(Shared, momentum, unseeded, order="loader")
    with pytest.raises(BadTrainer, match="another order than the first one; give the sampler"):
        other.step(other.shards()[0], 0, 6, CacheView(cache, "here"), 1, np.random.default_rng(1))  # type: ignore[arg-type] # it ends first


# -- plain PyTorch ---------------------------------------------------------------------------------


def test_batches_of_a_stream_are_those_of_all_parts() -> None:
    batches = trainer(Shared, momentum, Line).batches()
    assert [len(next(batches)[0]) for _ in range(5)] == [BATCH] * 5  # type: ignore[index]


SCRIPT = """
import torch
from torch.utils.data import DataLoader
from agileml.torch import Elastic
from tests.agileml.torch.nets import Shared, data, momentum, objective

torch.manual_seed(3)
net = Shared()
optimizer = momentum(net)
elastic = Elastic(net, optimizer, DataLoader(data(), 24, shuffle=True), parts=4, order="loader")
for step, batch in elastic:
    optimizer.zero_grad()
    objective(net, batch).backward()
    elastic.step()
"""


def test_a_loop_that_stays_has_its_samples_in_the_order_of_the_plain_one(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    given: Any = TrainerSource(str(script)).load()
    torch.manual_seed(3)
    Shared()
    loader = DataLoader(data(), BATCH, shuffle=True)
    for clock, batch in enumerate(chain(loader, loader), 1):
        assert same(given.batch_of(clock)[0], batch), clock
    assert agileml.train(str(script), "1+2", "sim", clocks=3, output=lambda _: None).clocks == 3
