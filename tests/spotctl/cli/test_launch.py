"""Jobs launched on the local market, from the command line."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import spotctl as python
from agileml.core.events import Iteration
from agileml.reference import model_digest, run
from spotctl.files.job.reader import load, written
from spotctl.log.events import RunBegan, RunEnded, StopRequested
from spotctl.log.folding import fold
from spotctl.log.store import EventLog
from spotctl.run.work.training_workload import TrainingWorkload, training_job
from tests.samples import LAUNCH, LONG_RUN
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.dying import APPEND, KEEP, NOTE, STOP, killed_at
from tests.spotctl.launches import (
    check_nothing_bought_twice,
    command,
    processes,
    state_of,
    training,
)

pytestmark = pytest.mark.usefixtures("few_windows")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The home of the runs; after each test, no process of them is left."""
    yield tmp_path / "home"
    assert not processes(tmp_path)


def start(*words: str | Path, first: str = "") -> subprocess.Popen[bytes]:
    arguments = [
        sys.executable,
        "-c",
        f"{first}\nfrom spotctl.cli.app import main; main()",
        *map(str, words),
    ]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_machines(home: Path, count: int) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        jobs = spotctl("status", "--json").json["jobs"]
        if jobs and len(jobs[0]["machines"]) >= count:
            return
        time.sleep(0.1)
    raise AssertionError(f"no {count} machines came in {home}")


@LAUNCH
@pytest.mark.usefixtures("home")
def test_a_training_that_ends_by_the_clock_of_the_market_has_the_loss_of_its_model(
    tmp_path: Path,
) -> None:
    path = training(tmp_path)
    path.write_text(path.read_text().replace("clocks: 15", "minutes: 40"))
    ended = spotctl("launch", path, "--yes", "--json").json
    lines = [
        json.loads(line)
        for line in Path(ended["model"]).with_name("iterations.jsonl").read_text().splitlines()
    ]
    assert ended["loss"] == lines[-1]["loss"] < lines[0]["loss"]
    assert ended["message"].startswith(f"{ended['clocks']} clocks, loss ")


@LAUNCH
def test_a_training_is_launched_and_all_machines_returned(
    tmp_path: Path, home: Path, approved: Approved
) -> None:
    metrics = tmp_path / "spotctl.prom"
    ended = spotctl("launch", training(tmp_path), "--yes", "--json", "--metrics", metrics)
    assert ended.code == 0, ended.err
    answer = ended.json
    run = f'job="small",run="{answer["run"]}"'
    published = metrics.read_text()
    assert f"spotctl_clock{{{run}}} 15\n" in published
    assert f"spotctl_updates_lost_total{{{run}}} 0\n" in published
    assert f"spotctl_replayed_spent_dollars{{{run}}} {answer['cost_usd']}\n" in published
    assert f"spotctl_running{{{run}}} 0\n" in published
    assert (answer["outcome"], answer["clocks"], answer["updates_lost"]) == ("done", 15, 0)
    # Beside a busy computer's other programs, the log may see too few of the 15 clocks to measure a
    # speed.
    assert 0 < answer["cost_usd"] < (answer["on_demand_usd"] or 1.0)
    with np.load(answer["model"]) as model:
        assert model_digest(dict(model)) == answer["model_sha256"]
    lines = [
        json.loads(line)
        for line in Path(answer["model"]).with_name("iterations.jsonl").read_text().splitlines()
    ]
    assert [line["clock"] for line in lines[:-1]] == list(range(1, 16))
    assert lines[-1]["model_sha256"] == answer["model_sha256"]
    assert lines[-1]["loss"] == answer["loss"] < lines[-2]["loss"]
    (job,) = spotctl("status", "--json").json["jobs"]
    assert (job["name"], job["run"], job["state"], job["machines"]) == (
        "small",
        answer["run"],
        "done",
        [],
    )
    assert (job["spent_usd"], job["loss"]) == (answer["cost_usd"], answer["loss"])
    assert all(held.ended is not None for held in state_of(home).machines.values())
    assert not Path(str(state_of(home).began and state_of(home).began.folder)).exists()  # type: ignore[union-attr]
    approved(spotctl("resume", "small"))


