"""The samples of each batch in the order in which the samplers of DataLoaders give them in one
process.

A sampler draws from the random generators of its process, so that its order depends on all that was
drawn before. Every node draws all orders in turn, from the state that the generators had when the
training was described.

What a clock does leaves the global state as it was (`surroundings`): PyTorch's generators and
threads, a module's parameters and settings.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from threading import RLock
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from agileml.errors import BadTrainer, torch_module
from agileml.params.layout import Array
from agileml.torch.course import Course

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


if TYPE_CHECKING:
    from torch.utils.data import DataLoader

Numbers = NDArray[np.int64]

KEPT_LOOPS = 4
"""Loops whose batches are kept: a loss may lead back to the one before, and a validation lies
between two."""


@dataclass
class RandomState:
    """The state of the generators of PyTorch's processor, numpy and Python."""

    torch: Any
    numpy: Any
    python: Any

    @classmethod
    def now(cls) -> RandomState:
        """That of this process."""
        return cls(torch_module().get_rng_state(), np.random.get_state(), random.getstate())

    def left(self, result: object) -> object:
        """Leaves the generators in this state, and returns the result."""
        torch_module().set_rng_state(self.torch)
        np.random.set_state(self.numpy)
        random.setstate(self.python)
        return result

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Draws from this state, which moves on; the generators of the process are restored
        afterwards.
        """
        with surroundings(0, 0):
            self.left(None)
            try:
                yield
            finally:
                vars(self).update(vars(self.now()))


LoaderLoop = tuple[int, int, int]
"""A loop over a DataLoader: its number among the loaders, the epoch of its sampler, and how many
batches it has."""


def loops_of(course: Course, validation_batches: Sequence[int]) -> list[LoaderLoop]:
    """The loops of a training over its loader (0), and over those of its validation, one after the
    other.
    """
    loops: list[LoaderLoop] = [(0, 0, course.batches)]
    number = 0
    for epoch in range(course.epochs):
        loops += [(0, epoch, course.batches)] if epoch else []
        while (
            number < len(course.validated) and course.epoch_after(course.validated[number]) == epoch
        ):
            loops += [(1 + loader, epoch, count) for loader, count in enumerate(validation_batches)]
            number += 1

    return loops


@dataclass(frozen=True, eq=False)
class LoaderOrders:
    """The batches of loops over DataLoaders, one loop after the other, from a random state on."""

    loaders: Sequence[DataLoader[Any]]
    loops: Sequence[LoaderLoop] | EpochOrders
    state: RandomState
    draws_seeds: bool = True
    """Whether each loop begins with the draw of a seed for the processes that read."""
    asks_again: bool = False
    """Whether a loop asks for a batch after its last one, before which a sampler may draw."""
    first_epoch: int | None = 0
    """The epoch of the samplers in the first loop; None: `set_epoch` is not called."""
    _drawn: dict[int, list[Numbers]] = field(default_factory=dict, init=False)
    _samplers: list[Any] = field(default_factory=list, init=False)
    _moved: list[RandomState] = field(default_factory=list, init=False)
    """The state after the last loop that was drawn."""

    def batches(self, number: int) -> list[Numbers]:
        """The samples of each batch of a loop."""
        if number < min(self._drawn, default=0):
            self._drawn.clear()
        if not self._drawn:
            self._moved[:] = [copy.copy(self.state)]
            self._samplers[:] = [_copied(loader) for loader in self.loaders]

        for following in range(max(self._drawn, default=-1) + 1, number + 1):
            self._drawn[following] = self._draw(*self.loops[following])
            self._drawn.pop(following - KEPT_LOOPS, None)
        return self._drawn[number]

    def _draw(self, loader: int, epoch: int, count: int) -> list[Numbers]:
        sampler = self._samplers[loader]
        inner = getattr(sampler, "sampler", None)
        with self._moved[0].drawing():
            for set_epoch in {
                id(each): getattr(each, "set_epoch", None) for each in (sampler, inner)
            }.values():
                if set_epoch is not None and self.first_epoch is not None:
                    set_epoch(self.first_epoch + epoch)
            given = self.loaders[loader]
            generator = getattr(inner, "generator", None)
            theirs = getattr(getattr(given.batch_sampler, "sampler", None), "generator", None)
            # A generator that the order does not depend on may draw what it likes.
            draws = given.generator is None or given.generator is theirs
            # Processes that stay have the seed of the first loop.
            if self.draws_seeds and draws and not (given.persistent_workers and epoch):
                generator = None if given.generator is None else generator
                torch_module().empty((), dtype=torch_module().int64).random_(generator=generator)
            order = iter(sampler)
            batches = [np.array(batch, dtype=np.int64) for batch in islice(order, count)]
            if self.asks_again:
                next(order, None)

        if len(batches) < count:
            raise BadTrainer(
                f"the sampler of a DataLoader gives {len(batches)} batches in epoch {epoch + 1} "
                f"instead of {count}; it must give as many in every epoch"
            )

        return batches


def _copied(loader: DataLoader[Any]) -> Any:  # noqa: ANN401 - a batch sampler of any type
    """The batch sampler of a loader with its generators, over the same dataset."""
    shared = {id(loader.dataset): loader.dataset}
    sampler = loader.batch_sampler
    inner: Any = sampler
    while inner is not None:
        source = getattr(inner, "data_source", None)
        if source is not None:
            shared[id(source)] = source
        inner = getattr(inner, "sampler", None)

    try:
        return copy.deepcopy(sampler, shared)
    except Exception as error:
        kind = type(getattr(sampler, "sampler", sampler)).__name__
        raise BadTrainer(
            f"the sampler {kind} of a DataLoader cannot be copied "
            f"({' '.join(str(error).split())}), but each node"
            " draws its order; make it of plain values"
        ) from error


@dataclass(eq=False)
class EpochOrders:
    """The samples of each epoch of a loop over a DataLoader, in its own order, from a random state
    on.
    """

    name: str
    loader: DataLoader[Any]
    state: RandomState
    batch_size: int
    dataset_samples: int
    first_epoch: int | None = 0
    _joined: dict[int, Numbers] = field(default_factory=dict, init=False)
    """The epoch that was asked for last, and the one before."""

    def __getitem__(self, epoch: int) -> LoaderLoop:
        try:
            batches = len(self.loader)
        except (TypeError, NotImplementedError) as error:
            raise BadTrainer(
                f"{self.name}: the sampler of the DataLoader has no length ({error}); give it "
                "__len__"
            ) from error
        return 0, epoch, batches

    @cached_property
    def samples(self) -> int:
        """The number of samples in an epoch."""
        return len(self.epoch(0))

    @cached_property
    def mark(self) -> int:
        """A checksum of the first epoch's order: nodes that draw the same order have the same
        number."""
        return crc32(self.epoch(0).tobytes())

    def epoch(self, epoch: int) -> Numbers:
        """The samples of an epoch. BadTrainer if they are no samples, or a batch but the last has
        another size.
        """
        if epoch not in self._joined:
            batches = self._orders.batches(epoch)
            sizes = [*map(len, batches)]
            joined: Numbers = np.concatenate(batches) if batches else np.zeros(0, np.int64)
            if (
                {*sizes[:-1]} - {self.batch_size}
                or not sizes
                or not 0 < sizes[-1] <= self.batch_size
            ):
                raise BadTrainer(
                    f"{self.name}: the sampler gives batches of "
                    f"{', '.join(map(str, sorted({*sizes})))} samples; all"
                    f" must have batch_size ({self.batch_size}), only the last of an epoch may "
                    "have fewer"
                )
            wrong = joined[(joined < 0) | (joined >= self.dataset_samples)]
            if len(wrong):
                raise BadTrainer(
                    f"{self.name}: the sampler gives sample {wrong[0]}; the dataset has those from "
                    f"0 to {self.dataset_samples - 1:,}"
                )
            if epoch and len(joined) != self.samples:
                raise BadTrainer(
                    f"{self.name}: the sampler gives {len(joined):,} samples in epoch {epoch + 1} "
                    f"and {self.samples:,} in the first; all epochs must have as many"
                )
            self._joined = dict([*self._joined.items(), (epoch, joined)][-2:])
        return self._joined[epoch]

    @cached_property
    def _orders(self) -> LoaderOrders:
        return LoaderOrders(
            [self.loader], self, self.state, asks_again=True, first_epoch=self.first_epoch
        )
