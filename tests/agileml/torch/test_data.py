"""The samples of an epoch, and averages of statistics."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agileml import reference
from agileml.torch.data import Batches
from agileml.torch.trainer import SEED
from tests.agileml.torch.nets import (
    BATCH,
    SAMPLES,
    Normalized,
    data,
    momentum,
    trainer,
)


def test_statistics_of_parts_are_averaged() -> None:
    given = trainer(Normalized, momentum, parts=4)
    model = reference.run(given, 1, seed=4)
    chosen = Batches(SAMPLES, BATCH, 1, shuffle=True).chosen(int(model[SEED][0, 0]), 1, 0, 0, BATCH)
    torch.manual_seed(int(model[SEED][0, 0]))
    first = Normalized().net[0]
    means = first(data()[torch.from_numpy(chosen)][0]).mean(0)
    assert np.allclose(model["net.1.running_mean"], 0.1 * means.detach().numpy(), atol=1e-6)
    assert model["net.1.num_batches_tracked"].tolist() == [1]


@pytest.mark.parametrize(
    ("samples", "size", "parts"),
    [(103, 12, 4), (24, 12, 3), (26, 12, 4), (7, 12, 6), (5, 5, 1), (97, 32, 8)],
)
def test_every_epoch_has_every_sample_once(samples: int, size: int, parts: int) -> None:
    batches = Batches(samples, size, parts, shuffle=True)
    shards = batches.shards()
    share = size // parts
    assert {-(-len(shard) // share) for shard in shards} == {batches.per_epoch}
    epochs = []
    for epoch in range(2):
        seen: list[int] = []
        for clock in range(1, batches.per_epoch + 1):
            lows = (clock - 1) * share
            now = clock + epoch * batches.per_epoch
            batch = [
                number
                for shard in shards
                for number in batches.chosen(
                    9, now, shard.number, lows, min(lows + share, len(shard))
                ).tolist()
            ]
            assert len(batch) == batches.length(now)
            seen += batch
        assert sorted(seen) == list(range(samples))
        epochs.append(seen)
    assert epochs[0] != epochs[1]
