"""`spotctl lab train` from its entry point, on simulated nodes and on real processes: models, logs
and pictures.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from agileml.apps.registry import TrainerSource
from agileml.reference import iterate, model_digest
from agileml.roles.node import JobSettings
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.trains import SMALL, average, lines, trained

# The kill comes first: a node that has been warned may have left by then, and would not be missed.
CHAOS = (
    "at clock 3 kill 1; at clock 6 evict half warn 60s; at clock 8 join 2; at clock 12 kill "
    "controller"
)
LAST_KEYS = [
    *("clocks", "updates_sent", "updates_applied", "updates_lost", "updates_doubled"),
    *("evictions", "failures", "model_sha256", "loss", "samples"),
]


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    return average(tmp_path)


def undisturbed(clocks: int, seed: int = 0) -> tuple[str, float]:
    arguments: dict[str, object] = {"ratings": 4000, "users": 200, "items": 100, "rank": 4}
    trainer, sample = TrainerSource("mf", arguments).load(), JobSettings().loss_sample
    _, params, loss = next(
        islice(iterate(trainer, seed, partitions=8, sample_items=sample), clocks, None)
    )
    return model_digest(params), loss


@pytest.mark.parametrize("engine", ["sim", "local"])
def test_json_log_model_and_picture_of_a_run_through_chaos(engine: str, tmp_path: Path) -> None:
    log, out, plot = (tmp_path / name for name in ("run.jsonl", "model.npz", "run.png"))
    words = ("mf", *SMALL, "--clocks", "20", "--deterministic", "--chaos", CHAOS, "--json")
    ended = trained(*words, "--log", log, "--out", out, "--plot", plot, engine=engine)
    assert (ended.code, ended.err) == (0, "")
    *clocks, last = lines(log)
    assert ended.json == last
    assert list(last) == LAST_KEYS
    # 16 shards of 250 ratings in chunks of 25, 8 partitions, 20 clocks
    assert last["updates_sent"] == last["updates_applied"] == 16 * 10 * 8 * 20
    assert (last["clocks"], last["updates_lost"], last["updates_doubled"]) == (20, 0, 0)
    assert last["evictions"] == 1
    assert last["failures"] >= 1
    assert (last["model_sha256"], last["loss"]) == undisturbed(20)
    assert [line["clock"] for line in clocks] == list(range(1, 21))
    known = [line["loss"] for line in clocks if line["loss"] is not None]
    assert known[-1] < known[0] / 2
    assert any("warned" in event for line in clocks for event in line["events"])
    with np.load(out) as model:
        assert model_digest(dict(model)) == last["model_sha256"]
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("engine", ["sim", "local"])
def test_the_losses_of_plain_pytorch_are_drawn_and_printed(engine: str, tmp_path: Path) -> None:
    plot, trainer = tmp_path / "run.png", Path(__file__).parents[4] / "examples/trainers/digits.py"
    words = (f"{trainer}:trainer", "--nodes", "1+2", "--clocks", "25", "--against", "plain")
    ended = trained(*words, "--chaos", "at clock 9 kill 1", "--plot", plot, "--json", engine=engine)
    assert ended.code == 0
    assert ended.json["failures"] == 1
    curves = ended.json["curves"]
    assert (curves[0]["clocks"], curves[-1]["clocks"], curves[-1]["loss"]) == (
        0,
        25,
        ended.json["loss"],
    )
    for point in curves:
        assert point["loss"] == pytest.approx(point["plain_loss"], rel=1e-5)
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert re.search(
        r"plain PyTorch +\S+ after clock 25; at most .* apart", trained(*words, engine=engine).out
    )


def test_the_same_seeds_give_the_same_log(tmp_path: Path) -> None:
    words = (
        "mf",
        *SMALL,
        "--clocks",
        "15",
        "--chaos",
        CHAOS + "; every 2 clocks kill 1 prob 0.3; every 3 clocks join 1",
    )
    logs = [tmp_path / name for name in ("first", "again", "other")]
    for log, seed in zip(logs, ("1", "1", "2"), strict=True):
        assert trained(*words, "--seed", seed, "--log", log).code == 0
    first, again, other = (log.read_bytes() for log in logs)
    assert first == again != other


def test_a_table_for_people() -> None:
    ended = trained("mf", *SMALL, "--clocks", "10", "--chaos", CHAOS)
    assert (ended.code, ended.err) == (0, "")
    figures = dict(line.strip().split("  ", 1) for line in ended.out.splitlines())
    found = {name: figure.strip() for name, figure in figures.items()}
    assert found["clocks"].startswith("10 in ")
    assert found["clocks"].endswith("of virtual time")
    assert found["evictions survived"] == "1"
    assert found["failures survived"] == "1"
    assert re.fullmatch(r"[\d.]+ before clock 1, [\d.]+ after clock 10", found["loss"])
    assert found["updates"] == "12,800 sent, 12,800 applied, 0 lost, 0 doubled"
    assert found["model"].startswith("sha256 ")


def test_a_file_of_ones_own_with_any_names(trainer: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.npz"
    ended = trained(trainer, "--arg", "shards=4", "--clocks", "30", "--out", out, "--json")
    assert ended.code == 0, ended.err
    assert ended.json["clocks"] == 30
    with np.load(out) as model:
        assert sorted(model) == ["b", "file"]
        assert np.abs(model["file"] - 3).max() < 0.5
    with zipfile.ZipFile(out) as archive:
        assert archive.testzip() is None


def test_a_class_of_a_module_here(trainer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer.rename(trainer.with_name("module_that_lies_here.py"))
    monkeypatch.chdir(trainer.parent)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert trained("module_that_lies_here:Average", "--clocks", "3", "--json").json["clocks"] == 3


def test_ends(trainer: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert trained(trainer, "--json").json["clocks"] == 100
    assert trained("mf", *SMALL, "--loss", "0.5", "--json").json["clocks"] < 20
    assert trained("mf", *SMALL, "--converged", "0.2", "--json").json["clocks"] < 60
    assert trained(trainer, "--seconds", "0.008", "--log", log).code == 0
    seconds = [line["seconds"] for line in lines(log)[:-1]]
    # One more clock had begun when the last one was noticed.
    assert sum(seconds[:-2]) < 0.008 <= sum(seconds)


def test_stages(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for stage, nodes, expected in (
        ("auto", "1+3", 2),
        ("auto", "2+2", 1),
        ("1", "1+3", 1),
        ("2", "2+1", 2),
        ("3", "1+3", 3),
    ):
        assert (
            trained(
                "mf", *SMALL, "--clocks", "2", "--stage", stage, "--nodes", nodes, "--log", log
            ).code
            == 0
        )
        assert [line["stage"] for line in lines(log)[:-1]] == [expected] * 2


def test_the_stage_is_learned_and_the_log_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = ("mf", *SMALL, "--clocks", "13", "--deterministic", "--nodes", "1+3")
    assert trained(*command, "--log", log).code == 0
    *clocks, learned = lines(log)
    decisions = [
        event for clock in clocks for event in clock["events"] if event.startswith("stage ")
    ]
    assert decisions
    assert all(": " in event for event in decisions)
    assert trained(*command, "--stage", "2", "--log", log).code == 0
    *clocks, fixed = lines(log)
    assert {clock["stage"] for clock in clocks} == {2}
    assert learned["model_sha256"] == fixed["model_sha256"]


@pytest.mark.parametrize("slack", ["2", "asp"])
def test_slack(slack: str) -> None:
    ended = trained(
        "mf", *SMALL, "--clocks", "10", "--slack", slack, "--chaos", "at clock 5 kill 1", "--json"
    )
    assert ended.code == 0, ended.err
    assert (ended.json["updates_lost"], ended.json["updates_doubled"]) == (0, 0)


INTERRUPTED = """
import os, signal, sys
from spotctl.cli.app import main
# Under nohup, and in the background of a shell, SIGINT is ignored, and this process inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
from agileml import iteration_log
before = iteration_log.IterationLog.write

