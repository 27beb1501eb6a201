"""A node that breaks the rules of its training is given up, its machine is returned, and the launch
ends as planned.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from agileml.protocol.actions import CONTROLLER
from agileml.runtime.mailbox import Mailbox
from agileml.runtime.remote_blobs import BLOB_MESSAGES, BlobPiece
from agileml.runtime.rendezvous import FolderRendezvous
from spotctl.log.store import EventLog
from spotctl.run.work.resume_state import secret_of
from spotctl.run.work.training_workload import LOG_FILE
from tests.spotctl.launches import state_of, training

PATIENCE_SECONDS = 240.0


def until_joined(home: Path) -> tuple[Path, str]:
    """The folder of the run, and a machine whose node trains, once two of them have."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up:
        time.sleep(0.1)
        if not (home / "log.sqlite").exists():
            continue
        with EventLog(home / "log.sqlite") as log:
            if not log.beginnings():
                continue
        state = state_of(home)
        assert state.began is not None
        memory = Path(state.began.folder) / "controller.jsonl"
        lines = memory.read_text().splitlines() if memory.exists() else []
        joined = {name for line in lines for name in json.loads(line).get("joined", ())}
        spot = [held.id for held in state.alive if not state.orders[held.allocation].reliable]
        if len(joined) == 3 and state.progress is not None:
            return Path(state.began.folder), spot[0]
    raise AssertionError("no two nodes joined")


@pytest.mark.slow
def test_the_machine_of_a_node_that_floods_its_controller_is_returned(tmp_path: Path) -> None:
    home = tmp_path / "home"
    words = ["--home", home, "launch", training(tmp_path, clocks=400), "--yes", "--attached"]
    with subprocess.Popen(
        [sys.executable, "-m", "spotctl", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as launch:
        folder, machine = until_joined(home)
        rendezvous = FolderRendezvous(folder, secret_of(folder))
        with closing(Mailbox(rendezvous, f"blobs/{machine}/1", messages=BLOB_MESSAGES)) as flood:
            flood.reach(CONTROLLER)
            give_up = time.monotonic() + PATIENCE_SECONDS
            while state_of(home).machines[machine].alive and time.monotonic() < give_up:
                for _ in range(30):
                    flood.send(CONTROLLER, BlobPiece(np.zeros(100, np.uint8)))
                list(flood.receive(0.05))
        assert launch.wait(PATIENCE_SECONDS) == 0

    state = state_of(home)
    assert state.ended is not None
    assert state.ended.outcome == "done"
    assert not state.machines[machine].alive
    assert len(state.machines) > 3, "another machine came in its place"
    assert not state.alive
    (results,) = home.rglob(LOG_FILE)
    *clocks, last = map(json.loads, results.read_text().splitlines())
    assert (last["updates_lost"], last["updates_doubled"]) == (0, 0)
    events = [event for clock in clocks for event in clock["events"]]
    assert any(event.startswith(f"{machine} lost: it sent") for event in events), (
        "the line names it"
    )
