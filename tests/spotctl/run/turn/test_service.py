"""Jobs that are launched together under a quota that does not hold all of them: who rents when."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bidbrain.forecast.forecast import forecast_in
from bidbrain.forecast.values import Forecast, ForecastJob
from bidbrain.forecast.windows import PastMarket
from spotctl.files.job.reader import load
from spotctl.home.config import Settings
from spotctl.home.quotas import quotas_from
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.state import RunState
from spotctl.log.store import EventLog
from spotctl.planning import forecast as forecasting
from spotctl.planning.forecast import forecast_of
from spotctl.run.start.launch_plans import stored_plans
from tests.spotctl.command_line import spotctl

pytestmark = pytest.mark.usefixtures("few_windows")

JOB = """\
name: {name}
kind: command
run: sleep 2
hours: 20m
resources: {{clouds: [local], types: [c4.xlarge], regions: [sim-east]}}
local: {{speed: 600}}
"""


def states(home: Path) -> dict[str, RunState]:
    with EventLog(home / "log.sqlite") as log:
        runs = [fold(log.of_run(row.run)) for row in log.beginnings()]
    return {state.began.job: state for state in runs if state.began is not None}


def test_a_launch_carries_out_the_turns_of_its_plan(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.yaml" for name in ("joba", "jobb", "jobc")]
    for file in files:
        file.write_text(JOB.format(name=file.stem))
    home = tmp_path / "home"
    environment = {"SPOTCTL_QUOTAS": "local/*/c4=8", "SPOTCTL_HOME": str(home)}
    shown = spotctl("launch", *files, "--dry-run", **environment).out
    turns = (
        r"turns +joba until \d\d:\d\dZ and jobb until \d\d:\d\dZ, then jobc until \d\d:\d\dZ"
        r" \(local/sim-east/c4=8 vCPUs\)"
    )
    assert re.search(turns, shown)
    answers = spotctl("plan", *files, "--json", **environment).json
    parts = {part["job"]: part for part in answers[0]["quotas"][0]["parts"]}
    assert [parts[name]["amount"] for name in ("joba", "jobb", "jobc")] == [4, 4, 4]
    assert answers[0]["begins"] == answers[0]["at"] == answers[2]["at"] < answers[2]["begins"]
    assert (
        answers[2]["begins"]
        == parts["jobc"]["begins"]
        == min(parts[name]["ends"] for name in ("joba", "jobb"))
    )
    ended = spotctl("launch", *files, "--yes", "--json", **environment)
    assert ended.code == 0
    runs = states(home)
    machines = [held for state in runs.values() for held in state.machines.values()]
    for machine in machines:
        there = [held for held in machines if held.started <= machine.started < (held.ended or 0)]
        assert 4 * len(there) <= 8
    first = min(ended_at(runs["joba"]), ended_at(runs["jobb"]))
    assert runs["jobc"].started >= first > max(runs["joba"].started, runs["jobb"].started)


def test_a_job_whose_turn_stays_is_planned_and_played_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second job's turn depends on the forecast of the first one, so it is planned again."""
    files = [tmp_path / f"{name}.yaml" for name in ("joba", "jobb")]
    for file in files:
        # With `auto`, other strategies are planned and played, too.
        file.write_text(JOB.format(name=file.stem) + "strategy: lookahead\n")
    played = list[ForecastJob]()

    def play(market: PastMarket) -> Forecast:
        played.append(market.job)
        return forecast_in(market)

    monkeypatch.setattr(forecasting, "forecast_in", play)
    plans = stored_plans(
        [load(file) for file in files], Settings(home=tmp_path, quotas=quotas_from("local/*/c4=4"))
    )
    ends = [forecast_of(plan).hours.median + plan.share.turn.begin for plan in plans.plans]
    assert len(played) == 3
    assert (
        plans.plans[0].share.turn.end == plans.plans[1].share.turn.begin == pytest.approx(ends[0])
    )


def test_jobs_that_need_the_whole_quota_run_one_after_the_other(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.yaml" for name in ("joba", "jobb")]
    for file in files:
        file.write_text(JOB.format(name=file.stem) + "nodes: 2\n")
    environment = {"SPOTCTL_QUOTAS": "local/*/c4=8", "SPOTCTL_HOME": str(tmp_path / "home")}
    shown = spotctl("launch", *files, "--dry-run", **environment).out
    assert re.search(
        r"turns +joba until \d\d:\d\dZ, then jobb until \d\d:\d\dZ \(local/sim-east/c4=8 vCPUs\)",
        shown,
    )
    assert spotctl("launch", *files, "--yes", **environment).code == 0
    runs = states(tmp_path / "home")
    assert {len(state.machines) for state in runs.values()} == {2}
    assert runs["jobb"].started >= ended_at(runs["joba"])


def ended_at(state: RunState) -> int:
    assert isinstance(state.ended, ev.RunEnded)
    return state.at
