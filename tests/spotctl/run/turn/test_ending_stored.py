"""The end of a run: its results are stored after its machines are returned, for as long as a store
may fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pricing_data.units import MINUTE
from spotctl.agent.errors import AgentError, BadCheckpoint, TransferFailed
from spotctl.log import events as ev
from spotctl.log.outcomes import DONE, FAILED
from spotctl.run.turn import ending
from tests.spotctl.run.worlds import Life, Toil, life

TRYING = "all machines are returned; trying again: the store answers 503"


@dataclass
class StoredToil(Toil):
    """Work whose results cannot be stored for a time after its end."""

    fails_for: int = 0
    error: type[AgentError] = TransferFailed
    ended_at: int = 0
    machines_then: int | None = None

    def store(self, outcome: str) -> None:
        assert outcome == DONE
        now = self.world.cloud.now()
        self.machines_then = len(self.world.running)
        self.ended_at = self.ended_at or now
        if now < self.ended_at + self.fails_for:
            raise self.error("the store answers 503")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Life:
    """A run whose pauses pass on the market's clock."""
    made = life(tmp_path, rounds=6)
    monkeypatch.setattr(
        "spotctl.run.turn.ending.time.sleep",
        lambda seconds: made.cloud.advance(seconds * made.cloud.speed),
    )
    return made


def ended_with(run: Life, work: StoredToil) -> ev.RunEnded:
    run.work = work
    return run.run()


def test_a_store_that_fails_for_two_minutes_changes_nothing(run: Life) -> None:
    work = StoredToil(run.world, 6, fails_for=2 * MINUTE)
    ended = ended_with(run, work)
    assert (ended.outcome, ended.message) == (DONE, "")
    assert work.machines_then == 0, "machines are returned first"
    reasons = [row.event.reason for row in run.rows() if isinstance(row.event, ev.Decided)]
    assert reasons.count(TRYING) == 1


def test_results_that_cannot_be_stored_fail_the_run(run: Life) -> None:
    work = StoredToil(run.world, 6, fails_for=60 * MINUTE)
    ended = ended_with(run, work)
    assert (ended.outcome, ended.message) == (FAILED, "; the store answers 503")
    waited = run.cloud.now() - work.ended_at
    assert ending.STORE_PATIENCE <= waited < ending.STORE_PATIENCE + 2 * MINUTE


def test_a_mark_that_is_missing_leaves_the_job_done(run: Life) -> None:
    ended = ended_with(run, StoredToil(run.world, 6, fails_for=60 * MINUTE, error=BadCheckpoint))
    assert (ended.outcome, ended.message) == (DONE, "; the store answers 503")


def test_a_process_that_is_killed_while_it_waits_is_continued(
    run: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: float) -> None:
        raise KeyboardInterrupt

    work = StoredToil(run.world, 6, fails_for=2 * MINUTE)
    with monkeypatch.context() as patched:
        patched.setattr("spotctl.run.turn.ending.time.sleep", killed)
        with pytest.raises(KeyboardInterrupt):
            ended_with(run, work)
    assert run.state().ended is None
    assert ended_with(run, work).outcome == DONE
    assert not run.world.running
