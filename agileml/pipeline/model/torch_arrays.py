"""Arrays as tensors and back, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agileml.extras import torch_module
from agileml.pipeline.model.arrays import BFLOAT16, packed
from agileml.pipeline.model.base import Array, DrawKey, Values

if TYPE_CHECKING:
    import torch


def tensor_of(array: Array | torch.Tensor) -> torch.Tensor:
    """A tensor on the array's memory; the data of a model may come as tensors."""
    if not isinstance(array, np.ndarray):
        return array
    if min(array.strides, default=0) < 0:
        array = array.copy()
    if array.dtype == BFLOAT16:
        return tensor_of(array.view(np.int16)).view(torch_module().bfloat16)
    tensor: torch.Tensor = torch_module().from_numpy(array)
    return tensor


def array_of(tensor: torch.Tensor) -> Array:
    """An array on the tensor's memory."""
    torch = torch_module()
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(BFLOAT16)
    array: Array = tensor.numpy()
    return array


def tensors_of(values: Values) -> list[torch.Tensor]:
    """One or several values as tensors that begin a graph of their own."""
    return [_leaf(tensor_of(array)) for array in packed(values)]


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.requires_grad_() if tensor.is_floating_point() or tensor.is_complex() else tensor


def seed_torch(key: DrawKey) -> None:
    """Lets PyTorch draw what belongs to a key."""
    # `torch.manual_seed` would format the stack and queue a call for a graphics card, even where there is none.
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))
    torch_module().default_generator.manual_seed(seed)
