"""A run's journal next to other processes that write to the same log."""

from __future__ import annotations

from pathlib import Path

from spotctl.run.execute import Journal
from spotctl.run.runs import ON_REQUEST
from spotctl.runlog import events as ev
from spotctl.runlog.store import EventLog, LogRow
from tests.spotctl.run.worlds import RUN, START


class ContestedLog(EventLog):
    """Just before a row is appended, another process asks the run to stop."""

    def append(self, run: str, at: int, event: ev.Event) -> LogRow:
        if isinstance(event, ev.Renewed):
            super().append(run, at, ON_REQUEST)
        return super().append(run, at, event)


def test_a_request_to_stop_that_arrives_while_the_run_writes_is_heard(tmp_path: Path) -> None:
    with ContestedLog(tmp_path / "log.sqlite") as log:
        journal = Journal(log, RUN, lambda: START)
        journal.write(ev.RunBegan("job", "local", {}, "", 0))
        journal.write(ev.RenewIntended(1, (), START))
        journal.write(ev.Renewed(1))
        assert journal.state.stopping == ON_REQUEST
        assert journal.state == Journal(log, RUN, lambda: START).state
