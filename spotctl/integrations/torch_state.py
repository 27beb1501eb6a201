"""A loader of PyTorch that goes on within an epoch."""

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader


class ResumableLoader(DataLoader[Any]):
    """Keeps the state of the random generators at the start of the epoch, and the number of batches
    since.

    After `load_state_dict`, the next iteration skips the finished batches, and then restores the
    generators to their saved state. The state does not include a `generator=` of the user's own.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._resume: dict[str, Any] | None = None
        self._at_start: dict[str, Any] = {}
        self._batches = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        resume = self._resume
        done = 0 if resume is None else resume["batches"]
        if resume is not None:
            _set_random_state(resume["at_start"] if done < len(self) else resume["now"])
        self._at_start, self._batches = _random_state(), 0
        source = super().__iter__()
        if resume is not None and done < len(self):
            self._batches = sum(1 for _ in islice(source, done))
            _set_random_state(resume["now"])

        return self._counted(source)

    def _counted(self, source: Iterator[Any]) -> Iterator[Any]:
        for batch in source:
            # not earlier: before the first batch, Lightning may begin an epoch more than once
            self._resume = None
            self._batches += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Position and random state, which Lightning stores in its checkpoints."""
        return {"at_start": self._at_start, "batches": self._batches, "now": _random_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a state in the next iteration."""
        self._resume = state


def _random_state() -> dict[str, Any]:
    """The state of all global generators, as values that `torch.load` accepts from any source."""
    name, keys, *rest = np.random.get_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "python": random.getstate(),
        "numpy": (name, np.asarray(keys).tolist(), *rest),
        "torch": torch.get_rng_state(),
        "cuda": cuda,
    }


def _set_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
