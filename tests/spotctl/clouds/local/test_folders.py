"""Folders of machines whose owners are gone."""

from __future__ import annotations

import fcntl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agileml.runtime.ground import is_locked
from spotctl.clouds.local.folders import AllocationFolders
from spotctl.clouds.local.provider import LocalProvider
from spotctl.clouds.provider import MachineState
from tests.spotctl.clouds.leaving import kill_all
from tests.spotctl.clouds.local.test_provider import SLEEPER, order


def test_a_process_that_checks_a_lock_is_not_mistaken_for_a_machine(
    slow: LocalProvider, root: Path
) -> None:
    asked = order("t", 1, SLEEPER)
    slow.create(asked)
    kill_all(root)
    (state,) = root.glob("machines/*/0/state.json")
    state.unlink()
    with (state.parent / "lock").open() as looker, ThreadPoolExecutor(1) as pool:
        fcntl.flock(looker, fcntl.LOCK_SH)
        (machine,) = next(AllocationFolders(root).all()).machines
        assert not is_locked(machine.folder / "lock")
        rent = pool.submit(slow.create, asked)
        time.sleep(0.1)
        fcntl.flock(looker, fcntl.LOCK_UN)
        assert [one.state for one in rent.result()] == [MachineState.RUNNING]
