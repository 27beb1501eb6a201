"""`spotctl stop --all` returns the machines of every job, even if one job fails to stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.home.errors import SpotctlError
from spotctl.log import statuses
from spotctl.log.events import RunBegan, RunEnded
from spotctl.log.state import RunState
from spotctl.run.following import RunEnd
from spotctl.run.start import runs
from tests.spotctl.command_line import spotctl


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Three active jobs, and how each of them ends."""
    how: dict[str, object] = {"one": "done", "two": "stopped", "three": "stopped"}

    def stop(job: str, *_: object, **__: object) -> RunEnd:
        outcome = how[job]
        if isinstance(outcome, SpotctlError):
            raise outcome
        state = RunState(run=f"{job}-1", began=RunBegan(job, "local", {}, "", 0))
        return state, RunEnded(str(outcome), "", 0)

    monkeypatch.setattr(statuses, "unfinished_runs", lambda _: how)
    monkeypatch.setattr(runs, "stop", stop)
    return how


@pytest.mark.usefixtures("ends")
def test_all_jobs_are_stopped() -> None:
    """Including one that is done by then."""
    ended = spotctl("stop", "--all")
    assert (ended.code, ended.out) == (0, "")
    assert [line.partition(":")[0] for line in ended.err.splitlines()] == [
        "one-1",
        "two-1",
        "three-1",
    ]
    assert [run["run"] for run in spotctl("stop", "--all", "--json").json] == [
        "one-1",
        "two-1",
        "three-1",
    ]


def test_the_others_are_stopped_if_one_fails_to(ends: dict[str, object]) -> None:
    ends["one"] = SpotctlError("one is stuck; look")
    ended = spotctl("stop", "--all")
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == "spotctl: one is stuck; look"
    assert "two-1" in ended.err
    assert "three-1" in ended.err


def test_no_active_jobs(tmp_path: Path) -> None:
    ended = spotctl("stop", "--all", "--json")
    assert (ended.code, ended.json) == (0, [])
    assert not (tmp_path / "home" / "log.sqlite").exists()


@pytest.mark.parametrize("words", [(), ("one", "--all")])
def test_one_job_or_all_are_named(words: tuple[str, ...]) -> None:
    refused = spotctl("stop", *words)
    assert (refused.code, refused.error) == (
        2,
        "spotctl: spotctl stop: name one job, or give --all\n",
    )
