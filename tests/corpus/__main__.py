"""Does `spotctl init --try` keep its promises for a folder of training scripts?

    python -m tests.corpus FOLDER [--only NAME...] [--json]

FOLDER holds the scripts, with tiny stand-ins for their data and for modules that are not installed,
and `cases.toml`, a table for each script:

    [nanogpt]
    folder = "nanoGPT"              # in which it runs
    script = "train.py"
    arguments = "--max_iters=300"
    final = "out/ckpt.pt"           # what it has at its end; left out: it never saves, or never loads
    path = ["stand-ins"]            # folders of modules, besides its own

For each, `init --try` is run on a copy of the folder. An oracle that shares no code with it then runs
the script to its end, and again with two kills: each time, the next start gets a new copy of the
folder, and of the earlier one only what the job file keeps. Promised falsely is a script that was
said to resume, and whose killed run computes as long as from the beginning, or ends elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

PATIENCE = 900.0
"""Seconds for one run of a script."""


@dataclass(frozen=True)
class Tried:
    """A script: what init said, and what the oracle saw."""

    name: str
    loads: bool
    verdict: str
    resumes: bool | None
    changes: int
    kept: tuple[str, ...]
    is_same: bool | None
    """Whether the killed run ended as the undisturbed one; None: it was not run."""
    saw: str

    @property
    def is_false(self) -> bool:
        return self.is_same is False


@dataclass(frozen=True)
class Case:
    """A script of the folder."""

    name: str
    folder: Path
    script: str
    arguments: str = ""
    final: str = ""
    path: tuple[str, ...] = ()

    def environment(self, root: Path, **more: str) -> dict[str, str]:
        folders = (str((root / each).resolve()) for each in self.path)
        return {**os.environ, "PYTHONPATH": os.pathsep.join(folders), **more}


def cases(root: Path) -> Iterator[Case]:
    for name, about in tomllib.loads((root / "cases.toml").read_text()).items():
        places = {"folder": root / about["folder"], "path": tuple(about.get("path", ()))}
        yield Case(name, **{**about, **places})


def try_case(case: Case, root: Path) -> Tried:
    with TemporaryDirectory() as scratch:
        folder = Path(scratch, "work")
        shutil.copytree(case.folder, folder)
        words = ["init", case.script, "job.yaml", "--try", "--yes", "--json"]
        words += ["--", *shlex.split(case.arguments)] if case.arguments else []
        ended = subprocess.run(
            [sys.executable, "-m", "spotctl", *words],
            cwd=folder,
            env=case.environment(root, SPOTCTL_HOME=str(Path(scratch, "home"))),
            capture_output=True,
            text=True,
            check=False,
        )
        answer = json.loads(ended.stdout)["script"] if ended.stdout else {}
        tried = answer.get("tried") or {"verdict": "refused", "saw": ended.stderr.strip()}
        job = folder / "job.yaml"
        spec = yaml.safe_load(job.read_text()) if job.is_file() else {}
        kept = tuple((spec.get("checkpoint") or {}).get("keep", ()))
        changes = len(answer.get("changes") or ())

        is_same = None
        if tried["verdict"] == "resumed" and not changes and case.final:
            is_same = _ends_alike(case, root, spec, Path(scratch))
        resumes = answer.get("resumes")
        facts = tried["verdict"], resumes, changes, kept, is_same, tried["saw"]
        return Tried(case.name, bool(case.final), *facts)


def _ends_alike(case: Case, root: Path, spec: Mapping[str, Any], scratch: Path) -> bool:
    """Whether the job ends with the same content undisturbed, and killed twice."""
    kept = tuple((spec.get("checkpoint") or {}).get("keep", ()))
    quiet = scratch / "quiet"
    shutil.copytree(case.folder, quiet)
    begun = time.monotonic()
    _start(case, root, spec["run"], quiet, PATIENCE)
    lasted = time.monotonic() - begun

    killed = scratch / "killed-0"
    shutil.copytree(case.folder, killed)
    for number in (1, 2):
        _start(case, root, spec["run"], killed, lasted * 0.45)
        after = scratch / f"killed-{number}"
        shutil.copytree(case.folder, after)
        for glob in kept:
            for found in killed.glob(glob.rstrip("/")):
                place = after / found.relative_to(killed)
                place.parent.mkdir(parents=True, exist_ok=True)
                if found.is_dir():
                    shutil.copytree(found, place, dirs_exist_ok=True)
                else:
                    shutil.copy2(found, place)
        shutil.copytree(killed / ".store", after / ".store", dirs_exist_ok=True)
        killed = after

    begun = time.monotonic()
    _start(case, root, spec["run"], killed, PATIENCE)
    # Two kills at less than half leave less than the whole to do.
    is_shorter = time.monotonic() - begun < lasted * 0.9
    return is_shorter and _alike(quiet / case.final, killed / case.final)


def _start(case: Case, root: Path, run: str, folder: Path, seconds: float) -> None:
    """Runs the job's command in a folder, and kills it after some seconds."""
    store = folder / ".store"
    store.mkdir(exist_ok=True)
    env = case.environment(root, SPOTCTL_CHECKPOINT_DIR=str(store))
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        process = subprocess.Popen(
            run, shell=True, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _alike(first: Path, second: Path) -> bool:
    """Whether two files hold the same weights; in a checkpoint, times and versions may differ."""
    if not (first.is_file() and second.is_file()):
        return False
    if first.suffix in (".npz", ".npy"):
        import numpy as np

        return _same(dict(np.load(first)), dict(np.load(second)))
    import torch

    return _same(*(torch.load(path, weights_only=False) for path in (first, second)))


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Whether all tensors of two checkpoints are the same."""
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if hasattr(one, "state_dict"):
        return _same(one.state_dict(), other.state_dict())
    if hasattr(one, "shape"):
        return one.shape == other.shape and bool((one == other).all())
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = []
    for case in cases(asked.folder):
        if asked.only and case.name not in asked.only:
            continue
        tried = try_case(case, asked.folder)
        found.append(tried)
        if asked.json:
            print(json.dumps(asdict(tried)), flush=True)
        else:
            kept = f", keeps {', '.join(tried.kept)}" if tried.kept else ""
            same = {None: "", True: "; ends alike", False: "; PROMISED FALSELY"}[tried.is_same]
            print(f"{case.name}: {tried.verdict}{kept}{same}: {tried.saw}", flush=True)

    able = [tried for tried in found if tried.loads]
    resumed = [tried for tried in able if tried.verdict == "resumed"]
    unchanged = [tried for tried in resumed if not tried.changes]
    false = [tried for tried in found if tried.is_false]
    print(
        f"{len(found)} scripts, {len(able)} save and load: {len(resumed)} resume, {len(unchanged)} "
        f"of them unchanged; {len(false)} promised falsely"
    )
    return bool(false)


if __name__ == "__main__":
    sys.exit(main())
