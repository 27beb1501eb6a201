"""A run's journal next to other processes that write to the same log."""

from __future__ import annotations

from pathlib import Path

from spotctl.run.execute import Journal
from spotctl.run.runs import ON_REQUEST
from spotctl.runlog import events as ev
from spotctl.runlog.outcomes import DONE, STOPPED
from spotctl.runlog.store import LogRow
from tests.spotctl.run.kills import TAKEN
from tests.spotctl.run.worlds import RUN, START, MemoryLog, life


class ContestedLog(MemoryLog):
    """Just before one of its rows is appended, another process asks the run to stop."""

    def __init__(self, contested: int) -> None:
        super().__init__()
        self._contested = contested

    def append(self, run: str, at: int, event: ev.Event) -> LogRow:
        if len(self.rows) == self._contested:
            super().append(run, at, ON_REQUEST)
        return super().append(run, at, event)


def test_a_request_to_stop_that_arrives_while_the_run_writes_is_heard() -> None:
    log = ContestedLog(2)
    journal = Journal(log, RUN, lambda: START)
    for event in (ev.RunBegan("job", "local", {}, "", 0), ev.RenewIntended(1, (), START), ev.Renewed(1)):
        journal.write(event)
    assert journal.state.stopping == ON_REQUEST
    assert journal.state == Journal(log, RUN, lambda: START).state


def lived(folder: Path, log: MemoryLog) -> ev.RunEnded:
    """A run with two evictions, to its end."""
    one = life(folder, TAKEN)
    one.opened = lambda: log
    ended = one.run()
    assert not one.world.running
    return ended


def test_a_run_stops_whatever_it_was_writing(tmp_path: Path) -> None:
    undisturbed = MemoryLog()
    assert lived(tmp_path, undisturbed).outcome == DONE
    kinds = [type(row.event) for row in undisturbed.rows]
    for contested in range(1, kinds.index(ev.StopRequested) + 1):
        log = ContestedLog(contested)
        assert lived(tmp_path, log).outcome == STOPPED
        # Except for what was being written, nothing is ordered any more.
        assert not any(isinstance(row.event, ev.RentIntended) for row in log.rows[contested + 2 :])
