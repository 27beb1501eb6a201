"""A run's journal next to other processes that write to the same log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from spotctl.clouds.errors import Throttled
from spotctl.log import events as ev
from spotctl.log.folding import NOT_SENT
from spotctl.log.outcomes import DONE, STOPPED
from spotctl.log.state import LogRow
from spotctl.run.start.runs import ON_REQUEST
from spotctl.run.turn.execute import Journal, RetryPolicy
from tests.spotctl.clouds.fake import Call, Fault, Refusal
from tests.spotctl.run.kills import TAKEN
from tests.spotctl.run.worlds import RUN, START, Life, MemoryLog, life


class ContestedLog(MemoryLog):
    """Just before or just after one of its rows is appended, another process asks the run to
    stop."""

    def __init__(self, contested: int, *, after: bool = False) -> None:
        super().__init__()
        self._contested, self._after = contested, after

    def append_if(
        self, run: str, at: int, event: ev.Event, holds: Callable[[], bool]
    ) -> LogRow | None:
        contested = len(self.rows) == self._contested
        if contested and not self._after:
            super().append_if(run, at, ON_REQUEST, holds)
        row = super().append_if(run, at, event, holds)
        if contested and self._after:
            super().append_if(run, at, ON_REQUEST, holds)
        return row


def test_a_request_to_stop_that_arrives_while_the_run_writes_is_heard() -> None:
    log = ContestedLog(2)
    journal = Journal(log, RUN, lambda: START)
    for event in (
        ev.RunBegan("job", "local", {}, "", 0),
        ev.RenewIntended(1, (), START),
        ev.Renewed(1),
    ):
        journal.write(event)
    assert journal.state.stopping == ON_REQUEST
    assert journal.state == Journal(log, RUN, lambda: START).state


def lived(folder: Path, log: MemoryLog, outcome: str) -> Life:
    """A run with two evictions, to its end."""
    one = life(folder, TAKEN)
    one.opened = lambda: log
    assert one.run().outcome == outcome
    assert not one.world.running
    return one


def orders(rows: Sequence[LogRow]) -> int:
    return sum(isinstance(row.event, ev.RentIntended) for row in rows)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_run_that_is_asked_to_stop_around_any_write_orders_nothing_more(
    tmp_path: Path, after: bool
) -> None:
    undisturbed = MemoryLog()
    lived(tmp_path, undisturbed, DONE)
    kinds = [type(row.event) for row in undisturbed.rows]
    for contested in range(1, kinds.index(ev.StopRequested) + (not after)):
        log = ContestedLog(contested, after=after)
        one = lived(tmp_path, log, STOPPED)
        # An order that was being written is not sent.
        assert len(one.world.calls("create")) == orders(log.rows[:contested])
        assert orders(log.rows[contested + 2 :]) == 0
        assert not one.state().open
        assert not one.state().unclear


def test_an_order_is_not_sent_again_once_the_run_is_asked_to_stop(tmp_path: Path) -> None:
    """A cloud that is too busy refuses it; before the next attempt, another process asks the run to
    stop.
    """
    log, one = MemoryLog(), life(tmp_path)
    one.opened, one.retries = (
        lambda: log,
        RetryPolicy(attempts=3, first_pause=0.0, longest_pause=0.0),
    )

    def throttles(call: Call) -> Fault | None:
        if call.name != "create":
            return None
        log.append(RUN, START, ON_REQUEST)
        return Refusal(Throttled("too many calls"))

    one.cloud.weather = throttles
    assert one.run().outcome == STOPPED
    assert len(one.world.calls("create")) == 1
    (refused,) = (row.event for row in log.rows if isinstance(row.event, ev.RentRefused))
    assert refused.why == NOT_SENT
