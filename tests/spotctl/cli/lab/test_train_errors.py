"""What `spotctl lab train` refuses, and what it shows of a trainer's own output and errors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.spotctl.trains import average, last_line, lines, trained


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    return average(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("nothing",),
            "unknown app 'nothing'; choose one of mf, mlr, lda, or pass module:Class, FILE",
        ),
        (("none.py",), "none.py: no such file"),
        (("no.such:Class",), "no.such:Class: no module 'no' on the import path"),
        (("mf", "--arg", "rank"), "invalid argument 'rank'; write name=value"),
        (("mf", "--arg", "size=3"), "mf has no argument 'size'; it takes rank ("),
        (("mf", "--arg", "rank=0"), "mf: rank is 0; it must be a whole number of at least 1"),
        (
            ("mf", "--nodes", "0+0"),
            "nodes is '0+0'; write reliable+transient with at least one node",
        ),
        (("mf", "--nodes", "3"), "nodes is '3'; write reliable+transient"),
        (("mf", "--stage", "4"), "--stage 4: unknown stage; expected one of auto, 1, 2, 3"),
        (("mf", "--slack", "-1"), "--slack -1: is not a number of clocks"),
        (
            ("mf", "--slack", "1", "--deterministic"),
            "--deterministic with --slack 1: workers that run ahead",
        ),
        (("mf", "--clocks", "0"), "clocks is 0; it must be a whole number from 1"),
        (("mf", "--seconds", "0"), "seconds is 0"),
        (("mf", "--seconds", "nan"), "seconds is nan"),
        (("mf", "--loss", "inf"), "loss is inf"),
        (("mf", "--converged", "1"), "converged is 1.0; it must be a finite number from 0 to"),
        (
            ("mf", "--chaos", "at clock 20 evcit half"),
            "chaos, character 13: found 'evcit', expected evict, kill or join",
        ),
        (
            ("mf", "--against", "ddp"),
            "--against ddp: unknown; expected plain, the loop of PyTorch in one process",
        ),
        (
            ("mf", "--against", "plain"),
            "MatrixFactorization is no TorchModule, so plain PyTorch cannot train the same",
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
    assert (ended.code, "unknown engine 'cloud'; choose one of local, ray, sim" in ended.error) == (
        2,
        True,
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ["sim", "local"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [("infinite", "NaN or infinity"), ("shape", "shape (6, 1)")],
    ids=["infinite", "shape"],
)
def test_a_trainer_that_breaks_the_contract_is_named(
    trainer: Path, engine: str, wrong: str, message: str
) -> None:
    log = trainer.with_name("log")
    ended = trained(
        trainer, "--arg", f"wrong={wrong}", "--clocks", "9", "--log", log, engine=engine
    )
    assert ended.code == 1
    assert "Average, clock 4, parameter 'file'" in ended.error
    assert message in ended.error
    # A reader of the log sees how far it came, and that it did not end.
    assert all("clock" in line for line in lines(log))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"def (", "line 1"),
        (b"\xff\xfe\x00", "average.py"),
        (b"1 / 0", "ZeroDivisionError"),
        (b"x = 1", "defines neither a function trainer() nor a class with"),
        (
            b"class T:\n def init(self, rng): pass\n def shards(self): pass\n",
            "T lacks step(), loss()",
        ),
    ],
)
def test_a_file_that_is_no_trainer(trainer: Path, content: bytes, message: str) -> None:
    trainer.write_bytes(content)
    ended = trained(trainer)
    assert ended.code == 1
    assert str(trainer) in last_line(ended)
    assert message in last_line(ended)


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


@pytest.mark.parametrize(("engine", "node"), [("sim", ""), ("local", "r0")])
def test_the_traceback_of_a_trainer_is_shown_before_the_error(
    tmp_path: Path, engine: str, node: str
) -> None:
    trainer = tmp_path / "talkative.py"
    trainer.write_text(TALKATIVE + "FAILS = True\n")
    ended = trained(trainer, "--nodes", "1+0", engine=engine)
    assert ended.code == 1
    prefix, suffix = (f"[{node}] ", f", on node {node}") if node else ("", "")
    line = f'  File "{trainer}", line 18, in loss'
    assert f"{prefix}{line}" in ended.err.splitlines()
    assert f"{prefix}OSError: no data" in ended.err.splitlines()
    assert last_line(ended).startswith("spotctl: Talkative, clock 1: loss: OSError: no data (")
    assert last_line(ended).endswith(f"talkative.py, line 21, in fail){suffix}")
