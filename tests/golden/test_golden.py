"""A golden run is red for a changed figure, text, exit code or file, and green for what differs in
every run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.golden import trees
from tests.golden.comparison import Reason, compared, reasons, summary, texts
from tests.golden.plans import PLANS, plan_scenarios
from tests.golden.record import progress
from tests.golden.scenario import Scenario, Step

PLAN = '{\n  "cost_usd": 0.0512,\n  "market": "local/sim-east/sim-east-b/m3",\n  "at": "2026-01-20T12:00:00Z"\n}\n'


def record(folder: str = "/tmp/a", at: int = 1_780_000_000, **changed: Any) -> dict[str, Any]:  # noqa: ANN401
    step = {
        "title": "plan job.yaml",
        "exact": True,
        "process": True,
        "script": False,
        "code": 0,
        "out": PLAN,
        "err": "",
        "files": {},
        **changed,
    }
    places = {"folder": folder, "environment": f"{folder}/env", "checkout": f"{folder}/tree"}
    return {"scenario": "a", "at": at, **places, "steps": [step]}


def differences(before: dict[str, Any], now: dict[str, Any], *known: Reason) -> list[str]:
    return sorted(compared(texts([before]), texts([now]), known).differing)


@pytest.mark.parametrize(
    "changed",
    [
        {"out": PLAN.replace("0.0512", "0.0513")},
        {"out": PLAN.replace("sim-east-b", "sim-east-a")},
        {"out": PLAN.replace("2026-01-20T12:00:00Z", "2026-01-20T12:00:01Z")},
        {"out": PLAN.rstrip("\n")},
        {"code": 3},
        {"code": "killed after 60 seconds"},
        {"err": "spotctl: a warning\n"},
        {"files": {"plan.csv": "cost\n0.05\n"}},
        {"files": {"plan.csv": None}},
    ],
)
def test_each_change_that_a_user_sees_is_found(changed: dict[str, Any]) -> None:
    assert differences(record(), record()) == []
    assert differences(record(), record(**changed)) == ["a: plan job.yaml"]


def test_paths_ports_moments_of_the_recording_and_random_names_are_no_difference() -> None:
    text = "{0}/work/x of {0}/env/bin/spotctl at {1}, http://127.0.0.1:{2}/, spirals-{3}\n"
    first = record(
        "/tmp/tmpa",
        1_780_000_000,
        err=text.format("/tmp/tmpa", "2026-05-28T20:26:41Z", 4711, "64585f"),
    )
    second = record(
        "/tmp/tmpb",
        1_780_086_400,
        err=text.format("/tmp/tmpb", "2026-05-29T20:27:00.5Z", 80, "0a1b2c"),
    )
    assert differences(first, second) == []
    assert (
        differences(first, record(err=text.format("/tmp/elsewhere", "2026-05-28", 4711, "64585f")))
        != []
    )


def test_a_command_that_only_one_tree_answers_differs() -> None:
    assert compared(texts([record()]), {}, []).differing.keys() == {"a: plan job.yaml"}


def test_of_what_real_processes_decide_the_kind_counts() -> None:
    before = record(
        exact=False,
        err="evicted after 3 minutes\nevicted after 4 minutes\n",
        out='{"usd": 1, "runs": []}',
    )
    same = record(exact=False, err="evicted after 17 minutes\n", out='{"usd": 2.5, "runs": []}')
    assert differences(before, same) == []
    assert differences(
        before, record(exact=False, err=before["steps"][0]["err"], out='{"usd": "2.5", "runs": []}')
    )
    assert differences(
        before, record(exact=False, err="warned after 3 minutes\n", out=before["steps"][0]["out"])
    )


def test_a_reason_explains_the_lines_that_it_names_and_no_others() -> None:
    now = record(out=PLAN.replace("0.0512", "0.0513").replace("sim-east-b", "sim-east-a"))
    figure = Reason("a: plan *", "a cent more", lines="cost_usd")
    assert differences(record(), now, figure) == ["a: plan job.yaml"]
    assert differences(record(), now, figure, Reason("a: *", "another zone", lines="market")) == []
    assert differences(record(), now, Reason("*", "all of it")) == []
    assert differences(record(), now, Reason("b: *", "others")) == ["a: plan job.yaml"]


def test_the_summary_counts_and_names_reasons_that_explain_nothing() -> None:
    now = record(out=PLAN.replace("0.0512", "0.0513"))
    said = summary(compared(texts([record()]), texts([now]), [Reason("b: *", "gone")]), 5)
    assert '-  "cost_usd": 0.0512,\n+  "cost_usd": 0.0513,' in said
    assert "this reason explains nothing, remove it (b: *): gone" in said
    assert said.endswith("1 commands: 0 equal, 0 explained, 1 differing\n")


def test_the_summary_counts_each_group_and_ends_with_all_of_them() -> None:
    same = {"home, gc --yes: gc --yes": "x", "home: status": "y", "plans 1: plan job.yaml": "z"}
    said = summary(compared(same, {**same, "home: status": "w"}, []), 5)
    assert (
        "\nhome: 2 commands: 1 equal, 0 explained, 1 differing\nplans: 1 commands: 1 equal, 0 ex"
        in said
    )
    assert said.endswith("\n3 commands: 2 equal, 0 explained, 1 differing\n")


def test_a_comparison_that_was_killed_records_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def record_one(_tree: trees.Tree, request: dict[str, Any]) -> None:
        asked.append([one["name"] for one in request["scenarios"]])
        for one in request["scenarios"][: 1 if len(asked) == 1 else None]:
            Path(request["out"], f"{one['digest']}.json").write_text(
                json.dumps({"scenario": one["name"]})
            )

    monkeypatch.setattr(trees, "_run_recorder", record_one)
    monkeypatch.setattr(trees, "CACHE", tmp_path / "cache")
    tree = trees.Tree("0" * 12, tmp_path, tmp_path)
    scenarios = [Scenario(name, [Step(("status",))]) for name in ("a", "b", "c")]
    with pytest.raises(FileNotFoundError):
        trees.recorded(tree, tree, scenarios, {}, tmp_path)
    for again in (False, False, True):
        recorded = trees.recorded(tree, tree, scenarios, {}, tmp_path, again=again)
        assert [one["scenario"] for one in recorded] == ["a", "b", "c"]
    assert asked == [["a", "b", "c"], ["b", "c"], ["a", "b", "c"]]


def test_progress_says_how_long_the_rest_takes_if_it_takes_as_long_as_before() -> None:
    scenarios = [
        {"name": "home", "takes": takes, "steps": [{"title": "status"}]} for takes in (60, 60, 240)
    ]
    request = {"label": "this tree", "scenarios": scenarios}
    assert progress(request, 2, 120.0) == (
        "this tree: 2 of 3 scenarios recorded in 2 min, about 4 min left (home: status)\n"
    )
    assert "left" not in progress(request, 3, 120.0)


def test_the_file_of_reasons_is_read() -> None:
    assert all(reason.commands and reason.why for reason in reasons())


def test_a_reason_for_a_key_explains_this_key_of_json_and_nothing_else() -> None:
    key = Reason("plan *", "markets were added", key="markets")
    before, now = (
        texts([record()]),
        texts([record(out=PLAN.replace("{", '{"markets": [{"market": "a"}],', 1))]),
    )
    (name,) = before
    assert compared({"plan x": before[name]}, {"plan x": now[name]}, [key]).explained == {
        "plan x": [key]
    }
    dearer = now[name].replace("0.0512", "0.0513")
    assert compared({"plan x": before[name]}, {"plan x": dearer}, [key]).differing.keys() == {
        "plan x"
    }
    assert compared({"plan x": before[name]}, {"plan x": before[name]}, [key]).stale == [key]


@pytest.mark.parametrize(
    "line",
    [
        "spotctl: job.yaml:3: name: 'A' is no name; write small letters and digits",
        "cost       $0.79 ($0.37 to $1.20)",
        "machines   3 x c4.xlarge (sim-east-a), bid $0.20/h",
        '  "cost_usd": 0.0512,',
        "exit code 4",
    ],
)
def test_no_reason_for_lines_of_all_commands_explains_a_figure_or_a_refusal(line: str) -> None:
    wide = [reason for reason in reasons() if reason.commands == "*"]
    assert wide
    assert not [reason.why for reason in wide if not reason.lines or re.search(reason.lines, line)]


def test_drawn_plans_are_the_same_each_time() -> None:
    assert len(plan_scenarios()) == PLANS
    assert plan_scenarios() == plan_scenarios()


def test_the_recorder_runs_commands_of_its_environment_only(tmp_path: Path) -> None:
    """This environment may have the packages from a checkout, so they are in no folder of the
    environment.
    """
    steps = [
        Step(("plan", "job.yaml")),
        Step(("--version",), process=True),
        Step(("--no-such-option",)),
    ]
    scenario = Scenario("small", steps, files={"job.yaml": "name: A\n"})
    request = {
        "label": "this tree",
        "parent": os.getpid(),
        "environment": str(tmp_path),
        "checkout": str(tmp_path),
        "base": str(tmp_path),
        "homes": {},
        "out": str(tmp_path),
        "work": str(tmp_path),
        "plots": str(tmp_path),
        "scenarios": [
            {
                **vars(scenario),
                "digest": "d",
                "steps": [{**vars(s), "title": s.title} for s in steps],
            }
        ],
    }
    (tmp_path / "request.json").write_text(json.dumps(request))
    recorder = Path(__file__).with_name("record.py")
    ended = subprocess.run(
        [sys.executable, "-P", recorder, tmp_path / "request.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert f"which is not in {tmp_path}" in ended.stderr
