"""Batches over which the loss is computed, in every clock the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from agileml.extras import torch_module

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class SampledBatches:
    """Batches with their lengths, and the tensors in them with PyTorch's count of changes."""

    contents: Sequence[object]
    lengths: Sequence[int]
    tensors: Sequence[tuple[torch.Tensor, int]]
    nbytes: float

    @classmethod
    def of(cls, contents: Sequence[object], lengths: Sequence[int]) -> SampledBatches:
        """Batches whose size is infinite if they hold anything but tensors and plain values."""
        try:
            tensors = [tensor for content in contents for tensor in _tensors(content)]
        except TypeError:
            return cls(contents, lengths, (), inf)
        nbytes = sum(tensor.element_size() * tensor.numel() for tensor in tensors)
        return cls(contents, lengths, [(tensor, tensor._version) for tensor in tensors], nbytes)

    @property
    def changed(self) -> bool:
        """Whether the user's code has changed a tensor in place."""
        return any(tensor._version != version for tensor, version in self.tensors)


def _tensors(batch: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401 - a batch is what the user's dataset and collate make it
    if isinstance(batch, torch_module().Tensor):
        yield batch
    elif isinstance(batch, list | tuple | Mapping):
        for value in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _tensors(value)
    elif not isinstance(batch, str | bytes | int | float | None):
        raise TypeError(type(batch).__name__)
