"""Whether a job that is killed twice ends as it does undisturbed.

Each start after a kill gets a new copy of the folder, and of the earlier one only what the job file
keeps. Random numbers begin with the same seed in each start, unless the script has one of its own. A
script that does not save them draws others after a kill: then its weights may be as far from those
of the undisturbed run as in a second undisturbed run that draws others after its first step.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any

PATIENCE = 900.0
"""Seconds for one run of a script."""
_LOOK_SECONDS = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
_KILLED_AT = 0.5, 0.35
"""The kills: parts of the work that follows the first save, by the processor time."""
_MOST_AGAIN, _ATTEMPTS = 0.85, 4
_AS_NEAR, _STILL_SECONDS = 2.0, 0.2

_SEEDED = """
import importlib.util, os, sys

class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            seed(0)
            if os.environ.get("CORPUS_OTHER"):
                from torch.optim.optimizer import register_optimizer_step_post_hook
                hook = register_optimizer_step_post_hook(lambda *_: (hook.remove(), seed(1)) and None)
                other_order()
        spec.loader.exec_module = exec_module
        return spec

def seed(number):
    import random
    import numpy, torch
    random.seed(number), numpy.random.seed(number), torch.manual_seed(number)

def other_order():
    import random
    class Random(random.Random):
        def seed(self, number=None, version=2):
            super().seed(number if number is None else str(number) + " other", version)
    random.Random = Random

here = os.path.dirname(os.path.abspath(__file__))
for folder in sys.path:
    file = os.path.join(folder, "sitecustomize.py")
    if os.path.abspath(folder) != here and os.path.isfile(file):
        spec = importlib.util.spec_from_file_location("_next_sitecustomize", file)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        break
