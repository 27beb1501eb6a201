"""`resuming`: wrapped around the loop of any training script, it carries the loop through
evictions.

    from spotctl.integrations.loops import resuming

    for epoch in resuming(range(10), model, optimizer):
        ...

It restores the newest save before the first iteration, skips the iterations that are done, and
saves after iterations.
"""

import ctypes
import io
import os
import pickle
import random
import re
import shutil
import sys
import time
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from agileml.runtime.ground import move
from spotctl.agent.checkpoints.local import CHECKPOINT_VARIABLE, TrainingPosition
from spotctl.agent.lease.job_lease import JobLease
from spotctl.agent.lease.lease_files import LeaseAct

__all__ = ["resuming"]


ItemT = TypeVar("ItemT")


_SHARE = 0.05
"""Saves that nothing demands take at most this share of the time."""


_NUMBER = re.compile(r"-(\d+)(?:\.\w+)?$")


class PublishedCheckpoints:
    """The checkpoints of one program, files or folders whose names end with their step:
    `checkpoint-120`.
    """

    def __init__(
        self, folder: Path | None = None, environment: Mapping[str, str] = os.environ
    ) -> None:
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
        """The path to write a checkpoint to before it is published; it is free, and torch.save
        accepts its name.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f".new-{name}"
        _remove(path)
        return path

    def publish(self, name: str, keep: Collection[str] = ()) -> None:
        """Makes a hidden checkpoint visible, and removes all others except those in `keep`."""
        target = self._folder / name
        _remove(target)
        move(self._folder / f".new-{name}", target)
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

    A state has `state_dict` and `load_state_dict` (PyTorch), or `get_weights` and `set_weights`
    (Keras), or is a dict, a list, or an object that can be pickled, such as an estimator of
    scikit-learn. The random numbers of Python, NumPy and PyTorch go on, too. Saves are in `folder`
    (`$SPOTCTL_CHECKPOINT_DIR`). When the machine is about to end, the loop raises `LeaseEnded`
    after a save, which ends the program.

    A program that is started again after its loop was done skips the loop, and finds the names that
    the loop gave as they were: what follows the loop prints and saves the same results.

    A save is a pickle, as estimators need it: who owns an earlier machine of the job can have the
    next one run code, with what the job has there. The launcher's computer never loads a save.
    """
    for state in states:
        if isinstance(state, str | bytes | int | float | tuple | None):
            raise TypeError(
                f"resuming: {state!r} cannot be restored in place; pass a dict that holds it"
            )

    saves = _LoopSaves(PublishedCheckpoints(folder), states)
    items, before = iter(loop), dict(_caller().f_locals)
    _give_names(saves.restore(items))
    for item in items:
        yield item
        saves.attend()

    saves.finish({} if saves.is_finished else _given_names(before, states))


