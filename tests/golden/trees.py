"""The two trees, each installed into an environment of its own, and their recordings.

All is kept in a cache folder outside of the project: the checkout, the environment and the recordings of a commit,
which a second comparison finds, and the environment of the present tree, which is installed again each time.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.golden.scenario import Scenario

ROOT = Path(__file__).parents[2]
RECORDER = Path(__file__).with_name("record.py")
CACHE = Path(
    os.environ.get("SPOTCTL_GOLDEN_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spotctl-golden"
)
WORK = Path(tempfile.gettempdir(), "spotctl-golden")
"""Where commands run. Every path below has the same length in all recordings: tables and wrapped lines depend on it."""


@dataclass(frozen=True)
class Tree:
    """A tree of files, and the environment in which it is installed."""

    name: str
    """12 hexadecimal digits."""
    checkout: Path
    environment: Path


@dataclass(frozen=True)
class Home:
    """A recorded home."""

    folder: Path
    later: str
    """An hour after it was recorded."""


def commit_of(base: str) -> str:
    return _git("rev-parse", "--verify", f"{base}^{{commit}}").decode().strip()


def tree_of_commit(commit: str) -> Tree:
    """The tree of a commit, installed once."""
    tree = Tree(commit[:12], CACHE / "trees" / commit[:12], CACHE / "environments" / commit[:12])
    with locked(commit[:12]):
        if not (tree.environment / "installed").exists():
            shutil.rmtree(tree.checkout, ignore_errors=True)
            with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as archive:
                archive.extractall(tree.checkout, filter="data")
            _install(tree)
    return tree


def present_tree() -> Tree:
    """The files of this checkout as they are now, installed again."""
    name = hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
    tree = Tree(name, ROOT, CACHE / "environments" / name)
    _install(tree)
    return tree


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time makes what has this name; others wait for it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def _install(tree: Tree) -> None:
    """Makes a light environment: the tree's own packages and command, with the libraries of the running environment."""
    python = tree.environment / "bin" / "python"
    if not python.exists():
        shutil.rmtree(tree.environment, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", tree.environment], check=True)
    (packages,) = tree.environment.glob("lib/python*/site-packages")
    libraries = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
    (packages / "zz_libraries.pth").unlink(missing_ok=True)
    ended = subprocess.run(
        [*pip, "install", "--no-deps", "--force-reinstall", str(tree.checkout)],
        check=False,
        capture_output=True,
        text=True,
    )
    if ended.returncode:
        raise SystemExit(f"{tree.checkout} cannot be installed:\n{ended.stderr}")
    (packages / "zz_libraries.pth").write_text("".join(f"{path}\n" for path in libraries), encoding="utf-8")
    (tree.environment / "installed").touch()


def recorded(
    tree: Tree, base: Tree, scenarios: Sequence[Scenario], homes: Mapping[str, Home], kept: Path
) -> list[dict[str, Any]]:
    """The output of the commands of each scenario; what is kept already is not recorded again."""
    kept.mkdir(parents=True, exist_ok=True)
    recorder = hashlib.sha256(RECORDER.read_bytes()).hexdigest()
    digests = [
        scenario.digest(recorder, str(WORK), str(homes[scenario.home]) if scenario.home else "")
        for scenario in scenarios
    ]
    paths = [kept / f"{digest}.json" for digest in digests]
    missing = [one for one in zip(scenarios, digests, paths, strict=True) if not one[-1].exists()]
    if missing:
        request = {
            "environment": str(tree.environment),
            "checkout": str(tree.checkout),
            "base": str(base.checkout),
            "homes": {name: str(home.folder) for name, home in homes.items()},
            "moments": {name: home.later for name, home in homes.items()},
            "out": str(kept),
            "scenarios": [_as_request(scenario, digest) for scenario, digest, _ in missing],
        }
        _run_recorder(tree, request)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def _as_request(scenario: Scenario, digest: str) -> dict[str, Any]:
    steps = [{**asdict(step), "title": step.title} for step in scenario.steps]
    return {**asdict(scenario), "digest": digest, "steps": steps}


def _run_recorder(tree: Tree, request: dict[str, Any]) -> None:
    WORK.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK) as work:
        path = Path(work, "request.json")
        plots = _plots()
        path.write_text(json.dumps({**request, "work": work, "plots": str(plots)}), encoding="utf-8")
        variables = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")} | {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MPLBACKEND": "agg",
            "MPLCONFIGDIR": str(plots),
            "PYTHONUTF8": "1",
            "SPOTCTL_HOME": f"{work}/home",
        }
        python = tree.environment / "bin" / "python"
        subprocess.run([python, "-P", RECORDER, path], check=True, env=variables, cwd=work, stdout=subprocess.DEVNULL)


def _plots() -> Path:
    """Settings of matplotlib under which a plot has the same bytes each time."""
    folder = CACHE / "matplotlib"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "matplotlibrc").write_text("svg.hashsalt: golden\n", encoding="utf-8")
    return folder
