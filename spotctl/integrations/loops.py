"""`resuming`: wrapped around the loop of any training script, it carries the loop through evictions.

    from spotctl.integrations.loops import resuming

    for epoch in resuming(range(10), model, optimizer):
        ...

It restores the newest save before the first iteration, skips the iterations that are done, and saves after iterations.
"""

import os
import pickle
import random
import re
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from pathlib import Path
from typing import Any, TypeVar

from spotctl.agent.checkpoints.interval import CHECKPOINT_VARIABLE
from spotctl.agent.checkpoints.local import TrainingPosition
from spotctl.agent.lease.job_lease import JobLease
from spotctl.agent.lease.lease_files import LeaseAct

__all__ = ["resuming"]


ItemT = TypeVar("ItemT")


_SHARE = 0.05
"""Saves that nothing demands take at most this share of the time."""


_NUMBER = re.compile(r"-(\d+)(?:\.\w+)?$")


class PublishedCheckpoints:
    """The checkpoints of one program, files or folders whose names end with their step: `checkpoint-120`."""

    def __init__(self, folder: Path | None = None, environment: Mapping[str, str] = os.environ) -> None:
        self._folder = folder or Path(environment.get(CHECKPOINT_VARIABLE, "checkpoints"))

    def all(self) -> list[Path]:
        """All checkpoints, from the oldest step to the newest."""
        steps = dict[Path, int]()
        for path in self._folder.glob("*"):
            match = _NUMBER.search(path.name)
            if match and not path.name.startswith("."):
                steps[path] = int(match[1])
        return sorted(steps, key=steps.__getitem__)

    def hidden(self, name: str) -> Path:
        """The path to write a checkpoint to before it is published; it is free, and torch.save accepts its name."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f".new-{name}"
        _remove(path)
        return path

    def publish(self, name: str, keep: Collection[str] = ()) -> None:
        """Makes a hidden checkpoint visible, and removes all others except those in `keep`."""
        target = self._folder / name
        _remove(target)
        (self._folder / f".new-{name}").rename(target)
        for other in self.all():
            if other.name not in {name, *keep}:
                _remove(other)


def link_tree(source: Path, target: Path) -> None:
    """Copies a folder, without taking room if the file system has hard links."""
    _remove(target)
    shutil.copytree(source, target, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def resuming(loop: Iterable[ItemT], *states: object, folder: Path | None = None) -> Iterator[ItemT]:
    """The remaining items of a loop that changes `states`, which are there before the loop begins.

    A state has `state_dict` and `load_state_dict` (PyTorch), or `get_weights` and `set_weights` (Keras), or is a dict,
    a list, or an object that can be pickled, such as an estimator of scikit-learn. The random numbers of Python, NumPy
    and PyTorch go on, too. Saves are in `folder` (`$SPOTCTL_CHECKPOINT_DIR`). When the machine is about to end, the
    loop raises `LeaseEnded` after a save, which ends the program.
    """
    for state in states:
        if isinstance(state, str | bytes | int | float | tuple | None):
            raise TypeError(f"resuming: {state!r} cannot be restored in place; pass a dict that holds it")
    saves = _LoopSaves(PublishedCheckpoints(folder), states)
    items = iter(loop)
    saves.restore(items)
    for item in items:
        yield item
        saves.attend()
    saves.finish()


class _LoopSaves:
    """Counts the iterations of a loop, and saves when spotctl asks for a save or when one is cheap."""

    def __init__(self, published: PublishedCheckpoints, states: tuple[object, ...]) -> None:
        self._published, self._states, self._lease = published, states, JobLease()
        self._done, self._cost, self._saved = 0, 0.0, time.monotonic()
        self._saved_at = -1

    @property
    def _position(self) -> TrainingPosition:
        return TrainingPosition(0, 0, self._done)

    def restore(self, items: Iterator[object]) -> None:
        """Restores the newest save, and draws the items that are done."""
        for path in self._published.all()[-1:]:
            content = pickle.loads(path.read_bytes())  # noqa: S301  # written by `_save`
            self._done = self._saved_at = content["done"]
            for _ in range(self._done):
                next(items, None)
            for state, kept in zip(self._states, content["states"], strict=True):
                _restore(state, kept)
            _restore_random_numbers(content["random"])
            self._lease.note_save(self._done)
        self._lease.report_start(self._position)
        self._lease.start_step()

    def attend(self) -> None:
        """Saves or ends after an iteration, together with all ranks."""
        self._done += 1
        self._lease.count_step()
        decision = self._lease.decision()
        act = decision.act
        if act is LeaseAct.GO and time.monotonic() - self._saved >= self._cost / _SHARE:
            act = LeaseAct.SAVE
        act = LeaseAct(_least(act.value))
        if act is not LeaseAct.GO:
            self._save()
        if act is LeaseAct.END:
            raise self._lease.report_end(decision, self._position)
        self._lease.report_progress(decision, self._position, saved=act is LeaseAct.SAVE)

    def finish(self) -> None:
        """Saves the end of the loop: a program that is evicted after it does not repeat it."""
        if self._saved_at != self._done:
            self._save()
        self._lease.report_finish(self._position)

    def _save(self) -> None:
        began, name = time.monotonic(), f"loop-{self._done}.pickle"
        if os.environ.get("RANK", "0") == "0":
            kept = [_kept(state) for state in self._states]
            content = {"done": self._done, "states": kept, "random": _random_numbers()}
            self._published.hidden(name).write_bytes(pickle.dumps(content))
            self._published.publish(name)
        _least(0)  # a process that ends may take the others with it
        self._saved = time.monotonic()
        self._cost, self._saved_at = self._saved - began, self._done
        self._lease.note_save(self._done, began)
        self._lease.start_step()


def _kept(state: Any) -> object:
    if hasattr(state, "state_dict"):
        return state.state_dict()
    return state.get_weights() if hasattr(state, "get_weights") else state


def _restore(state: Any, kept: Any) -> None:
    if hasattr(state, "load_state_dict"):
        state.load_state_dict(kept)
    elif hasattr(state, "set_weights"):
        state.set_weights(kept)
    elif isinstance(state, MutableSequence):
        state[:] = kept
    else:
        content = state if isinstance(state, MutableMapping) else vars(state)
        new = dict(kept if isinstance(kept, MutableMapping) else vars(kept))
        content.clear()
        content.update(new)


def _random_numbers() -> dict[str, Any]:
    """The random numbers of the libraries that the program uses."""
    kept: dict[str, Any] = {"random": random.getstate()}
    if "numpy" in sys.modules:
        kept["numpy"] = sys.modules["numpy"].random.get_state()
    if (torch := sys.modules.get("torch")) is not None:
        kept["torch"] = torch.get_rng_state()
        kept["cuda"] = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return kept


def _restore_random_numbers(kept: dict[str, Any]) -> None:
    random.setstate(kept["random"])
    if "numpy" in kept and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(kept["numpy"])
    if "torch" in kept and (torch := sys.modules.get("torch")) is not None:
        torch.set_rng_state(kept["torch"])
        # Another machine may have fewer GPUs.
        for device in range(min(len(kept["cuda"]), torch.cuda.device_count())):
            torch.cuda.set_rng_state(kept["cuda"][device], device)


def _least(value: int) -> int:
    """The minimum over all ranks, where the program has several."""
    if "torch" not in sys.modules:
        return value
    from spotctl.integrations.torch_state import least

    return least(value)
