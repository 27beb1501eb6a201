"""Notices when a module changes what its steps may not change, as other nodes would not learn of it.

That is the trained parameters, which only optimizers change, on the servers; frozen parameters; and buffers other than
running statistics. Each node has its own copy of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING
from zlib import crc32

from agileml.extras import torch_module
from agileml.params.layout import Array

if TYPE_CHECKING:
    import torch


@dataclass
class Unchanged:
    """Compares values before and after a step, and the tensors themselves.

    Reading all values takes time: it happens in steps 1, 2, 4, 8 and so on, and in the one after a step in which
    PyTorch counted a change. PyTorch counts no changes that are made through `.data`.
    """

    module: torch.nn.Module
    tensors: Mapping[str, torch.Tensor]
    _steps: int = 0
    _suspicious: bool = False
    _versions: dict[str, int] = field(default_factory=dict)
    _sums: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Before a step, with the values that it starts from."""
        self._steps += 1
        is_power_of_two = self._steps & (self._steps - 1) == 0
        self._sums = self._checksums() if self._suspicious or is_power_of_two else {}
        self._versions = self._counted()

    def changed(self, parameters: Mapping[str, torch.Tensor]) -> str | None:
        """The name of a tensor that the step replaced or changed; `parameters` are those that the module has now."""
        now = {**parameters, **dict(self.module.named_buffers())}
        replaced = (name for name, tensor in self.tensors.items() if now.get(name) is not tensor)
        self._suspicious = self._versions != self._counted()
        if not self._sums:
            return next(replaced, None)
        sums = self._checksums()
        return next(chain(replaced, (name for name, checksum in self._sums.items() if sums[name] != checksum)), None)

    def _counted(self) -> dict[str, int]:
        return {name: tensor._version for name, tensor in self.tensors.items()}

    def _checksums(self) -> dict[str, int]:
        return {name: _checksum(tensor) for name, tensor in self.tensors.items()}


def _checksum(tensor: torch.Tensor) -> int:
    torch = torch_module()
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        return tensor._version
    values: Array = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return crc32(values.data)
