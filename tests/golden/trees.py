"""The two trees, each installed into an environment of its own, and their recordings.

All is kept in a cache folder outside of the project: the checkout, the environment and the
recordings of a commit, which a second comparison finds, and the environment of the present tree,
which is installed again each time.
"""

from __future__ import annotations

import ast
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
from functools import cache
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
"""Where commands run. Every path below has the same length in all recordings: tables and wrapped
lines depend on it."""

LIBRARIES = "zz_libraries.pth"
"""The file of an environment that names the folders of its libraries."""


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
            (tree.environment / "installed").touch()
        _take_libraries(tree)
    return tree


def present_tree() -> Tree:
    """The files of this checkout as they are now, installed."""
    name = hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
    tree = Tree(name, ROOT, CACHE / "environments" / name)
    installed, content = tree.environment / "installed", present_content()
    if not installed.exists() or installed.read_text(encoding="utf-8") != content:
        _install(tree)
        installed.write_text(content, encoding="utf-8")
    _take_libraries(tree)
    return tree


def present_recordings(tree: Tree) -> Path:
    """A folder for what the present tree prints, of its own for each content: older ones are
    deleted.
    """
    kept = CACHE / "recordings" / tree.name / present_content()
    for path in kept.parent.glob("*"):
        if path != kept:
            shutil.rmtree(path)
    return kept


@cache
def present_content() -> str:
    """The name that git gives to all files of this checkout as they are now, except for these
    tests.
    """
    with tempfile.TemporaryDirectory() as folder:
        index = {**os.environ, "GIT_INDEX_FILE": f"{folder}/index"}
        subprocess.run(
            ["git", "add", "--all", "--", ".", ":!tests/golden"], cwd=ROOT, check=True, env=index
        )
        written = subprocess.run(
            ["git", "write-tree"], cwd=ROOT, check=True, env=index, stdout=subprocess.PIPE
        )
    return written.stdout.decode().strip()


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
    """Makes a light environment: the tree's own packages and command, with the libraries of the
    running environment.
    """
    sys.stderr.write(f"{tree.checkout} is installed into an environment of its own\n")
    python = tree.environment / "bin" / "python"
    if not python.exists():
        shutil.rmtree(tree.environment, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", tree.environment], check=True)
    (packages,) = tree.environment.glob("lib/python*/site-packages")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
    for path in (packages / LIBRARIES, tree.environment / "installed"):
        path.unlink(missing_ok=True)
    ended = subprocess.run(
        [*pip, "install", "--no-deps", "--force-reinstall", str(tree.checkout)],
        check=False,
        capture_output=True,
        text=True,
    )
    if ended.returncode:
        raise SystemExit(f"{tree.checkout} cannot be installed:\n{ended.stderr}")


def _take_libraries(tree: Tree) -> None:
    """Gives a tree the libraries of the running environment; those that it had before may be
    gone."""
    libraries = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages,) = tree.environment.glob("lib/python*/site-packages")
    named, text = packages / LIBRARIES, "".join(f"{path}\n" for path in libraries)
    if not named.exists() or named.read_text(encoding="utf-8") != text:
        named.write_text(text, encoding="utf-8")


def recorded(
    tree: Tree,
    base: Tree,
    scenarios: Sequence[Scenario],
    homes: Mapping[str, Home],
    kept: Path,
    took: Sequence[float] = (),
    again: bool = False,
) -> list[dict[str, Any]]:
    """The output of the commands of each scenario; what is kept already is recorded `again` only.

    `took` has the seconds that each took in another tree.
    """
    kept.mkdir(parents=True, exist_ok=True)
    digests = [
        scenario.digest(_recorder(), str(WORK), str(homes[scenario.home]) if scenario.home else "")
        for scenario in scenarios
    ]
    paths = [kept / f"{digest}.json" for digest in digests]
    for path in paths if again else ():
        path.unlink(missing_ok=True)
    label = "the base" if tree is base else "this tree"
    request = {
        "label": label,
        "parent": os.getpid(),
        "environment": str(tree.environment),
        "checkout": str(tree.checkout),
        "base": str(base.checkout),
        "homes": {name: str(home.folder) for name, home in homes.items()},
        "moments": {name: home.later for name, home in homes.items()},
        "out": str(kept),
    }
    if not all(path.exists() for path in paths):
        # Another comparison may record some of them meanwhile.
        with locked(f"{tree.name}.recordings"):
            pairs = zip(scenarios, digests, took or [0.0] * len(scenarios), paths, strict=True)
            missing = [
                _as_request(one, digest, takes)
                for one, digest, takes, path in pairs
                if not path.exists()
            ]
            sys.stderr.write(
                f"{label}: {len(missing)} of {len(scenarios)} scenarios have to be recorded\n"
            )
            if missing:
                _run_recorder(tree, {**request, "scenarios": missing})
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


@cache
def _recorder() -> str:
    """A hash of what the recorder does: its code without what documents it."""
    code = ast.parse(RECORDER.read_text(encoding="utf-8"))
    for node in ast.walk(code):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [one for one in node.body if not _is_text(one)] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(code).encode()).hexdigest()


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _as_request(scenario: Scenario, digest: str, takes: float) -> dict[str, Any]:
    steps = [{**asdict(step), "title": step.title} for step in scenario.steps]
    return {**asdict(scenario), "digest": digest, "takes": takes, "steps": steps}


def _run_recorder(tree: Tree, request: dict[str, Any]) -> None:
    WORK.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK) as work:
        path = Path(work, "request.json")
        plots = _plots()
        path.write_text(
            json.dumps({**request, "work": work, "plots": str(plots)}), encoding="utf-8"
        )
        variables = {
            name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")
        } | {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MPLBACKEND": "agg",
            "MPLCONFIGDIR": str(plots),
            "PYTHONUTF8": "1",
            "SPOTCTL_HOME": f"{work}/home",
        }
        python = tree.environment / "bin" / "python"
        subprocess.run(
            [python, "-P", RECORDER, path],
            check=True,
            env=variables,
            cwd=work,
            stdout=subprocess.DEVNULL,
        )


def _plots() -> Path:
    """Settings of matplotlib under which a plot has the same bytes each time."""
    folder = CACHE / "matplotlib"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "matplotlibrc").write_text("svg.hashsalt: golden\n", encoding="utf-8")
    return folder
