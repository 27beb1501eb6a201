"""Global state that a clock leaves as it was: PyTorch's generators and threads, a module's
parameters and settings.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from threading import RLock
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from agileml.checks import torch_module
from agileml.params.layout import Array

if TYPE_CHECKING:
    import torch


_LOCK = RLock()
"""The generators belong to the whole process, whose server and worker are different threads."""


def renew_lock() -> None:
    """Forgets, in a forked process, who held the lock."""
    global _LOCK  # noqa: PLW0603
    _LOCK = RLock()


_SPARE: list[np.random.MT19937] = []
"""Generators for `numpy.random` within `surroundings`."""


@contextmanager
def surroundings(seed: int, threads: int) -> Iterator[None]:
    """Seeds the generators of PyTorch, numpy and Python, and computes with a number of threads; all
    are restored.

    0 leaves the number of threads as it is.
    """
    torch = torch_module()
    with _LOCK:
        # Not `torch.manual_seed`: without a graphics card it queues a call, with the stack, for
        # when there is one.
        gpus = torch.cuda if torch.cuda.is_available() else None
        ours = _SPARE.pop() if _SPARE else np.random.MT19937()
        theirs = np.random.get_bit_generator()  # type: ignore[attr-defined]
        before = random.getstate(), torch.get_rng_state(), torch.get_num_threads()
        gpus_before = gpus and gpus.get_rng_state_all()
        torch.default_generator.manual_seed(seed)
        if gpus:
            gpus.manual_seed_all(seed)
        # Another generator instead of another state of numpy's: copying that, here and below, takes
        # longer than a step of a small network.
        np.random.set_bit_generator(ours)  # type: ignore[attr-defined]
        np.random.seed(seed % 2**32)
        random.seed(seed)
        if threads:
            torch.set_num_threads(threads)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_bit_generator(theirs)  # type: ignore[attr-defined]
            _SPARE.append(ours)
            torch.set_rng_state(before[1])
            torch.set_num_threads(before[2])
            if gpus:
                gpus.set_rng_state_all(gpus_before)


@dataclass
class Unchanged:
    """Compares values before and after a step, and the tensors themselves.

    Reading all values takes time: it happens in steps 1, 2, 4, 8 and so on, and in the one after a
    step in which PyTorch counted a change. PyTorch counts no changes that are made through `.data`.
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
        if self._suspicious or is_power_of_two:
            self._sums = self._checksums()
        else:
            self._sums = {}
        self._versions = self._counted()

    def changed(self, parameters: Mapping[str, torch.Tensor]) -> str | None:
        """The name of a tensor that the step replaced or changed; `parameters` are those that the
        module has now.
        """
        now = {**parameters, **dict(self.module.named_buffers())}
        replaced = (name for name, tensor in self.tensors.items() if now.get(name) is not tensor)
        self._suspicious = self._versions != self._counted()
        if not self._sums:
            return next(replaced, None)

        sums = self._checksums()
        return next(
            chain(
                replaced, (name for name, checksum in self._sums.items() if sums[name] != checksum)
            ),
            None,
        )

    def _counted(self) -> dict[str, int]:
        return {name: tensor._version for name, tensor in self.tensors.items()}

    def _checksums(self) -> dict[str, int]:
        return {name: checksum(tensor) for name, tensor in self.tensors.items()}


def checksum(tensor: torch.Tensor) -> int:
    """A number that is the same for the same values, or else for as many changes."""
    torch = torch_module()
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        return tensor._version
    values: Array = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return crc32(values.data)
