"""A laptop that launches jobs on simulated clouds: a home folder, and spotctl in processes of its
own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotctl.home.paths import Paths
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from spotctl.run.remote_runner.homes import archives_of

_SPOTCTL = (sys.executable, "-c", "from spotctl.cli.app import main; main()")
_NO_INDEX = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
"""No test asks a package index of the network."""

_PATIENCE_SECONDS = 600.0
_TEST_RUN = re.compile(r"pytest-\d+")
"""The folder of all workers of a test run."""

TRAINER = '''\
"""Fits a line to points, with a pause in each step, so that machines can be taken away meanwhile."""

import time

import numpy as np


class Line:
    def __init__(self, pause=0.0):
        self.pause = pause

    def init(self, rng):
        return {"line": np.zeros((1, 2))}

    def shards(self):
        x = np.linspace(0.0, 1.0, 64)
        return np.array_split(np.column_stack([x, 3 * x - 1]), 8)

    def step(self, shard, lo, hi, params, clock, rng):
        time.sleep(self.pause)
        errors = self.errors(shard[lo:hi], params)
        params.update("line", [0], [[-0.01 * errors @ shard[lo:hi, 0], -0.01 * errors.sum()]])

    def loss(self, params, sample):
        return np.mean([np.square(self.errors(piece.shard[piece.lo : piece.hi], params)).mean() for piece in sample])

    def errors(self, points, params):
        slope, intercept = params.read("line", [0])[0]
        return slope * points[:, 0] + intercept - points[:, 1]
'''


@dataclass
class Laptop:
    """`environment` is that of the clouds that it uses."""

    folder: Path
    environment: Mapping[str, str]
    home: Path = field(init=False)

    def __post_init__(self) -> None:
        self.home = self.folder / "home"
        (self.folder / "work").mkdir(parents=True, exist_ok=True)
        # The laptops of a test run share what they have packed for machines: packing takes most of
        # a launch.
        archives = (
            next((one for one in self.folder.parents if _TEST_RUN.fullmatch(one.name)), self.folder)
            / "archives"
        )
        archives.mkdir(exist_ok=True)
        archives_of(self.home).parent.mkdir(parents=True)
        archives_of(self.home).symlink_to(archives, target_is_directory=True)

    @property
    def variables(self) -> dict[str, str]:
        return {**os.environ, **_NO_INDEX, **self.environment, "SPOTCTL_HOME": str(self.home)}

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs spotctl to its end."""
        return subprocess.run(
            [*_SPOTCTL, *map(str, words)],
            env=self.variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )

    def answer(self, *words: str | Path) -> Any:  # noqa: ANN401 - JSON is any value
        """What spotctl answers with --json."""
        ended = self.run(*words, "--json")
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    @contextmanager
    def launched(self, *words: str | Path) -> Iterator[Launched]:
        """Runs spotctl in the background, and kills it at the end. Its machines end with the test's
        cloud.
        """
        process = subprocess.Popen(
            [*_SPOTCTL, *map(str, words)],
            env=self.variables,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        launched = Launched(process)
        try:
            yield launched
        finally:
            if process.poll() is None:
                launched.kill()

    def job(self, text: str, name: str = "job.yaml") -> Path:
        """Writes a job file whose folder holds the trainer."""
        (self.folder / "work" / "line.py").write_text(TRAINER)
        (self.folder / name).write_text(text)
        return self.folder / name

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Waits for something that no process of this computer does."""
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while not happened():
            assert time.monotonic() < give_up, "it never happened"
            time.sleep(1.0)

    def clock(self, job: str) -> int:
        """The last clock of a job's latest run that is in the log."""
        # Not with `spotctl status`: its start-up again and again would slow the machines.
        with EventLog(Paths(self.home).log) as log:
            run = latest_run(log, job)
        return 0 if run is None or run.progress is None else run.progress.clock


@dataclass
class Launched:
    """A spotctl that runs."""

    process: subprocess.Popen[str]

    def ended(self) -> tuple[int, str, str]:
        """Exit code, output and errors, once it has ended."""
        out, err = self.process.communicate(timeout=_PATIENCE_SECONDS)
        return self.process.returncode, out, err

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.communicate()

    def wait_for(self, happened: Callable[[], bool]) -> None:
        """Waits for something that the run does; fails if the run ends before that."""
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while not happened():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < give_up, "it never happened"
            time.sleep(0.5)
