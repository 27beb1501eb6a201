"""Small jobs to launch, and checks of what they leave."""

from __future__ import annotations

import json
import os
from pathlib import Path

from spotctl.log.folding import fold
from spotctl.log.state import RunState
from spotctl.log.store import EventLog

TRAINING = """\
name: small
kind: agileml
app: mf
args: {{users: 200, items: 100, ratings: 4000, rank: 4, rate: 0.2}}
stop: {{clocks: {clocks}}}
resources:
  clouds: [local]
  types: [c4.2xlarge]
  machines: 2..2
  reliable: {{machines: 1, type: m3.medium}}
strategy: proteus
local: {{speed: 600, start: 2026-01-15T00:10:00Z, warning: 10m, unwarned: 0.34}}
"""

COMMAND = """\
name: small
kind: command
run: {run}
resources: {{clouds: [local], types: [c4.2xlarge]}}
local: {{speed: 600}}
"""


def processes(folder: Path) -> list[str]:
    """Command lines of processes that name a folder, or have it in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            about = words.encode() + (process / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in about and str(os.getpid()) != process.name:
            found.append(words)
    return found


def training(folder: Path, clocks: int = 15) -> Path:
    path = folder / "job.yaml"
    path.write_text(TRAINING.format(clocks=clocks))
    return path


def command(folder: Path, run: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(COMMAND.format(run=json.dumps(run)))
    return path


def state_of(home: Path) -> RunState:
    with EventLog(home / "log.sqlite") as log:
        return fold(log.of_run(log.beginnings()[-1].run))


def check_nothing_bought_twice(home: Path) -> None:
    """Every machine on disk is in the log, and no order brought more machines than it asked for."""
    with EventLog(home / "log.sqlite") as log:
        states = [fold(log.of_run(began.run)) for began in log.beginnings()]
    for state in states:
        on_disk = {
            f"{folder.parent.name}-{folder.name}"
            for folder in (home / "local" / "machines").glob("*/[0-9]*")
            if state.run in (folder.parent / "allocation.json").read_text()
        }
        assert state.machines.keys() == on_disk
        for intent, order in state.orders.items():
            assert (
                sum(held.allocation == intent for held in state.machines.values()) <= order.machines
            )
