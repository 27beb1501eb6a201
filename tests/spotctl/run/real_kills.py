"""Real launches on the local market, whose processes are really killed and resumed by others."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from spotctl.log.store import EventLog
from tests.spotctl.dying import APPEND, KEEP, NOTE, STOP, killed_at
from tests.spotctl.launches import check_nothing_bought_twice, processes, training

CLOCKS = 40
_PROVIDER = "spotctl.clouds.local.provider:LocalProvider"
_LINK = "spotctl.clouds.link:AgentLink"
POINTS = {
    APPEND: 30,
    NOTE: CLOCKS,
    KEEP: 1,
    STOP: 1,
    f"{_PROVIDER}.create": 2,
    f"{_PROVIDER}.list": 20,
    f"{_LINK}.renew": 1,
    f"{_LINK}.status": 20,
    f"{_PROVIDER}.terminate": 1,
}
"""Methods around which a process is killed, and roughly how often the first process calls them at
least."""


def survive_really(runs: int, seed: int) -> str:
    """Launches `runs` times, kills each once or twice, and resumes; returns the number of killed
    processes.
    """
    with tempfile.TemporaryDirectory() as folder:
        expected = _launched(Path(folder))["model_sha256"]
    killed = sum(_survived(random.Random(seed + number), expected) for number in range(runs))
    return (
        f"{runs} launches, {killed} processes killed: no machine bought twice, none left, the same "
        "model"
    )


def _survived(draw: random.Random, expected: str) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with patch.dict("os.environ", {"SPOTCTL_HOME": str(folder / "home")}):
            training(folder, CLOCKS)
            deaths = [_killed(draw, *_next(folder))]
            while deaths[-1] and draw.random() < 0.5:
                deaths.append(_killed(draw, *_next(folder)))
            if deaths[-1]:
                _spotctl(*_next(folder), "--json")
        (path,) = (folder / "home" / "runs").glob("*/iterations.jsonl")
        ended = json.loads(path.read_text().splitlines()[-1])
        assert (ended["model_sha256"], ended["updates_lost"], ended["updates_doubled"]) == (
            expected,
            0,
            0,
        ), name
        check_nothing_bought_twice(folder / "home")
        assert not processes(folder)
    return sum(deaths)


def _next(folder: Path) -> tuple[str | Path, ...]:
    """The next command of a user: there may be no run to resume yet."""
    path = folder / "home" / "log.sqlite"
    if path.exists():
        with EventLog(path) as log:
            if log.beginnings():
                return "resume", "small"
    return "launch", folder / "job.yaml", "--yes"


def _killed(draw: random.Random, *command: str | Path) -> bool:
    point = draw.choice(list(POINTS))
    return killed_at(
        f"{draw.choice(['before', 'after'])}={point}", draw.randrange(POINTS[point]), *command
    )


def _launched(folder: Path) -> Any:  # noqa: ANN401 - JSON is any value
    with patch.dict("os.environ", {"SPOTCTL_HOME": str(folder / "home")}):
        return _spotctl("launch", training(folder, CLOCKS), "--yes", "--json")


def _spotctl(*words: str | Path) -> Any:  # noqa: ANN401 - JSON is any value
    command = [sys.executable, "-c", "from spotctl.cli.app import main; main()", *map(str, words)]
    ended = subprocess.run(command, check=False, capture_output=True, env=os.environ)
    assert ended.returncode == 0, ended.stderr.decode()
    return json.loads(ended.stdout)
