"""A runner in a process of its own, which a terminal shows: `python -m
spotctl.cli.runs.runner_process`.

The process has a session without a terminal: neither Ctrl-C nor a closed terminal reaches it. It
reads its home, its order and whether to show tracebacks from its standard input, as secrets of a
job belong in no file.
"""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from spotctl.cli.app import end_at_once
from spotctl.cli.boundary import DONE, exit_code_of
from spotctl.cli.runs.launches import LaunchOrder, launch_here, resume_here
from spotctl.cli.runs.window import ResumeOrder
from spotctl.cli.session import Session
from spotctl.home.paths import Paths


def main() -> None:
    """Carries out the order on standard input, and exits with the code that the command has without
    a window.
    """
    # From the window, the parent of this process.
    home, order, debug = pickle.load(sys.stdin.buffer)  # noqa: S301
    code = exit_code_of(partial(_carry_out, home, order), debug=debug)
    output = Paths(home).runner_output(os.getpid())

    # A window that was killed at once has not named the file.
    with suppress(FileNotFoundError):
        if code == DONE or not output.stat().st_size:
            output.unlink()

    end_at_once(code)
    sys.exit(code)


def _carry_out(home: Path, order: LaunchOrder | ResumeOrder) -> None:
    session = Session(home, in_window=True)
    if isinstance(order, ResumeOrder):
        resume_here(session, order.job, order.metrics)
    else:
        launch_here(session, order)


if __name__ == "__main__":
    main()
