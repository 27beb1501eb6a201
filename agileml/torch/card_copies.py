"""Copies between a graphics card and memory that it reads and writes by itself, while the processor does other work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from agileml.extras import torch_module
from agileml.params.layout import Array

if TYPE_CHECKING:
    import torch


class CardCopies:
    """The copies of one module. Values that go to the card keep their places in memory; those that come from it belong
    to who asked for them, until they are no longer used."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sent: dict[str, torch.Tensor] = {}

    def begin(self) -> None:
        """Waits for earlier copies, whose places are about to be used again."""
        torch_module().cuda.current_stream(self._device).synchronize()

    def send(self, name: str, values: Array, tensor: torch.Tensor) -> None:
        """Begins to copy values to a tensor of the card, which computes with it only when they are there."""
        place = self._sent.get(name)
        if place is None:
            place = self._sent[name] = _reachable(tensor)
        np.copyto(place.numpy(), values.reshape(tensor.shape), casting="unsafe")
        tensor.detach().copy_(place, non_blocking=True)

    def fetched(self, tensors: Iterable[torch.Tensor]) -> Iterator[Array]:
        """The numbers of tensors of the card, each as soon as they are here."""
        copies = []
        with torch_module().cuda.device(self._device):
            for tensor in tensors:
                copy = _reachable(tensor)
                copy.copy_(tensor, non_blocking=True)
                arrived = torch_module().cuda.Event()
                arrived.record()
                copies.append((copy, arrived))
        for copy, arrived in copies:
            arrived.synchronize()
            yield copy.numpy()


def _reachable(tensor: torch.Tensor) -> torch.Tensor:
    place: torch.Tensor = torch_module().empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return place