sys.meta_path.insert(0, _Finder())
"""


class Ending(StrEnum):
    """The outcome of the killed run."""

    SAME = "ends alike"
    AS_NEAR = "ends as near as with other random numbers"
    LONGER = "computed as long as from the beginning"
    FAILED = "the start after the kills failed"
    ELSEWHERE = "ends elsewhere"
    NONE = "the undisturbed run leaves nothing to compare"
    UNKILLED = "ended before it was killed twice"


class KilledTwice:
    """A job's command in copies of a folder: undisturbed, and with two kills."""

    def __init__(
        self,
        folder: Path,
        spec: Mapping[str, Any],
        environment: Mapping[str, str],
        scratch: Path,
        final: str,
    ) -> None:
        self._folder, self._spec, self._scratch, self._final = folder, spec, scratch, final
        (scratch / "seeded").mkdir()
        (scratch / "seeded" / "sitecustomize.py").write_text(_SEEDED)
        path = os.pathsep.join(filter(None, (str(scratch / "seeded"), environment["PYTHONPATH"])))
        self._environment = {**environment, "PYTHONPATH": path}

    def ending(self) -> Ending:
        quiet = self._copy("quiet")
        status, first, whole = self._run(quiet)
        if status or self._ended(quiet) is None:
            return Ending.NONE

        killed: Path | None = None
        for number, part in enumerate(_KILLED_AT):
            killed = self._killed(f"killed-{number}", killed, first, part * (whole - first))
            if killed is None:
                return Ending.UNKILLED

        last = self._copy("last", killed)
        status, _, spent = self._run(last)
        if status or self._ended(last) is None:
            return Ending.FAILED
        work, apart = spent - first, _apart(self._ended(quiet), self._ended(last))
        if apart == 0.0 and work <= _MOST_AGAIN * (whole - first):
            return Ending.SAME

        # On a busy computer, another undisturbed run takes longer, too.
        other = self._copy("other")
        self._environment["CORPUS_OTHER"] = "1"
        _, first, again = self._run(other)
        if work > _MOST_AGAIN * (max(whole, again) - first):
            return Ending.LONGER
        chance = _apart(self._ended(quiet), self._ended(other))
        return Ending.AS_NEAR if apart <= _AS_NEAR * chance else Ending.ELSEWHERE

    def ending_elsewhere(self, results: Path) -> Ending:
        """How a run ended that was evicted on other machines, and left its results in a folder."""
        quiet, other = self._copy("quiet"), self._copy("other")
        self._run(quiet)
        self._environment["CORPUS_OTHER"] = "1"
        self._run(other)
        here, by_chance = self._ended(quiet), self._ended(other)
        # Of copies, times say nothing: it is the file that the undisturbed run has at its end.
        self._final = f"**/{self._files(quiet)[-1].name}"
        there = self._ended(results)
        if there is None:
            return Ending.FAILED
        apart, chance = _apart(here, there), _apart(here, by_chance)
        near = Ending.AS_NEAR if apart <= _AS_NEAR * chance else Ending.ELSEWHERE
        return Ending.SAME if apart == 0.0 else near

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of a start, with the same random numbers in each."""
        return self._environment

    def _copy(self, name: str, before: Path | None = None) -> Path:
        """A new copy of the folder, with what is kept of an earlier start."""
        after = self._scratch / name
        shutil.copytree(self._folder, after)
        if before is not None:
            self._bring_back(before, after)
        return after

    def _killed(self, name: str, before: Path | None, first: float, work: float) -> Path | None:
        """A start that was killed after this work since its first save, or earlier if it ends
        before; None if it cannot be killed."""
        for attempt in range(_ATTEMPTS):
            killed = self._copy(f"{name}-{attempt}", before)
            status, *_ = self._run(killed, first + work / 2**attempt)
            if status:
                return killed
        return None

    def _bring_back(self, before: Path, after: Path) -> None:
        for glob in (self._spec.get("checkpoint") or {}).get("keep", ()):
            for found in before.glob(glob.rstrip("/")):
                place = after / found.relative_to(before)
                place.parent.mkdir(parents=True, exist_ok=True)
                if found.is_dir():
                    shutil.copytree(found, place, dirs_exist_ok=True)
                else:
                    shutil.copy2(found, place)
        shutil.copytree(before / ".store", after / ".store", dirs_exist_ok=True)

    def _run(self, folder: Path, until: float | None = None) -> tuple[int, float, float]:
        """Runs the command in a folder, and kills it after this processor time; its status, and the
        processor time up to its first save and its end."""
        store, result = folder / ".store", folder / ".result"
        store.mkdir(exist_ok=True)
        result.mkdir(exist_ok=True)
        places = {"SPOTCTL_CHECKPOINT_DIR": str(store), "OUTPUT_MODEL": str(result)}
        places["SPOTCTL_NPROC_PER_NODE"] = "1"
        with (self._scratch / f"{folder.name}.log").open("ab") as log:
            process = subprocess.Popen(
                self._spec["run"],
                shell=True,
                cwd=folder,
                env={**self._environment, **places},
                stdout=log,
                stderr=log,
            )
            give_up, spent, first = time.monotonic() + PATIENCE, 0.0, 0.0
            while process.poll() is None:
                family = _family(process.pid)
                spent = max(spent, sum(family.values()))
                if not first and any(folder.glob(self._final)):
                    first = spent
                is_due = until is not None and spent > until and self._is_still(folder)
                if is_due or time.monotonic() > give_up:
                    for pid in family:
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                time.sleep(_LOOK_SECONDS)
        return process.returncode, first, spent

    def _is_still(self, folder: Path) -> bool:
        """Whether no file is being saved: a machine copies whole ones only."""
        times = [
            path.stat().st_mtime
            for path in folder.rglob(f"*{Path(self._final).suffix}")
            if path.is_file()
        ]
        return time.time() - max(times, default=0.0) > _STILL_SECONDS

    def _files(self, folder: Path) -> list[Path]:
        """The files that the script may have at its end, the newest last."""
        return sorted(folder.glob(self._final), key=lambda path: path.stat().st_mtime)

    def _ended(self, folder: Path) -> Any:  # noqa: ANN401
        """The content of the newest file that the script has at its end; None: it has none."""
        import torch

        load_file = import_module("safetensors.torch").load_file

        files = self._files(folder)
        if not files:
            return None
        if files[-1].suffix in (".npz", ".npy"):
            import numpy as np

            return dict(np.load(files[-1]))
        if files[-1].suffix == ".safetensors":
            return load_file(files[-1])
        return torch.load(files[-1], weights_only=False, pickle_module=_AnyClass)


class _AnyClass:
    """Reads pickles with objects of the script's own classes, which are not imported here."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str, /) -> Any:  # noqa: ANN401
            try:
                return super().find_class(module, name)
            except (ImportError, AttributeError):
                return type(name, (), {})

    load = pickle.load


def _family(parent: int) -> dict[int, float]:
    """A process and those that it has started: the processor time of each, with what it waited
    for."""
    parents, spent = dict[int, int](), dict[int, float]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        spent[int(stat.parent.name)] = sum(map(int, fields[11:15])) / _TICKS

    family = {parent}
    while more := {pid for pid, above in parents.items() if above in family} - family:
        family |= more
    return {pid: spent.get(pid, 0.0) for pid in family}


def _apart(one: Any, other: Any, name: str = "") -> float:  # noqa: ANN401
    """How far the weights of two checkpoints are apart; infinite if they hold different things, or
    stand at other numbers of steps or epochs. Times, versions and measures may differ."""
    if hasattr(one, "state_dict"):
        one, other = one.state_dict(), other.state_dict()
    apart, is_same = 0.0, True
    if isinstance(one, Mapping):
        is_same = one.keys() == other.keys()
        apart = sum(_apart(one[key], other[key], str(key)) for key in one) if is_same else 0.0
    elif isinstance(one, list | tuple):
        is_same = len(one) == len(other)
        apart = (
            sum(_apart(*both, name) for both in zip(one, other, strict=True)) if is_same else 0.0
        )
    elif hasattr(one, "shape"):
        is_same = one.shape == other.shape
        is_random = "rng" in name or "random" in name
        apart = float(abs(one - other).sum()) if is_same and not is_random else 0.0
    elif type(one) is int and any(word in name for word in ("epoch", "step", "iter")):
        is_same = one == other
    elif hasattr(one, "__dict__") and type(one).__module__ == __name__:
        return _apart(vars(one), vars(other), name)
    return apart if is_same else float("inf")
