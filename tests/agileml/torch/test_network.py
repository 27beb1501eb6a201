"""Batches on their way to a device."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from agileml.errors import AgileMLError
from agileml.torch.network import TorchNetwork
from tests.agileml.torch.nets import (
    Shared,
    data,
)


class Batch(NamedTuple):
    """DataLoaders keep the type."""

    numbers: torch.Tensor
    words: torch.Tensor
    targets: torch.Tensor


def test_a_named_tuple_reaches_the_device_as_one() -> None:
    def by_name(net: nn.Module, batch: Any) -> torch.Tensor:  # noqa: ANN401
        raise ValueError(f"{type(batch).__name__} on {net.scale.device} and {batch.words.device}")

    batch = torch.utils.data.default_collate([Batch(*data()[number]) for number in range(4)])
    network = TorchNetwork(Shared(), frozenset(), "meta")
    with pytest.raises(AgileMLError, match="Batch on meta and meta"):
        network.mean_losses(by_name, [batch], "here")
