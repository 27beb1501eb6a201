"""How often a run asks its cloud for the list of its machines: clouds limit calls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.log import events as ev
from spotctl.log.events import Event
from spotctl.log.folding import ABANDONED
from spotctl.run.turn.execute import Executor, Journal
from tests.spotctl.run.worlds import MARKETS, RUN, MemoryLog, environment, life

ORDER = ev.RentIntended(1, MARKETS[0], 1, None, 100, 1.0, False, 0)
CHANGES: list[tuple[Event, ...]] = [
    (ORDER,),
    (ORDER, ev.RentRefused(1, ABANDONED, "no answer")),
    (ev.StopRequested("stopped", "on request"),),
]


@pytest.mark.parametrize(
    "changes", CHANGES, ids=["an order", "an order without an answer", "the run's end"]
)
def test_a_list_is_kept_until_the_run_changes_something(
    tmp_path: Path, changes: tuple[Event, ...]
) -> None:
    run = life(tmp_path)
    journal = Journal(MemoryLog(), RUN, run.cloud.now)
    executor = Executor(journal, replace(environment(run.cloud), list_every=3600.0), run.work)

    def asked() -> int:
        before = len(run.cloud.calls)
        assert executor.list_machines() == ()
        return len(run.cloud.calls) - before

    assert [asked(), asked(), asked()] == [1, 0, 0]
    for change in changes:
        journal.write(change)
        assert [asked(), asked()] == [1, 0]
