"""A command on a range of nodes, on the local market: a machine is killed, the others go on, and
another joins.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.elastic_gang import launched
from spotctl.log import events as ev
from spotctl.log.store import EventLog
from tests.samples import LAUNCH


@LAUNCH
@pytest.mark.slow
def test_a_gang_goes_on_with_the_machines_that_remain_and_grows_again(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    with launched(tmp_path, "2..3", setup=f"until test -f {gate}; do sleep 0.1; done") as gang:
        gang.trained(3, 10)
        # A replacement cannot join before two nodes have gone on.
        gate.unlink()
        at = gang.kill_last()
        gang.trained(2, 10, at)
        gate.touch()
        gang.trained(3, 10, at)
        assert gang.end() == 0, (tmp_path / "output").read_text()
    with EventLog(tmp_path / "home" / "log.sqlite") as log:
        (begun,) = log.beginnings()
        events = [row.event for row in log.of_run(begun.run)]
    attempts = [event for event in events if isinstance(event, ev.AttemptBegan)]
    first, second, last = attempts[0], attempts[1], attempts[-1]
    assert [len(one.machines) for one in (first, second, last)] == [3, 2, 3]
    assert (first.share, second.share, last.share) == (1, 2 / 3, 1)
    assert set(second.machines) < set(first.machines)
    assert any(
        event.reason.startswith("grows from 2 to 3")
        for event in events
        if isinstance(event, ev.AttemptStopped)
    )
    for one in attempts[:-1]:
        notes = [path.read_text() for path in (tmp_path / "traces").glob(f"{one.attempt}-*")]
        steps = [int(line.split()[1]) for text in notes for line in text.splitlines()]
        after = (tmp_path / "traces" / f"{one.attempt + 1}-0").read_text().split()
        assert after[0] == "begin"
        assert int(after[1]) >= max(steps), "a step is lost that was done, though a peer has a copy"
