"""`spotctl train` from its entry point, on simulated nodes and on real processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.errors import AgileMLError
from agileml.job import Counters
from agileml.policies.policy import ClockSums
from agileml.reference import iterate, model_digest
from agileml.roles.node import JobSettings
from spotctl.files.model_file import check_nothing_lost
from spotctl.show import train_tables
from spotctl.show.train_plots import marked_clocks
from tests.spotctl.cli import Ended, spotctl

SMALL = ("--arg", "ratings=4000", "--arg", "users=200", "--arg", "items=100", "--arg", "rank=4")
CHAOS = "at clock 3 evict half warn 5s; at clock 6 kill 1; at clock 8 join 2; at clock 12 kill controller"
LAST_KEYS = [
    *("clocks", "updates_sent", "updates_applied", "updates_lost", "updates_doubled"),
    *("evictions", "failures", "model_sha256", "loss", "samples"),
]

TRAINER = """
import numpy as np

class Average:
    '''Goes from 0 to the mean of its shards' numbers.'''

    batch = 0

    def __init__(self, wrong="", shards=8):
        self.wrong, self.count = wrong, shards

    def init(self, rng):
        return {"file": np.zeros((6, 2), np.float32), "b": np.zeros(3)}

    def shards(self):
        return [range(number, number + 4) for number in range(self.count)]

    def step(self, shard, lo, hi, params, clock, rng):
        mean = np.full((6, 2), np.mean(shard[lo:hi]), np.float32)
        delta = (mean - params.read("file")) / (4 * self.count) * (hi - lo)
        if clock == 4 and self.wrong:
            delta = delta * np.inf if self.wrong == "infinite" else delta[:, :1]
        params.update("file", None, delta)

    def loss(self, params, sample):
        return float(np.abs(params.read("file") - 5).mean())
