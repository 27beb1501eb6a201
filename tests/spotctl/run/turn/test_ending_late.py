"""A run on a busy computer says at its end that it was late for that reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

from spotctl.log import events as ev
from spotctl.run.turn.execute import Journal
from tests.spotctl.run.worlds import RUN, DeadlyProvider, life


@pytest.mark.parametrize(
    ("stood_for", "hours", "said"),
    [(1000.0, 0.01, True), (0.0, 0.01, False), (1000.0, 1000.0, False)],
    ids=["busy and late", "late", "busy"],
)
def test_a_late_run_names_a_busy_computer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stood_for: float, hours: float, said: bool
) -> None:
    readings: Iterator[float] = chain([0.0], repeat(stood_for))
    monkeypatch.setattr(
        DeadlyProvider, "stood_seconds", property(lambda _: next(readings)), raising=False
    )
    run = life(tmp_path, rounds=6)
    with run.opened() as log:
        journal = Journal(log, RUN, run.cloud.now)
        journal.write(ev.RunBegan("job", run.cloud.name, {}, "", 0))
        journal.write(ev.Planned(1.0, 1.0, 1.0, hours, 2.0, assumed=False))
    left = run.run().facts.get("left_plan", [])
    assert [text.startswith("other programs kept this computer busy") for text in left] == (
        [True] if said else []
    )
