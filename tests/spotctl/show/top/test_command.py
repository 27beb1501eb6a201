"""`spotctl top` on the event log of a run."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.clouds.local.provider import LocalProvider, LocalSettings
from spotctl.clouds.replayed import Replayed
from spotctl.files.job.reader import load, written
from spotctl.log import events as ev
from spotctl.log.store import EventLog
from tests.spotctl.command_line import spotctl
from tests.spotctl.show.top.runs import START, at, rows, run_events

JOB = """\
name: small
kind: command
run: "true"
resources: {clouds: [local], types: [c4.xlarge]}
budget: 6 USD
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The home of a run whose process was killed."""
    (tmp_path / "job.yaml").write_text(JOB)
    spec = load(tmp_path / "job.yaml")
    home = tmp_path / "home"
    LocalProvider(home / "local", lambda: Replayed.of(()), LocalSettings()).begin(at(10), 1.0)
    with EventLog(home / "log.sqlite") as log:
        for row in rows(run_events()):
            event = replace(row.event, spec=written(spec)) if isinstance(row.event, ev.RunBegan) else row.event
            log.append(row.run, row.at, event)
    return home


def test_once(run: Path) -> None:  # noqa: ARG001
    printed = spotctl("top", "--once", COLUMNS="80")
    assert (printed.code, printed.err) == (0, "")
    lines = printed.out.splitlines()
    assert lines[0].startswith("small-1   interrupted   stage 2   clock 40   loss 0.2")
    assert lines[1].startswith("spent at most $")
    assert " of $6.00 budget (" in lines[1]
    assert max(map(len, lines)) <= 80
    assert "evicted without warning: 1 x c4.xlarge (sim-east-a)" in printed.out


def test_json(run: Path) -> None:  # noqa: ARG001
    answer = spotctl("top", "small", "--json").json
    assert (answer["name"], answer["evictions"], answer["budget_usd"]) == ("small", 4, 6.0)
    status = spotctl("status", "--json").json["jobs"][0]
    assert answer["spent_usd"] == pytest.approx(status["spent_usd"], rel=1e-3)
    assert answer["evictions"] == status["evictions"]


def test_cost_is_bounded_after_the_market_was_restarted_at_another_time(run: Path) -> None:
    before = spotctl("status", "--json").json["jobs"][0]["spent_usd"]
    LocalProvider(run / "local", lambda: Replayed.of(()), LocalSettings()).begin(START, 1.0)
    top, status = spotctl("top", "small", "--json").json, spotctl("status", "--json").json["jobs"][0]
    assert 0 < top["spent_usd"] == status["spent_usd"] <= before
    assert top["spent_low_usd"] == status["spent_low_usd"] <= top["spent_usd"]


def test_a_newer_run_replaces_one_that_has_ended(run: Path) -> None:
    from spotctl.home.config import Settings
    from spotctl.show.top.watcher import Watcher

    with Watcher("small", Settings(run)) as watcher, EventLog(run / "log.sqlite") as log:
        assert watcher.snapshot().run == "small-1"
        log.append("small-1", START, ev.RunEnded("done", "", 0, {"spent": 0, "on_demand": 0}))
        assert watcher.snapshot().status == "done"
        (began,) = log.beginnings()
        log.append("small-2", START, began.event)
        after = watcher.snapshot()
        assert (after.run, after.status, after.evictions) == ("small-2", "interrupted", 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["top", "small"], "needs a terminal: use spotctl status"),
        (["top", "other", "--once"], "no job named 'other' was launched"),
    ],
)
def test_errors(run: Path, words: list[str], message: str) -> None:  # noqa: ARG001
    refused = spotctl(*words)
    assert refused.code == 2
    assert message in refused.error


def test_before_any_launch() -> None:
    assert "no jobs yet" in spotctl("top", "--once").error
    assert "no job named 'small' was launched" in spotctl("top", "small", "--json").error


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    refused = spotctl("top")
    assert refused.code == 2
    assert "pip install 'spotctl[tui]'" in refused.error
