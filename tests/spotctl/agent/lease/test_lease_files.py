"""What a job does about its lease, and the files by which it learns of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from spotctl.agent.errors import BrokenProtocol
from spotctl.agent.lease.lease_files import (
    JobPace,
    JobProgress,
    Lease,
    LeaseAct,
    LeaseGrantor,
    LeaseHolder,
    LeaseNotice,
    decide,
)

RUNNING = JobPace(steps=5, step_seconds=1.0, saving_seconds=2.0, since_save=10.0)
SECONDS = st.floats(0, 1e4)


def test_a_job_ends_while_its_lease_leaves_time_for_a_step_and_a_save() -> None:
    lease = Lease(3, ends=100.0)
    # One step and twice the last save are kept: 5 s. Asked for from 25 s before that.
    at = {
        now: decide(now, lease, None, RUNNING, 100.0, 600.0)
        for now in (0.0, 69.0, 71.0, 94.0, 95.0, 200.0)
    }
    assert [at[now].act for now in (0.0, 69.0, 71.0, 94.0)] == [LeaseAct.GO] * 4
    assert [at[now].ask for now in (0.0, 69.0, 71.0, 94.0)] == [None, None, 4, 4]
    assert (at[95.0].act, at[95.0].reason) == (
        LeaseAct.END,
        "lease 3 ends in 5.0 s and was not renewed",
    )
    assert at[200.0].act is LeaseAct.END


@given(SECONDS, SECONDS, SECONDS, SECONDS, SECONDS, st.integers(0, 3))
def test_a_job_that_continues_can_still_save_after_a_step(
    now: float, ends: float, step: float, saving: float, length: float, steps: int
) -> None:
    pace = JobPace(steps, step, saving, 0.0)
    decision = decide(now, Lease(1, ends), None, pace, length, 600.0)
    assert (decision.act is LeaseAct.END) == (ends - now <= step + 2 * saving)
    assert decision.act is LeaseAct.END or decision.ask in (None, 2)


def test_notices_take_precedence_and_a_hint_only_saves() -> None:
    lease = Lease(1, ends=1e6)
    for kind in ("evict", "move", "stop"):
        decision = decide(0.0, lease, LeaseNotice(1, kind, 120.0, "aws"), RUNNING, 1e6, 600.0)
        assert (decision.act, decision.reason) == (LeaseAct.END, f"{kind} announced by aws")
    assert (
        decide(0.0, lease, LeaseNotice(1, "hint", 120.0, "aws"), RUNNING, 1e6, 600.0).act
        is LeaseAct.SAVE
    )
    assert (
        decide(0.0, None, LeaseNotice(1, "evict", 120.0, "aws"), RUNNING, 0.0, 600.0).act
        is LeaseAct.END
    )


def test_the_first_save_is_after_one_step_and_later_ones_when_due() -> None:
    untried = JobPace(0, 0.0, None, 0.0)
    assert decide(0.0, None, None, untried, 0.0, 600.0).act is LeaseAct.GO
    assert decide(0.0, None, None, JobPace(1, 1.0, None, 1.0), 0.0, 600.0).act is LeaseAct.SAVE
    assert decide(0.0, None, None, JobPace(9, 1.0, 2.0, 599.0), 0.0, 600.0).act is LeaseAct.GO
    assert decide(0.0, None, None, JobPace(9, 1.0, 2.0, 600.0), 0.0, 600.0).act is LeaseAct.SAVE


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def test_the_job_reads_what_the_agent_grants_and_the_agent_what_the_job_reports(
    tmp_path: Path,
) -> None:
    clock = Clock()
    giver, holder = LeaseGrantor(tmp_path, clock), LeaseHolder(tmp_path, clock)
    giver.begin(100)
    assert (holder.lease().number, holder.lease().ends, holder.length) == (1, 150, 100)
    assert not giver.renewal_wanted()
    holder.report(JobProgress(1, "running", 0, 5, None, None, lease=1, wants=2))
    assert giver.renewal_wanted()
    clock.now = 120.0
    # A runner that was killed and started again goes on with the numbers.
    LeaseGrantor(tmp_path, clock).grant(80)
    assert (holder.lease().number, holder.lease().ends, holder.length) == (2, 200, 80)
    assert not giver.renewal_wanted()


def test_a_notice_is_returned_until_it_is_acted_on_and_not_to_the_next_job(tmp_path: Path) -> None:
    giver, holder = LeaseGrantor(tmp_path), LeaseHolder(tmp_path)
    giver.begin(100)
    assert holder.notice() is None
    giver.notify("hint", 60, "aws")
    first = holder.notice()
    assert first is not None
    assert holder.notice() == first
    holder.seen = first.number
    assert holder.notice() is None
    giver.notify("evict", 60, "aws")
    assert (second := holder.notice()) is not None
    assert (second.kind, second.number) == ("evict", 2)
    giver.begin(100)
    assert LeaseHolder(tmp_path).notice() is None
    assert giver.progress() is None


def test_a_lease_whose_file_vanishes_lasts_to_its_end(tmp_path: Path) -> None:
    clock = Clock()
    holder = LeaseHolder(tmp_path, clock)
    LeaseGrantor(tmp_path, clock).begin(100)
    granted = holder.lease()
    (tmp_path / "lease.json").unlink()
    assert holder.lease() == granted
    assert decide(149.0, holder.lease(), None, RUNNING, holder.length, 600.0).act is LeaseAct.END


def test_a_lease_of_an_earlier_boot_is_not_valid(tmp_path: Path) -> None:
    LeaseGrantor(tmp_path).begin(100)
    path = tmp_path / "lease.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot": "another"}))
    with pytest.raises(BrokenProtocol, match=r"no lease\.json of this boot"):
        LeaseHolder(tmp_path).lease()


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"number": 1}', '{"number": "x", "ends": 1, "boot": ""}']
)
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "lease.json").write_text(content)
    with pytest.raises(BrokenProtocol, match=r"lease\.json: is not valid"):
        LeaseHolder(tmp_path).lease()


def test_without_the_variable_there_is_no_lease(tmp_path: Path) -> None:
    assert LeaseHolder.of({}) is None
    holder = LeaseHolder.of({"SPOTCTL_LEASE": str(tmp_path)})
    assert holder is not None
    with pytest.raises(BrokenProtocol, match="an agent writes one before the job"):
        holder.lease()
    with pytest.raises(BrokenProtocol, match="notice of kind 'panic'"):
        LeaseGrantor(tmp_path).notify("panic", 1, "test")