class _LoopSaves:
    """Counts the iterations of a loop, and saves when spotctl asks for a save or when one is
    cheap."""

    def __init__(self, published: PublishedCheckpoints, states: tuple[object, ...]) -> None:
        self._published, self._states, self._lease = published, states, JobLease()
        self._done, self._cost, self._saved = 0, 0.0, time.monotonic()
        self._saved_at, self._has_end = -1, False

    @property
    def _position(self) -> TrainingPosition:
        return TrainingPosition(0, 0, self._done)

    def restore(self, items: Iterator[object]) -> Mapping[str, bytes]:
        """Restores the newest save, and draws the items that are done. Returns the names of a loop
        that is done.
        """
        given: Mapping[str, bytes] = {}
        for path in self._published.all()[-1:]:
            # Written by `_save`, on any machine of the job.
            content = pickle.loads(path.read_bytes())  # noqa: S301
            self._done = self._saved_at = content["done"]
            for _ in range(self._done):
                next(items, None)
            for state, kept in zip(self._states, content["states"], strict=True):
                if hasattr(state, "load_state_dict"):
                    state.load_state_dict(kept)
                elif hasattr(state, "set_weights"):
                    state.set_weights(kept)
                elif isinstance(state, MutableSequence):
                    state[:] = kept
                else:
                    saved = state if isinstance(state, MutableMapping) else vars(state)
                    new = dict(kept if isinstance(kept, MutableMapping) else vars(kept))
                    saved.clear()
                    saved.update(new)

            states = content["random"]
            random.setstate(states["random"])
            if "numpy" in states and "numpy" in sys.modules:
                sys.modules["numpy"].random.set_state(states["numpy"])
            if "torch" in states and (torch := sys.modules.get("torch")) is not None:
                torch.set_rng_state(states["torch"])
                # Another machine may have fewer GPUs.
                for device in range(min(len(states["cuda"]), torch.cuda.device_count())):
                    torch.cuda.set_rng_state(states["cuda"][device], device)

            self._has_end = "given" in content
            given = content.get("given", given)
            self._lease.note_save(self._done)

        self._lease.report_start(self._position)
        self._lease.start_step()
        return given

    def attend(self) -> None:
        """Saves or ends after an iteration, together with all ranks."""
        self._done += 1
        self._lease.count_step()
        decision = self._lease.decision()
        act = decision.act
        if act is LeaseAct.GO and time.monotonic() - self._saved >= self._cost / _SHARE:
            act = LeaseAct.SAVE
        act = LeaseAct(least(act.value))
        if act is not LeaseAct.GO:
            self._save()
        if act is LeaseAct.END:
            raise self._lease.report_end(decision, self._position)
        self._lease.report_progress(decision, self._position, saved=act is LeaseAct.SAVE)

    @property
    def is_finished(self) -> bool:
        """Whether the newest save is that of the end, or there is nothing to save."""
        return self._saved_at == self._done and self._has_end

    def finish(self, given: Mapping[str, bytes]) -> None:
        """Saves the end of the loop with the names that it gave: a program that is evicted after it
        needs both.
        """
        if not self.is_finished:
            self._save(given)
        self._lease.report_finish(self._position)

    def _save(self, given: Mapping[str, bytes] | None = None) -> None:
        began, name = time.monotonic(), f"loop-{self._done}.pickle"
        if os.environ.get("RANK", "0") == "0":
            kept: list[Any] = []
            for state in self._states:
                if hasattr(state, "state_dict"):
                    kept.append(state.state_dict())
                else:
                    kept.append(state.get_weights() if hasattr(state, "get_weights") else state)

            states: dict[str, Any] = {"random": random.getstate()}
            if "numpy" in sys.modules:
                states["numpy"] = sys.modules["numpy"].random.get_state()
            if (torch := sys.modules.get("torch")) is not None:
                states["torch"] = torch.get_rng_state()
                states["cuda"] = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []

            content = {"done": self._done, "states": kept, "random": states}

            if given is not None:
                content["given"] = given
            self._published.hidden(name).write_bytes(pickle.dumps(content))
            self._published.publish(name)

        least(0)  # a process that ends may take the others with it
        self._saved = time.monotonic()
        self._cost, self._saved_at = self._saved - began, self._done
        self._lease.note_save(self._done, began)
        self._lease.start_step()


_LIBRARIES = {"site-packages", "dist-packages"}
_LARGEST_NAME = 64 * 2**20
"""Bytes of a value that is kept for what follows a loop: the last batch or loss, and no data
set."""


class _Limited(io.BytesIO):
    """Takes no more than the largest value."""

    def write(self, content: Any) -> int:
        if self.tell() + len(content) > _LARGEST_NAME:
            raise OverflowError
        return super().write(content)


def _caller() -> FrameType:
    """The user's code that runs the loop, also where a library's progress bar stands between."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename == __file__
        or not _LIBRARIES.isdisjoint(Path(frame.f_code.co_filename).parts)
    ):
        frame = frame.f_back
    return frame


def _given_names(before: Mapping[str, object], states: tuple[object, ...]) -> dict[str, bytes]:
    """The names that a loop has given or changed, other than the states, which are restored by
    themselves.
    """
    given: dict[str, bytes] = {}
    for name, value in _caller().f_locals.items():
        is_state = any(value is state for state in states)
        if (
            is_state
            or (name in before and value is before[name])
            or getattr(value, "nbytes", 0) > _LARGEST_NAME
        ):
            continue
        content = _Limited()
        with suppress(Exception):  # any class may refuse to be pickled, in its own way
            pickle.dump(value, content)
            given[name] = content.getvalue()

    return given


def _give_names(given: Mapping[str, bytes]) -> None:
    caller = _caller()
    names = caller.f_locals
    for name, content in given.items():
        try:
            names[name] = pickle.loads(content)  # noqa: S301  # written by `_given_names`
        # Such as a value of a GPU that this machine lacks.
        except Exception as error:  # noqa: BLE001
            warnings.warn(
                f"resuming: the loop is done, but {name} cannot be restored: {error}", stacklevel=1
            )

    if given and sys.version_info < (3, 13):
        # Until then, the names of a function are a copy.
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(caller), ctypes.c_int(0))


def least(value: int) -> int:
    """The minimum of the values that all ranks pass; returns once every rank has passed one. One
    process: its value.
    """
    if "torch" not in sys.modules:
        return value
    import torch
    from torch import distributed

    if (
        not (distributed.is_available() and distributed.is_initialized())
        or distributed.get_world_size() == 1
    ):
        return value

    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    shared = torch.tensor([value], device=device)
    distributed.all_reduce(shared, distributed.ReduceOp.MIN)
    return int(shared.item())