"""


PATIENCE = ("--heartbeat-timeout", "20")
"""Where many tests share two processors, a node may be silent for long."""


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    path = tmp_path / "average.py"
    path.write_text(TRAINER)
    return path


def trained(*words: str | Path, engine: str = "sim") -> Ended:
    return spotctl("train", *words, "--engine", engine, *PATIENCE)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def undisturbed(clocks: int, seed: int = 0) -> tuple[str, float]:
    arguments: dict[str, object] = {"ratings": 4000, "users": 200, "items": 100, "rank": 4}
    trainer, sample = TrainerSource("mf", arguments).load(), JobSettings().loss_sample
    end = next(islice(iterate(trainer, seed, partitions=8, sample_items=sample), clocks, None))
    return model_digest(end.params), end.loss


# -- what comes out ---------------------------------------------------------------------------------------------------


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
    assert last["evictions"] == 2
    assert last["failures"] >= 1
    assert (last["model_sha256"], last["loss"]) == undisturbed(20)
    assert [line["clock"] for line in clocks] == list(range(1, 21))
    known = [line["loss"] for line in clocks if line["loss"] is not None]
    assert known[-1] < known[0] / 2
    assert any("warned" in event for line in clocks for event in line["events"])
    with np.load(out) as model:
        assert model_digest(dict(model)) == last["model_sha256"]
    assert plot.read_bytes().startswith(b"\x89PNG")


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
    assert found["evictions survived"] == "2"
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
    assert trained(trainer, "--seconds", "0.002", "--minutes", "0.0001", "--log", log).code == 0
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
        assert trained("mf", *SMALL, "--clocks", "2", "--stage", stage, "--nodes", nodes, "--log", log).code == 0
        assert [line["stage"] for line in lines(log)[:-1]] == [expected] * 2


def test_the_stage_is_learned_and_the_log_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = ("mf", *SMALL, "--clocks", "13", "--deterministic", "--nodes", "1+3")
    assert trained(*command, "--log", log).code == 0
    *clocks, learned = lines(log)
    decisions = [event for clock in clocks for event in clock["events"] if event.startswith("stage ")]
    assert decisions
    assert all(": " in event for event in decisions)
    assert trained(*command, "--stage", "2", "--log", log).code == 0
    *clocks, fixed = lines(log)
    assert {clock["stage"] for clock in clocks} == {2}
    assert learned["model_sha256"] == fixed["model_sha256"]


@pytest.mark.parametrize("slack", ["2", "asp"])
def test_slack(slack: str) -> None:
    ended = trained("mf", *SMALL, "--clocks", "10", "--slack", slack, "--chaos", "at clock 5 kill 1", "--json")
    assert ended.code == 0, ended.err
    assert (ended.json["updates_lost"], ended.json["updates_doubled"]) == (0, 0)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing",), "unknown app 'nothing'; choose one of mf, mlr, lda, or pass module:Class, FILE"),
        (("none.py",), "none.py: no such file"),
        (("no.such:Class",), "no.such:Class: no module 'no' on the import path"),
        (("mf", "--arg", "rank"), "invalid argument 'rank'; write name=value"),
        (("mf", "--arg", "size=3"), "mf has no argument 'size'; it has rank ("),
        (("mf", "--arg", "rank=0"), "mf: rank is 0; it must be a whole number of at least 1"),
        (("mf", "--nodes", "0+3"), "nodes is '0+3'; write reliable+transient, such as 1+3, with at least one reliable"),
        (("mf", "--nodes", "0+3"), "it keeps the model when all others are evicted"),
        (("mf", "--nodes", "3"), "nodes is '3'; write reliable+transient"),
        (("mf", "--stage", "4"), "--stage 4: unknown stage; expected one of auto, 1, 2, 3"),
        (("mf", "--slack", "-1"), "--slack -1: is not a number of clocks"),
        (("mf", "--slack", "1", "--deterministic"), "--deterministic with --slack 1: workers that run ahead"),
        (("mf", "--clocks", "0"), "clocks is 0; it must be a whole number from 1"),
        (("mf", "--seconds", "0"), "seconds is 0"),
        (("mf", "--minutes", "nan"), "seconds is nan"),
        (("mf", "--loss", "inf"), "loss is inf"),
        (("mf", "--converged", "1"), "converged is 1.0; it must be a finite number from 0 to"),
        (
            ("mf", "--chaos", "at clock 20 evcit half"),
            "chaos, character 13: found 'evcit', expected evict, kill or join",
        ),
        (("mf", "--partitions", "0"), "Invalid value for '--partitions'"),
        (("mf", "--seed", "-1"), "Invalid value for '--seed'"),
        (("mf", "--log", "none/x"), "--log none/x: there is no folder none"),
        (("mf", "--out", "model.pt"), "--out model.pt: the name must end with .npz"),
        (("mf", "--out", "none/model.npz"), "--out none/model.npz: there is no folder none"),
        (("mf", "--plot", "run.jpg"), "--plot run.jpg: the name must end with .png or .svg"),
        (("mf", "--log", "."), "--log .: is a folder"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_code_2(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    ended = trained(*words)
    assert ended.code == 2
    assert message in ended.error
    assert ended.out == ""
    assert list(tmp_path.iterdir()) == []


def test_engines_that_are_not_there() -> None:
    ended = trained("mf", engine="cloud")
    assert (ended.code, "unknown engine 'cloud'; choose one of local, ray, sim" in ended.error) == (2, True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ["sim", "local"])
@pytest.mark.parametrize(
    ("wrong", "message"), [("infinite", "NaN or infinity"), ("shape", "shape (6, 1)")], ids=["infinite", "shape"]
)
def test_a_trainer_that_breaks_the_contract_is_named(trainer: Path, engine: str, wrong: str, message: str) -> None:
    log = trainer.with_name("log")
    ended = trained(trainer, "--arg", f"wrong={wrong}", "--clocks", "9", "--log", log, engine=engine)
    assert ended.code == 1
    assert "Average, clock 4, parameter 'file'" in ended.error
    assert message in ended.error
    # A reader of the log sees how far it came, and that it did not end.
    assert all("clock" in line for line in lines(log))


def last_line(ended: Ended) -> str:
    """The error, after what the trainer printed and the traceback of its own code."""
    return ended.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"def (", "line 1"),
        (b"\xff\xfe\x00", "average.py"),
        (b"1 / 0", "ZeroDivisionError"),
        (b"x = 1", "defines neither a function trainer() nor a class with"),
        (b"class T:\n def init(self, rng): pass\n def shards(self): pass\n", "T lacks step(), loss()"),
    ],
)
def test_a_file_that_is_no_trainer(trainer: Path, content: bytes, message: str) -> None:
    trainer.write_bytes(content)
    ended = trained(trainer)
    assert ended.code == 1
    assert str(trainer) in last_line(ended)
    assert message in last_line(ended)


def test_lost_updates_are_never_passed_over() -> None:
    check_nothing_lost(Counters(10, 10, 0, 0))
    for counters in (Counters(10, 9, 1, 0), Counters(10, 11, 0, 1)):
        with pytest.raises(AgileMLError, match="do not use this model"):
            check_nothing_lost(counters)


# -- views ------------------------------------------------------------------------------------------------------------


def iteration(clock: int, *events: str) -> Iteration:
    sums = ClockSums(loss_sum=3.0, loss_count=2)
    return Iteration(clock, 0.25, 2, 1, 3, sums, 0, events)


def test_a_line_and_the_events_of_a_clock() -> None:
    one = iteration(7, "t1 left", "t2 ready")
    assert train_tables.line(one) == "clock 7  stage 2  nodes 1+3  loss 1.5  250 ms"
    assert train_tables.events(one) == ["clock 7: t1 left", "clock 7: t2 ready"]


@pytest.mark.parametrize(
    ("value", "text"), [(0.0004, "0.4 ms"), (0.25, "250 ms"), (1.5, "1.5 s"), (99.4, "99.4 s"), (252.3, "4 min 12 s")]
)
def test_spans(value: float, text: str) -> None:
    assert train_tables.seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**50, "1024.0 TiB")])
def test_sizes(value: float, text: str) -> None:
    assert train_tables.size(value) == text


def test_which_events_the_picture_marks() -> None:
    history = [
        iteration(1, "t1 ready", "epoch 1 from version 0"),
        iteration(2, "t1 warned: 5 s", "t1 left", "t2 ready"),
        iteration(3, "t2 lost: its machine is gone", "controller restarted"),
        iteration(4),
    ]
    assert marked_clocks(history) == {"warned": [2], "left": [2], "ready": [2], "lost": [3], "controller": [3]}


TALKATIVE = """
import numpy as np

