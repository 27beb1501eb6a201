"""A spotctl that kills itself at a chosen point: python -m tests.spotctl.dying POINT TIME
COMMAND...

POINT is a method, as `module:Class.method`, or a function that the module calls, and `before` or
`after` it: `before=module:Class.method`. TIME says which call of it is the last that this process
makes, from 0. How fast the computer is changes nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import reduce, wraps
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from spotctl.cli.app import main

APPEND = "spotctl.log.store:EventLog.append"
NOTE = "spotctl.run.work.training_workload:TrainingWorkload._note_iteration"
KEEP = "spotctl.run.work.training_workload:save_model"
STOP = "spotctl.run.turn.service:Runner._stop"


def killed_at(point: str, time: int, *command: str | Path) -> bool:
    """Whether it was killed; False if it ended before that point."""
    words = [sys.executable, "-m", "tests.spotctl.dying", point, str(time), *map(str, command)]
    root = Path(__file__).parents[2]
    ended = subprocess.run(words, check=False, capture_output=True, cwd=root)
    assert ended.returncode in (-signal.SIGKILL, 0), ended.stderr.decode()
    return ended.returncode != 0


def _die(point: str, time: int) -> None:
    when, _, method = point.partition("=")
    module, _, path = method.partition(":")
    *owners, name = path.split(".")
    owner = reduce(getattr, owners, import_module(module))
    setattr(owner, name, _deadly(getattr(owner, name), when == "before", time))


def _deadly(method: Callable[..., Any], before: bool, time: int) -> Callable[..., Any]:
    calls = count()

    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        last = next(calls) == time
        if last and before:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = method(*arguments, **named)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return call


if __name__ == "__main__":
    _die(sys.argv[1], int(sys.argv[2]))
    main(sys.argv[3:])