def test_a_plan_is_shown_and_nothing_rented_without_consent(
    tmp_path: Path, home: Path, approved: Approved
) -> None:
    shown = spotctl("launch", training(tmp_path), "--dry-run")
    assert shown.code == 0
    assert "\ncost " in shown.out
    refused = spotctl("launch", training(tmp_path))
    approved(refused)
    assert not (home / "log.sqlite").exists()


@pytest.mark.parametrize(
    ("run", "code", "told"), [("echo made > made", 0, "done"), ("echo no; exit 3", 1, "status 3")]
)
def test_a_command(tmp_path: Path, home: Path, run: str, code: int, told: str) -> None:  # noqa: ARG001
    ended = spotctl("launch", command(tmp_path, run), "--yes")
    assert ended.code == code
    assert told in ended.out
    assert (tmp_path / "made").exists() is (code == 0)
    assert spotctl("logs", "small").out.endswith(": no\n") is (code == 1)
    report = python.report("small")
    answer = spotctl("report", "cost", "--job", "small", "--json").json
    # The forecast of the month depends on the moment of the question.
    assert {**report.json(), "month": None} == {**answer, "month": None}


def test_max_cost_limits_the_plan_that_is_shown(
    tmp_path: Path, home: Path, approved: Approved
) -> None:
    path = command(tmp_path, "true")
    path.write_text(path.read_text() + "hours: 30m\nstrategy: proteus\n")
    shown = spotctl("launch", path, "--dry-run", "--max-cost", "25000").out
    assert "the budget of $25,000.00 is over 98% likely to be enough" in shown
    refused = spotctl("launch", path, "--yes", "--max-cost", "0.01")
    approved(refused)
    assert not (home / "log.sqlite").exists()


def test_max_cost_of_several_jobs_is_divided_by_their_planned_costs(
    tmp_path: Path, approved: Approved
) -> None:
    paths = []
    for name, hours in (("short", "30m"), ("long", "2h")):
        path = command(tmp_path, "true").rename(tmp_path / f"{name}.yaml")
        path.write_text(
            path.read_text().replace("small", name) + f"hours: {hours}\nstrategy: on-demand\n"
        )
        paths.append(path)
    refused = spotctl("launch", *paths, "--yes", "--max-cost", "0.1")
    approved(refused)
    shown = spotctl("launch", *paths, "--dry-run", "--max-cost", "12").out
    budgets = [float(amount) for amount in re.findall(r"the budget of \$([0-9.]+) is", shown)]
    assert sum(budgets) == pytest.approx(12, abs=0.02)
    assert 2 < budgets[1] / budgets[0] < 5


@pytest.mark.parametrize(
    "amount",
    ["0", "free"],
)
def test_an_amount_that_is_none_is_refused_as_max_cost(
    tmp_path: Path, amount: str, approved: Approved
) -> None:
    refused = spotctl("launch", command(tmp_path, "true"), "--yes", "--max-cost", amount)
    approved(refused)


def test_two_jobs_do_not_share_a_checkpoint(tmp_path: Path, home: Path, approved: Approved) -> None:
    paths = []
    for name in ("one", "two"):
        path = command(tmp_path, "true").rename(tmp_path / f"{name}.yaml")
        path.write_text(path.read_text().replace("small", name) + "checkpoint: {path: saved}\n")
        paths.append(path)
    together = spotctl("launch", *paths, "--yes")
    approved(together)
    assert not (home / "log.sqlite").exists()
    with EventLog(home / "log.sqlite") as log:
        log.append("one-1", 0, RunBegan("one", "local", written(load(paths[0])), "", 0))
    alone = spotctl("launch", paths[1], "--yes")
    assert alone.code == 2
    assert "where run one-1 of job one, which has not ended, keeps its checkpoint" in alone.err
    with EventLog(home / "log.sqlite") as log:
        log.append("one-1", 0, RunEnded("stopped", "", 0, {}))
    assert spotctl("launch", paths[1], "--yes").code == 0


