"""`TorchModule` on a graphics card, next to the same training on the processor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from agileml import reference
from tests.agileml.torch.nets import BATCH, Normalized, Shared, adamw, momentum, trainer

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="PyTorch sees no graphics card here"
)

WIDE = 1024


@pytest.mark.parametrize(("module", "optimizer"), [(Shared, adamw), (Normalized, momentum)])
def test_a_card_trains_the_model_of_the_processor(
    module: Callable[[], nn.Module], optimizer: Callable[[nn.Module], torch.optim.Optimizer]
) -> None:
    given = trainer(module, optimizer)
    here, there = (
        reference.run(replace(given, device=device), 9, seed=4, partitions=3)
        for device in ("cpu", "cuda")
    )
    assert here.keys() == there.keys()
    for name, values in here.items():
        np.testing.assert_allclose(there[name], values, rtol=2e-3, atol=1e-5, err_msg=name)


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(4, WIDE), nn.Linear(WIDE, WIDE), nn.Linear(WIDE, 20))


def on_card(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    numbers, _, targets = batch
    assert next(net.parameters()).is_cuda
    assert numbers.is_cuda
    return nn.functional.cross_entropy(net(numbers), targets)


def test_a_card_holds_a_model_and_its_gradient() -> None:
    given = trainer(wide, loss=on_card, device="cuda", tolerance=float("inf"))
    torch.cuda.reset_peak_memory_stats()
    reference.run(given, 3, seed=4, partitions=3)
    weights = sum(parameter.nbytes for parameter in wide().parameters())
    assert torch.cuda.max_memory_allocated() < 2.5 * weights + BATCH * WIDE * 64
