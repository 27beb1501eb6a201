"""Runs in experiment trackers: MLflow's own file store, and Weights & Biases in its offline
mode."""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from bidbrain.billing import usd
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.state import RunState
from spotctl.log.store import EventLog
from spotctl.show import tracking
from spotctl.show.runs.run_view import Money, RunView, run_view
from spotctl.show.tracking import Point, TrackedRuns, points_of
from tests.samples import LONG_RUN
from tests.spotctl.cli.test_ctrl_c import started
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import state_of, training
from tests.spotctl.show.runs.made_up_run import at, rows, run_events
from tests.waiting import eventually

RUN = "small-1"
JOB = {
    "name": "small",
    "kind": "agileml",
    "app": "mf",
    "stop": {"clocks": 100},
    "resources": {"clouds": ["local"], "machines": "2"},
    "tags": {"team": "search"},
}
ENDED = ev.RunEnded("done", "", 0, {"on_demand": 2 * 3600 * 10**9, "updates_lost": 0})
HALF = 11


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither library may speak to its makers; MLflow asks whether a folder is really wanted."""
    for name in ("DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_MODE", "offline")


def events(track: object) -> list[tuple[float, ev.Event]]:
    began = ev.RunBegan("small", "local", {**JOB, "track": track}, "/nowhere", 0)
    gone = [(10.0, ev.MachineEnded(name, at(10), "returned")) for name in ("r", "e")]
    return [(0, began), *run_events()[1:], *gone, (11, ENDED)]


def logged(home: Path, part: Sequence[tuple[float, ev.Event]]) -> RunState:
    """The state of the run after some more of its events."""
    with EventLog(Paths(home).log) as log:
        for minutes, event in part:
            log.append(RUN, at(minutes), event)
        return fold(log.of_run(RUN))


def track(home: Path, state: RunState) -> list[str]:
    """Remarks of a process that follows a run to this state."""
    remarks = list[str]()
    tracked = TrackedRuns(Settings(home=home), remarks.append)
    tracked.note(state)
    tracked.close()
    return remarks


def test_each_loss_and_each_change_of_the_machines_is_a_point() -> None:
    def view_at(state: RunState, moment: int) -> RunView:
        return run_view(
            state, moment, attended=True, money=Money(on_demand=(moment - at(0)) * 10**3)
        )

    state, points = points_of(RunState(), rows(events("mlflow")), view_at)
    assert state.ended is not None
    losses = [point for point in points if point.name == "loss"]
    assert losses == [Point("loss", 0.8, 10, at(2)), Point("loss", 0.2, 40, at(8))]
    evictions = [(point.step, point.value) for point in points if point.name == "spotctl/evictions"]
    assert evictions == [
        (0, 0),
        (60, 0),
        (360, 0),
        (450, 1),
        (450, 2),
        (450, 3),
        (540, 4),
        (600, 4),
        (600, 4),
        (660, 4),
    ]
    machines = [(p.step, p.value) for p in points if p.name == "spotctl/spot_machines"]
    assert [*machines[:4], machines[-1]] == [(0, 0), (60, 3), (360, 5), (450, 4), (660, 0)]
    costs = {point.step: point.value for point in points if point.name == "spotctl/on_demand_usd"}
    assert costs[660] == float(usd((at(11) - at(0)) * 10**3))
    assert not [point for point in points if point.name == "spotctl/spent_usd"]


def test_a_tracker_that_comes_later_gets_the_same_points() -> None:
    whole = rows(events("mlflow"))

    def view_at(state: RunState, moment: int) -> RunView:
        return run_view(
            state, moment, attended=True, money=Money(on_demand=moment + len(state.machines))
        )

    _, at_once = points_of(RunState(), whole, view_at)
    state, first = points_of(RunState(), whole[:HALF], view_at)
    assert first + points_of(state, whole[HALF:], view_at)[1] == at_once


def mlflow_run(folder: Path) -> tuple[Any, dict[str, list[Any]]]:
    """The only run of a file store, and its metrics."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=str(folder))
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    return run, {
        name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics
    }