@LAUNCH
def test_a_budget_ends_a_run(tmp_path: Path, home: Path) -> None:  # noqa: ARG001
    ended = spotctl("launch", training(tmp_path, 10**6), "--yes", "--json", "--max-cost", "0.60")
    assert (ended.code, ended.json["outcome"]) == (4, "budget reached")
    assert ended.json["cost_usd"] <= 0.60
    assert "the budget of $0.60" in ended.err


@LAUNCH
@pytest.mark.slow
def test_the_newest_checkpoint_is_saved_when_a_run_ends_early(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = TrainingWorkload._note_iteration

    def stopping(self: TrainingWorkload, iteration: Iteration) -> None:
        note(self, iteration)
        if iteration.clock == 25:
            with EventLog(home / "log.sqlite") as log:
                began = log.beginnings()[-1]
                log.append(began.run, began.at, StopRequested("budget reached", "enough"))
            # The run that it is compared with ends by itself.
            monkeypatch.setattr(TrainingWorkload, "_note_iteration", note)

    monkeypatch.setattr(TrainingWorkload, "_note_iteration", stopping)
    ended = spotctl("launch", training(tmp_path, 10**6), "--yes", "--json")
    assert (ended.code, ended.json["outcome"]) == (4, "budget reached")
    assert ended.json["message"].startswith("enough; ")
    # Every clock is kept, but the newest may still be on their way.
    assert ended.json["checkpoint_clock"] > 0
    path = training(tmp_path, ended.json["checkpoint_clock"])
    expected = spotctl("launch", path, "--yes", "--fresh", "--json").json
    with np.load(ended.json["checkpoint"]) as model:
        assert model_digest(dict(model)) == expected["model_sha256"]


@LAUNCH
def test_a_full_disk_leaves_nothing_running(tmp_path: Path, home: Path) -> None:
    path = training(tmp_path, 10**6)
    # Writing more to any file fails, in the launcher and in whatever it starts.
    full = "from resource import *; setrlimit(RLIMIT_FSIZE, (80 << 10, 80 << 10))"
    with start("launch", path, "--yes", "--json", first=full) as launcher:
        out, err = launcher.communicate(timeout=180)
    assert (launcher.returncode, out) == (1, b"")
    assert err.decode().startswith(f"spotctl: event log {home}")
    assert err.decode().endswith("; all machines were returned\n")
    assert err.count(b"\n") == 1
    assert spotctl("gc", "--json").json["resources"] == []
    assert spotctl("stop", "small").code == 0


@LAUNCH
@pytest.mark.slow
def test_a_run_is_stopped_by_another_process(tmp_path: Path, home: Path) -> None:
    with start("launch", training(tmp_path, 10**6), "--yes") as launcher:
        wait_for_machines(home, 3)
        twice = spotctl("launch", tmp_path / "job.yaml", "--yes")
        assert twice.code == 6
        assert f"job small is already running as process {launcher.pid}" in twice.err
        stopped = spotctl("stop", "small")
        assert stopped.code == 0
        assert "all machines returned" in stopped.err
        assert launcher.wait(120) == 0
    assert spotctl("status", "--json").json["jobs"][0]["state"] == "stopped"


@LAUNCH
@pytest.mark.slow
def test_machines_of_a_killed_run_are_returned(tmp_path: Path, home: Path) -> None:
    with start("launch", training(tmp_path, 10**6), "--yes") as launcher:
        wait_for_machines(home, 3)
        launcher.kill()
    assert spotctl("status", "--json").json["jobs"][0]["state"] == "interrupted"
    again = spotctl("launch", tmp_path / "job.yaml", "--yes")
    assert again.code == 6
    assert "spotctl resume small" in again.err
    assert spotctl("gc", "--json").json["resources"] == []
    (home / "log.sqlite").rename(home / "log.lost")
    unowned = spotctl("gc", "--json").json["resources"]
    # Leases end whether anybody looks or not: on a slow computer, some may have by now.
    assert {one["id"] for one in unowned} <= _machines_of(home / "log.lost")
    (home / "log.lost").rename(home / "log.sqlite")
    assert spotctl("stop", "--all").code == 0
    assert all(held.ended is not None for held in state_of(home).machines.values())
    assert spotctl("gc", "--json").json["resources"] == []


def _machines_of(path: Path) -> set[str]:
    with EventLog(path) as log:
        return set(fold(log.of_run(log.beginnings()[-1].run)).machines)


@pytest.mark.slow
@LONG_RUN
def test_without_reliable_machines_a_run_that_loses_all_of_them_makes_the_same_model(
    tmp_path: Path,
    home: Path,
) -> None:
    path = training(tmp_path, 40)
    text = path.read_text().replace(
        "reliable: {machines: 1, type: m3.medium}", "reliable: {machines: 0}"
    )
    # Every eviction is one of all machines, without a warning.
    path.write_text(text.replace("unwarned: 0.34", "unwarned: 1"))
    job = training_job(load(path))
    ended = spotctl("launch", path, "--yes", "--json").json
    assert (ended["outcome"], ended["updates_lost"], ended["updates_doubled"]) == ("done", 0, 0)
    expected = run(
        job.source.load(), 40, seed=job.settings.seed, partitions=job.settings.partitions
    )
    assert ended["model_sha256"] == model_digest(expected)
    state = state_of(home)
    assert not any(order.reliable for order in state.orders.values())
    for first, last in ended.get("redone_clocks", []):
        assert 1 <= first <= last < 40


@pytest.mark.slow
@LONG_RUN
def test_a_run_that_is_killed_repeatedly_makes_the_same_model(tmp_path: Path, home: Path) -> None:
    expected = spotctl("launch", training(tmp_path, 30), "--yes", "--json").json
    draw = random.Random(3)
    assert killed_at(
        f"after={APPEND}", draw.randrange(3, 9), "launch", tmp_path / "job.yaml", "--yes"
    )
    for when in ("before", "after"):
        assert killed_at(f"{when}={NOTE}", draw.randrange(2, 10), "resume", "small")
    # The model is made, and lost with the process; made again, and kept; then the run is about to
    # end.
    for point in (f"before={KEEP}", f"after={KEEP}", f"after={STOP}", f"after={APPEND}"):
        assert killed_at(point, 0, "resume", "small")
    metrics = tmp_path / "small.prom"
    ended = spotctl("resume", "small", "--json", "--metrics", metrics).json
    assert (ended["outcome"], ended["updates_lost"], ended["updates_doubled"]) == ("done", 0, 0)
    assert f'spotctl_running{{job="small",run="{ended["run"]}"}} 0\n' in metrics.read_text()
    same = ("clocks", "updates_sent", "updates_applied", "model_sha256")
    assert {name: ended[name] for name in same} == {name: expected[name] for name in same}
    assert Path(ended["model"]).is_file()
    check_nothing_bought_twice(home)


@LONG_RUN
def test_the_iteration_log_of_an_earlier_run_is_replaced(tmp_path: Path, home: Path) -> None:  # noqa: ARG001
    path = training(tmp_path, 5)
    path.write_text(path.read_text() + f"outputs: {{model: {tmp_path / 'out'}}}\n")
    first = spotctl("launch", path, "--yes", "--json").json
    path.write_text(path.read_text().replace("rate: 0.2", "rate: 0.1"))
    second = spotctl("launch", path, "--yes", "--json").json
    assert second["model"] == first["model"]
    assert second["model_sha256"] != first["model_sha256"]
    lines = (tmp_path / "out" / "iterations.jsonl").read_text().splitlines()
    assert [json.loads(line).get("clock") for line in lines] == [1, 2, 3, 4, 5, None]


def test_a_training_on_a_cloud_names_one_region(tmp_path: Path, approved: Approved) -> None:
    path = training(tmp_path)
    path.write_text(
        path.read_text()
        .replace("[local]", "[aws]")
        .split("local:")[0]
        .replace("c4.2xlarge", "c5.large")
    )
    refused = spotctl("launch", path, "--yes")
    approved(refused)