def write(self, iteration):
    before(self, iteration)
    if iteration.clock == 3:
        os.kill(os.getpid(), signal.SIGINT)

iteration_log.IterationLog.write = write
main(sys.argv[1:])
"""


def test_ctrl_c_saves_the_model_and_ends_with_130(tmp_path: Path) -> None:
    words = [
        "lab",
        "train",
        "mf",
        "--clocks",
        "100000",
        "--engine",
        "sim",
        "--log",
        "run.jsonl",
        "--out",
        "model.npz",
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *words],
        check=False,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 130
    answer = json.loads(done.stdout)
    assert answer["interrupted"]
    assert answer["clocks"] >= 2
    assert done.stderr.splitlines()[-1] == (
        f"spotctl: interrupted; the model after clock {answer['clocks']} is saved in model.npz"
    )
    assert np.load(tmp_path / "model.npz")["users"].shape == (2000, 16)
    last = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[-1])
    assert "clock" in last


BACKUPS = ("mlr", "--arg", "examples=800", "--arg", "parts=8", "--seed", "3")


def test_a_logged_run_with_backup_workers_replays_to_the_same_model(
    tmp_path: Path, approved: Approved
) -> None:
    log, out = tmp_path / "run.jsonl", tmp_path / "model.npz"
    ran = spotctl(
        "lab", "train", *BACKUPS, "--engine", "sim", "--deterministic", "--clocks", "12", "--log", log, "--json",
        "--stragglers", "backup-workers=auto", "--chaos", "power law 3; at clock 3 kill 1",
    )  # fmt: skip
    ending = ran.json
    assert ending["dropped_chunks"]
    replayed = spotctl("lab", "train", *BACKUPS, "--replay", log, "--json", "--out", out)
    assert replayed.json == {"clocks": 12, "model_sha256": ending["model_sha256"], "compared": True}
    with zipfile.ZipFile(out) as archive:
        assert archive.namelist() == ["weights.npy"]
    interrupted = tmp_path / "interrupted.jsonl"
    interrupted.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    said = spotctl("lab", "train", *BACKUPS, "--replay", interrupted).out
    assert (
        said
        == f"model after clock 12: sha256 {ending['model_sha256']}, not compared: the log has no end\n"
    )
    other = spotctl("lab", "train", *BACKUPS[:-1], "4", "--arg", "rate=2", "--replay", log)
    approved(other)
    fewer = spotctl("lab", "train", "mlr", "--arg", "parts=2", "--replay", log)
    approved(fewer)


CRASHING = """
import os, time, numpy as np
from pathlib import Path