class Talkative:
    def init(self, rng):
        print("in init")
        return {"w": np.zeros((4, 2), np.float32)}

    def shards(self):
        return [range(2)] * 2

    def step(self, shard, lo, hi, params, clock, rng):
        if clock == 2 and lo == 0:
            print("in step")
        params.update("w", None, np.ones((4, 2), np.float32))

    def loss(self, params, sample):
        return fail() if FAILS else 0.0

def fail():
    raise OSError("no data")
"""


def test_what_a_trainer_prints_goes_to_stderr_with_the_name_of_its_node(tmp_path: Path) -> None:
    trainer = tmp_path / "talkative.py"
    trainer.write_text(TALKATIVE + "FAILS = False\n")
    ended = trained(trainer, "--nodes", "1+1", "--clocks", "3", "--json", engine="local")
    assert ended.json["clocks"] == 3
    lines = ended.err.splitlines()
    assert "in init" in lines
    assert {"[r0] in init", "[r0] in step", "[t1] in init", "[t1] in step"} <= set(lines)


@pytest.mark.parametrize(("engine", "name"), [("sim", ""), ("local", "[r0] ")])
def test_the_traceback_of_a_trainer_is_shown_before_the_error(tmp_path: Path, engine: str, name: str) -> None:
    trainer = tmp_path / "talkative.py"
    trainer.write_text(TALKATIVE + "FAILS = True\n")
    ended = trained(trainer, "--nodes", "1+0", engine=engine)
    assert ended.code == 1
    line = f'  File "{trainer}", line 18, in loss'
    assert f"{name}{line}" in ended.err.splitlines()
    assert f"{name}OSError: no data" in ended.err.splitlines()
    assert last_line(ended).startswith("spotctl: Talkative, clock 1: loss: OSError: no data (")
    assert last_line(ended).endswith("talkative.py, line 21, in fail)")


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


def test_a_logged_run_with_backup_workers_replays_to_the_same_model(tmp_path: Path) -> None:
    log, out = tmp_path / "run.jsonl", tmp_path / "model.npz"
    ran = spotctl(
        "train", *BACKUPS, "--engine", "sim", "--deterministic", "--clocks", "6", "--log", log, "--json",
        "--stragglers", "backup-workers=1", "--chaos", "power law 3; at clock 3 kill 1",
    )  # fmt: skip
    ending = ran.json
    assert ending["dropped_chunks"]
    replayed = spotctl("train", *BACKUPS, "--replay", log, "--json", "--out", out)
    assert replayed.json == {"clocks": 6, "model_sha256": ending["model_sha256"], "compared": True}
    with zipfile.ZipFile(out) as archive:
        assert archive.namelist() == ["weights.npy"]
    interrupted = tmp_path / "interrupted.jsonl"
    interrupted.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    said = spotctl("train", *BACKUPS, "--replay", interrupted).out
    assert said == f"model after clock 6: sha256 {ending['model_sha256']}, not compared: the log has no end\n"
    other = spotctl("train", *BACKUPS[:-1], "4", "--arg", "rate=2", "--replay", log)
    assert other.code == 2
    assert "only --deterministic runs can be replayed" in other.error
    fewer = spotctl("train", "mlr", "--arg", "parts=2", "--replay", log)
    assert "clock 1 of the log has chunks that LogisticRegression does not have" in fewer.error
