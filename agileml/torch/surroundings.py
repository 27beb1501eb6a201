"""The global state that PyTorch code depends on: random generators and the number of threads."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import numpy as np

from agileml.extras import torch_module

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
    """Seeds the generators of PyTorch, numpy and Python, and computes with a number of threads; all are restored.

    0 leaves the number of threads as it is.
    """
    torch = torch_module()
    with _LOCK:
        # Not `torch.manual_seed`: without a graphics card it queues a call, with the stack, for when there is one.
        cards = torch.cuda if torch.cuda.is_available() else None
        ours = _SPARE.pop() if _SPARE else np.random.MT19937()
        theirs = np.random.get_bit_generator()  # type: ignore[attr-defined]
        before = random.getstate(), torch.get_rng_state(), torch.get_num_threads()
        cards_before = cards and cards.get_rng_state_all()
        torch.default_generator.manual_seed(seed)
        if cards:
            cards.manual_seed_all(seed)
        # Another generator instead of another state of numpy's: copying that, here and below, takes longer than a step
        # of a small network.
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
            if cards:
                cards.set_rng_state_all(cards_before)
