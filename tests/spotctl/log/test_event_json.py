"""A log of version 0.1.0 stays readable: `log_of_0_1_0.json` contains its rows, with every kind of
event.
"""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

from spotctl.files.job.reader import restored
from spotctl.log import events as ev
from spotctl.log.event_json import from_json
from spotctl.log.events import KINDS
from spotctl.log.folding import fold
from spotctl.log.state import LogRow, RunState

ROWS: list[tuple[str, int, str, dict[str, Any]]] = json.loads(
    Path(__file__).with_name("log_of_0_1_0.json").read_text()
)


def rows_of(job: str) -> list[LogRow]:
    """The rows of the job's run, read as today's events."""
    return [
        LogRow(number, run, at, from_json(kind, json.dumps(body)))
        for number, (run, at, kind, body) in enumerate(ROWS, 1)
        if run.startswith(f"{job}-")
    ]


def state_of(job: str) -> RunState:
    return fold(rows_of(job))


def test_a_training_with_evictions_is_read() -> None:
    state = state_of("quickstart")
    assert state.ended is not None
    assert (state.ended.outcome, state.ended.facts["spent"]) == ("done", 7341120000000)
    assert (len(state.machines), state.evictions, len(state.alive)) == (37, 30, 0)
    assert state.progress is not None
    assert state.progress.clock == 174
    assert state.planned is not None


def test_a_command_is_read() -> None:
    state = state_of("steps")
    assert state.ended is not None
    assert (state.ended.outcome, state.work.number, len(state.machines)) == ("done", 1, 1)


def test_the_job_of_an_old_run_is_restored(tmp_path: Path) -> None:
    for job in ("quickstart", "steps"):
        began = state_of(job).began
        assert began is not None
        assert restored(began.spec, tmp_path).name == job


def test_every_kind_of_event_is_read() -> None:
    since_then = {
        ev.MachineListedAgain,
        ev.CardsUsed,
        ev.TrafficCounted,
        ev.RowsLost,
        ev.LoginAwaited,
        ev.LoginWorks,
    }
    since_then |= {ev.ClockStood, ev.BootAdvanced, ev.BootSilent, ev.BudgetSet}
    since_then |= {ev.BidIntended, ev.BidChanged, ev.HostsListed}
    assert {type(row.event) for row in rows_of("every")} == set(KINDS.values()) - since_then


def test_former_names_are_mapped() -> None:
    """`Refrained` had a `what`, and `WorkStopped` a `by_itself`."""
    events = [row.event for row in rows_of("every")]
    assert ev.BudgetExceeded(ev.FINISH, 10, 5) in events
    assert ev.AttemptStopped(1, "m-1 will be taken away", by_program=False) in events


def test_an_interval_without_end_was_written_as_null() -> None:
    last = rows_of("every")[-1].event
    assert isinstance(last, ev.Checkpointed)
    assert last.every_seconds == inf