def test_a_resumed_run_continues_its_run_in_mlflow(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    home, folder = tmp_path / "home", tmp_path / "mlruns"
    home.mkdir()
    all_events = events({"mlflow": str(folder)})
    assert track(home, logged(home, all_events[:HALF])) == []
    first, metrics = mlflow_run(folder)
    assert first.info.status == "RUNNING"
    assert [metric.step for metric in metrics["loss"]] == [10]
    assert track(home, logged(home, all_events[HALF:])) == []
    run, metrics = mlflow_run(folder)
    assert run.info.run_id == first.info.run_id
    assert (run.info.status, run.info.run_name) == ("FINISHED", RUN)
    assert (run.info.start_time, run.info.end_time) == (at(0) // 1000, at(11) // 1000)
    assert {
        "team": "search",
        "spotctl.run": RUN,
        "spotctl.outcome": "done",
    }.items() <= run.data.tags.items()
    assert run.data.params == {"kind": "agileml", "strategy": "auto", "clouds": "local"}
    assert [(m.step, m.value, m.timestamp) for m in metrics["loss"]] == [
        (10, 0.8, at(2) // 1000),
        (40, 0.2, at(8) // 1000),
    ]
    assert run.data.metrics["spotctl/evictions"] == 4
    assert run.data.metrics["spotctl/on_demand_usd"] == 2
    assert run.data.metrics["spotctl/spot_machines"] == 0


def test_so_does_a_run_in_weights_and_biases(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed: pip install wandb")
    home = tmp_path / "home"
    home.mkdir()
    all_events = events({"wandb": "team/project"})
    assert track(home, logged(home, all_events[:HALF])) == []
    assert track(home, logged(home, all_events[HALF:])) == []
    parts = sorted((home / "tracked" / RUN / "wandb").glob(f"offline-run-*-{RUN}/run-{RUN}.wandb"))
    assert len(parts) == 2
    first, second = ([values for _, values in history(part)] for part in parts)
    assert [values["loss"] for values in first if "loss" in values] == [0.8]
    assert [(values["clock"], values["loss"]) for values in second if "loss" in values] == [
        (40, 0.2)
    ]
    assert second[-1] == {
        "spotctl/seconds": 660,
        "spotctl/spent_usd": second[-1]["spotctl/spent_usd"],
        "spotctl/committed_usd": second[-1]["spotctl/committed_usd"],
        "spotctl/on_demand_usd": 2,
        "spotctl/spot_machines": 0,
        "spotctl/on_demand_machines": 0,
        "spotctl/evictions": 4,
    }
    assert {
        (run.entity, run.project, run.run_id) for part in parts for run, _ in [*history(part)][:1]
    } == {("team", "project", RUN)}


def history(file: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The lines of a run as Weights & Biases keeps them offline, without those that it adds
    itself."""
    from wandb.proto import wandb_internal_pb2 as records

    run = None
    for content in _log_records(file.read_bytes()):
        record = records.Record()
        record.ParseFromString(content)
        if record.WhichOneof("record_type") == "run":
            run = record.run
        if record.WhichOneof("record_type") == "history":
            items = [
                (item.key or "/".join(item.nested_key), item.value_json)
                for item in record.history.item
            ]
            yield (
                run,
                {name: json.loads(value) for name, value in items if not name.startswith("_")},
            )


def _log_records(content: bytes) -> Iterator[bytes]:
    """The records of a file in the format of LevelDB's log, after seven bytes of Weights & Biases'
    own.
    """
    place, whole = 7, b""
    while place + 7 <= len(content):
        _, size, kind = struct.unpack_from("<IHB", content, place)
        whole += content[place + 7 : place + 7 + size]
        place += 7 + size
        # A header never crosses the border of a block of 32 KiB.
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
        if kind in (1, 4):
            yield whole
            whole = b""


def test_a_tracker_that_hangs_or_fails_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, hangs = logged(tmp_path, events("mlflow")), Event()
    monkeypatch.setattr(tracking, "check_installed", lambda _: None)
    monkeypatch.setattr(tracking, "_CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(tracking, "open_tracker", lambda *_: hangs.wait(300))
    remarks = list[str]()
    tracked = TrackedRuns(Settings(home=tmp_path), remarks.append)
    for _ in range(1000):
        tracked.note(state)
    assert not remarks
    tracked.close()
    assert remarks == [f"track: mlflow has not taken the last points of {RUN} in 0.2 s"]
    hangs.set()

    def fails(*_: object) -> None:
        raise OSError("no server\nthere")

    monkeypatch.setattr(tracking, "open_tracker", fails)
    monkeypatch.setattr(tracking, "_CLOSE_SECONDS", 30.0)
    assert track(tmp_path, state) == ["track: mlflow: no server there; the run continues"]


def test_what_is_not_installed_is_refused_before_anything_is_rented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotctl.show.tracking.find_spec", lambda _: None)
    file = training(tmp_path)
    file.write_text(f"{file.read_text()}track: mlflow\n")
    assert spotctl("plan", file).code == 0
    refused = spotctl("launch", file, "--yes")
    assert refused.code == 2
    assert refused.error.endswith(
        "small: track: mlflow is not installed: pip install mlflow, or remove track\n"
    )
    assert not (tmp_path / "home" / "log.sqlite").exists()
    # A run that goes on already goes on.
    (why,) = track(tmp_path / "home", logged(tmp_path / "home", events("mlflow")))
    assert why.startswith(
        "track: mlflow: small: track: mlflow is not installed: pip install mlflow"
    )
    assert why.endswith("; the run continues")


@LONG_RUN
@pytest.mark.slow
def test_a_training_is_killed_and_resumed_in_one_run_of_mlflow(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    file, home, folder = training(tmp_path, 150), tmp_path / "home", tmp_path / "mlruns"
    file.write_text(f"{file.read_text()}track: {{mlflow: mlruns}}\n")
    with started("launch", file, "--yes", "--json") as process:
        eventually(lambda: folder.exists() and "loss" in mlflow_metrics(folder))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    ended = spotctl("resume", "small", "--json")
    assert ended.json["outcome"] == "done"
    assert "track" not in ended.err
    run, metrics = mlflow_run(folder)
    state = state_of(home)
    assert (run.data.tags["spotctl.run"], run.info.status) == (state.run, "FINISHED")
    assert run.data.metrics["spotctl/evictions"] == state.evictions
    assert run.data.metrics["spotctl/spent_usd"] == pytest.approx(ended.json["cost_usd"], abs=1e-4)
    with EventLog(Paths(home).log) as log:
        known = [row.event for row in log.of_run(state.run) if isinstance(row.event, ev.Progressed)]
    assert {metric.step for metric in metrics["loss"]} == {
        event.clock for event in known if event.loss is not None
    }


def mlflow_metrics(folder: Path) -> dict[str, list[Any]]:
    from mlflow.exceptions import MlflowException

    try:
        return mlflow_run(folder)[1]
    except (AssertionError, ValueError, MlflowException):
        # It is being written.
        time.sleep(0.2)
        return {}
