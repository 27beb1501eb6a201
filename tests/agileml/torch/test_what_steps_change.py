"""Optimizers with groups, hooks and limits, what a module changes as it computes, and samples that
come together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from agileml import reference
from agileml.errors import AgileMLError
from agileml.torch.trainer import SEED
from tests.agileml.torch.nets import (
    SAMPLES,
    Normalized,
    Shared,
    data,
    momentum,
    objective,
    trainer,
)
from tests.agileml.torch.test_trainer import CLOCKS, plain


def trained(net: nn.Module) -> list[torch.Tensor]:
    return [one for one in net.parameters() if one.requires_grad]


def plain_sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(trained(net), lr=0.1)


class Recomputed(Shared):
    """Keeps no activations, and computes them again for its gradients."""

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = checkpoint(
            super().forward, numbers.requires_grad_(), words, use_reentrant=True
        )
        return scores


def test_layers_whose_activations_are_recomputed_are_trained() -> None:
    found, expected = (
        reference.run(trainer(module, momentum), 3, seed=1) for module in (Recomputed, Shared)
    )
    assert reference.model_digest(found) == reference.model_digest(expected)


HERE = r"test_what_steps_change\.py, line \d+, in "


def test_statistics_in_few_bits_are_averaged() -> None:
    class Narrow(Normalized):
        def __init__(self) -> None:
            super().__init__()
            self.narrow = nn.BatchNorm1d(4, affine=False).bfloat16()

        def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
            return super().forward(self.narrow(numbers.bfloat16()).float(), words)

    given = trainer(Narrow, plain_sgd, parts=1)
    model = reference.run(given, CLOCKS, seed=4)
    expected = plain(given, int(model[SEED][0, 0])).state_dict()["narrow.running_mean"]
    assert torch.allclose(
        given.state_dict(model)["narrow.running_mean"].float(), expected.float(), atol=1e-3
    )


# -- samples ---------------------------------------------------------------------------------------


class Together(torch.utils.data.Dataset[Any]):
    """Reads several samples at once, as a DataLoader lets it."""

    def __init__(self, broken: Sequence[int] = ()) -> None:
        self.broken = broken
        self.asked: list[int] = []

    def __len__(self) -> int:
        return SAMPLES

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        self.asked.append(len(numbers))
        if set(self.broken) & set(numbers):
            raise OSError("the disk is broken")
        return [data()[number] for number in numbers]


def test_samples_are_fetched_together() -> None:
    dataset = Together()
    models = [
        reference.model_digest(reference.run(trainer(Shared, momentum, source), 3, seed=1))
        for source in (data, dataset)
    ]
    assert models[0] == models[1]
    # Those of a part, and those of a part's share of the loss, once.
    assert set(dataset.asked) == {6, SAMPLES // 4}
    assert dataset.asked.count(SAMPLES // 4) == 4


def test_samples_may_come_as_a_batch() -> None:
    class Batches(Together):
        def __getitems__(self, numbers: list[int]) -> Any:  # noqa: ANN401
            return dict(zip(("numbers", "words", "targets"), data()[numbers], strict=True))

    def by_name(net: nn.Module, batch: Any) -> torch.Tensor:  # noqa: ANN401
        return objective(net, [batch["numbers"], batch["words"], batch["targets"]])

    def unchanged(batch: Any) -> Any:  # noqa: ANN401
        return batch

    given = trainer(Shared, momentum, Batches(), by_name, collate=unchanged)
    found = reference.run(given, 3, seed=1)
    assert reference.model_digest(found) == reference.model_digest(
        reference.run(trainer(Shared, momentum), 3, seed=1)
    )


def test_a_sample_that_cannot_be_read_is_named() -> None:
    with pytest.raises(
        AgileMLError, match=rf"sample 13 of the dataset: OSError: the disk .*{HERE}__getitems__"
    ):
        reference.run(trainer(Shared, momentum, Together([13])), CLOCKS, seed=1)
