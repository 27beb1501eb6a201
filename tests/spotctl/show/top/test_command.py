"""`spotctl top` on a log that a run has left."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.files.job.reader import load
from spotctl.files.job.writer import written
from spotctl.machines.local import LocalProvider, LocalSettings
from spotctl.machines.replayed import Replayed
from spotctl.runlog import events as ev
from spotctl.runlog.store import EventLog
from tests.spotctl.cli import spotctl
from tests.spotctl.show.top.runs import START, at, rows, story

JOB = """\
name: small
kind: command
run: "true"
resources: {clouds: [local], types: [c4.xlarge]}
budget: 6 USD
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The log of a run whose process was killed."""
    (tmp_path / "job.yaml").write_text(JOB)
    spec = load(tmp_path / "job.yaml")
    home = tmp_path / "home"
    LocalProvider(home / "local", lambda: Replayed.of(()), LocalSettings()).begin(at(10), 1.0)
    with EventLog(home / "log.sqlite") as log:
        for row in rows(story()):
            event = replace(row.event, spec=written(spec)) if isinstance(row.event, ev.RunBegan) else row.event
            log.append(row.run, row.at, event)
    return home


def test_once(run: Path) -> None:  # noqa: ARG001
    shown = spotctl("top", "--once", COLUMNS="80")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[0].startswith("small-1   interrupted   stage 2   clock 40   loss 0.2")
    assert lines[1].startswith("spent $")
    assert " of $6.00 (" in lines[1]
    assert max(map(len, lines)) <= 80
    assert "1 of local/sim-east/sim-east-a/c4.xlarge evicted without a warning" in shown.out


def test_json(run: Path) -> None:  # noqa: ARG001
    told = spotctl("top", "small", "--json").json
    assert (told["name"], told["evictions"], told["budget_usd"]) == ("small", 4, 6.0)
    status = spotctl("status", "--json").json["jobs"][0]
    assert told["spent_usd"] == pytest.approx(status["spent_usd"], rel=1e-3)
    assert told["evictions"] == status["evictions"]


def test_what_it_cost_is_unknown_once_the_market_has_another_past(run: Path) -> None:
    LocalProvider(run / "local", lambda: Replayed.of(()), LocalSettings()).begin(START, 1.0)
    assert spotctl("top", "small", "--json").json["spent_usd"] is None
    assert spotctl("status", "--json").json["jobs"][0]["spent_usd"] is None


def test_a_newer_run_takes_the_place_of_one_that_is_over(run: Path) -> None:
    from spotctl.config import Settings
    from spotctl.show.top.watcher import Watcher

    with Watcher("small", Settings(run)) as lookout, EventLog(run / "log.sqlite") as log:
        assert lookout.look().run == "small-1"
        log.append("small-1", START, ev.RunEnded("done", "", 0, {"spent": 0, "on_demand": 0}))
        assert lookout.look().word == "done"
        (began,) = log.beginnings()
        log.append("small-2", START, began.event)
        after = lookout.look()
        assert (after.run, after.word, after.evictions) == ("small-2", "interrupted", 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["top", "small"], "needs a terminal; --once prints"),
        (["top", "other", "--once"], "no job named 'other' was launched"),
    ],
)
def test_what_cannot_be_shown(run: Path, words: list[str], told: str) -> None:  # noqa: ARG001
    refused = spotctl(*words)
    assert refused.code == 2
    assert told in refused.error


def test_before_any_launch() -> None:
    assert "no job was launched yet" in spotctl("top", "--once").error
    assert "no job named 'small' was launched" in spotctl("top", "small", "--json").error


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    refused = spotctl("top")
    assert refused.code == 2
    assert "pip install 'spotctl[tui]'" in refused.error
