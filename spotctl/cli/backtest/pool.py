"""Runs backtests in several processes, with a progress bar."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from spotctl.cli.session import Session

if TYPE_CHECKING:
    from bidbrain.backtest.results import JobResult
    from bidbrain.backtest.run import BacktestPortion

_QUIET = "ignore:resource_tracker:UserWarning"


def _start_quiet_tracker() -> None:
    """Starts Python's tracker, which frees a pool's semaphores after Ctrl-C, as it should, but without a warning."""
    from multiprocessing import resource_tracker

    usual = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (usual, _QUIET)))
    try:
        resource_tracker.ensure_running()
    finally:
        if usual is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = usual


def replay(session: Session, parts: Sequence[BacktestPortion], workers: int) -> list[list[JobResult]]:
    """Replays the parts in `workers` processes (0: one per core); returns their results in order."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from agileml.engines.interrupts import ignored_by_children
    from bidbrain.backtest.run import run_portion
    from spotctl.cli.progress import counting

    results = []
    with counting(session, "replaying", len(parts)) as step, ExitStack() as stack:
        map_: Callable[..., Iterator[list[JobResult]]] = map
        if workers != 1:
            _start_quiet_tracker()
            # Spawned, not forked: a fork would copy the locks of the progress bar's thread in any state.
            pool = ProcessPoolExecutor(workers or None, mp_context=get_context("spawn"))
            # After Ctrl-C, nobody waits for a replay.
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            map_ = pool.map
        with ignored_by_children():
            portions = map_(run_portion, parts)
        for portion in portions:
            results.append(portion)
            step()
    return results