LOG = Path(__file__).with_name("run.jsonl")

class Crashing:
    def init(self, rng):
        return {"w": np.zeros(2, np.float32)}

    def shards(self):
        return [range(4)] * 4

    def step(self, shard, lo, hi, params, clock, rng):
        if clock == 4:
            # The end of a process takes with it what it has not sent yet, such as its reports of earlier clocks.
            while not (LOG.exists() and LOG.read_text().endswith("\\n")):
                time.sleep(0.01)
            os._exit(9)
        params.update("w", None, np.ones(2, np.float32))

    def loss(self, params, sample):
        return 1.0
"""


def test_a_training_whose_nodes_crash_again_and_again_saves_its_last_stable_model(
    tmp_path: Path,
) -> None:
    (tmp_path / "crashing.py").write_text(CRASHING)
    out, log = tmp_path / "model.npz", tmp_path / "run.jsonl"
    ended = spotctl(
        "lab", "train", tmp_path / "crashing.py", "--nodes", "1+1", "--out", out, "--log", log
    )
    assert ended.code == 1
    last = ended.err.splitlines()[-1]
    assert "failed in the same way" in last
    clock = re.search(r"; the model after clock (\d+) is saved in (.*)$", last)
    assert clock is not None
    assert clock[2] == str(out)
    # The replacements may have crashed before they had reported as many clocks as their
    # predecessors.
    assert 1 <= int(clock[1]) <= lines(log)[-1]["clock"] == 3
    assert np.load(out)["w"].tolist() == [int(clock[1]) * 16.0] * 2
