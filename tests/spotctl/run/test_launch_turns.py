"""Jobs that are launched together under a quota that does not hold all of them: who rents when."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import cast

from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.state import RunState
from spotctl.log.store import EventLog
from spotctl.planning.allocation import AllocatedJob, QuotaShare
from spotctl.planning.turns import QuotaPart, Turn
from spotctl.run.start.turns import LaunchTurns
from tests.spotctl.command_line import spotctl

JOB = """\
name: {name}
kind: command
run: sleep 2
hours: 20m
resources: {{clouds: [local], types: [c4.xlarge], regions: [sim-east]}}
local: {{speed: 600}}
"""
QUOTA = Quota("local", "sim-east", "c4", 8, QuotaUnit.VCPUS)
BEGINS = {"a": 0.0, "b": 0.0, "c": 1.0, "d": 2.0}


def jobs() -> dict[str, AllocatedJob]:
    """Two jobs that begin with half of the quota each, and two that may use all of it, or half."""
    parts = tuple(
        QuotaPart(name, 4 if begin == 0 else 8, Turn(begin, begin + 1.0), 4) for name, begin in BEGINS.items()
    )
    return {
        part.job: cast(
            "AllocatedJob",
            SimpleNamespace(
                demand=SimpleNamespace(name=part.job),
                share=SimpleNamespace(turn=part.turn),
                quotas=(QuotaShare(QUOTA, replace(QUOTA, amount=part.amount), parts),),
            ),
        )
        for part in parts
    }


def test_jobs_begin_in_their_order_as_soon_as_they_have_enough() -> None:
    made, begun = jobs(), dict[str, Mapping[str, int]]()
    turns = LaunchTurns(list(made.values()))

    def wait(name: str) -> None:
        if (parts := turns.begin(made[name])) is not None:
            begun[name] = parts

    waiting = [Thread(target=wait, args=(name,)) for name in ("d", "c")]
    for thread in waiting:
        thread.start()
    wait("b")
    wait("a")
    assert turns.waiting
    turns.end(made["b"], stopped=False)
    waiting[1].join()
    assert begun == {name: {QUOTA.name: 4} for name in "abc"}, "d comes after c, which begins with half of its part"
    turns.end(made["a"], stopped=True)
    waiting[0].join()
    assert "d" not in begun, "after a stop, no other job begins"
    assert not turns.waiting


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
        r"turns +joba until \d\d:\d\d and jobb until \d\d:\d\d, then jobc until \d\d:\d\d \(local/sim-east/c4=8 vCPUs\)"
    )
    assert re.search(turns, shown)
    answers = spotctl("plan", *files, "--json", **environment).json
    parts = {part["job"]: part for part in answers[0]["quotas"][0]["parts"]}
    assert [parts[name]["amount"] for name in ("joba", "jobb", "jobc")] == [4, 4, 4]
    assert answers[0]["begins"] == answers[0]["at"] == answers[2]["at"] < answers[2]["begins"]
    assert answers[2]["begins"] == parts["jobc"]["begins"] == min(parts[name]["ends"] for name in ("joba", "jobb"))
    ended = spotctl("launch", *files, "--yes", "--json", **environment)
    assert ended.code == 0
    runs = states(home)
    machines = [held for state in runs.values() for held in state.machines.values()]
    for machine in machines:
        there = [held for held in machines if held.started <= machine.started < (held.ended or 0)]
        assert 4 * len(there) <= 8
    first = min(ended_at(runs["joba"]), ended_at(runs["jobb"]))
    assert runs["jobc"].started >= first > max(runs["joba"].started, runs["jobb"].started)


def ended_at(state: RunState) -> int:
    assert isinstance(state.ended, ev.RunEnded)
    return state.at
