"""A stopped training, launched again: it resumes from its checkpoint, and ends with the same
model."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agileml.runtime.blob_store import FileBlobStore
from spotctl.files.job.reader import loads
from spotctl.run.work import resume_state
from tests.samples import LONG_RUN
from tests.spotctl.command_line import spotctl

JOB = """\
name: small
kind: agileml
app: mf
args: {{users: 200, items: 100, ratings: 4000, rank: 4, rate: {rate}}}
stop: {{clocks: {clocks}}}
resources:
  clouds: [local]
  types: [c4.2xlarge]
  machines: 1..1
  reliable: {{machines: 1, type: m3.medium}}
strategy: on-demand
local: {{speed: 600}}
"""


def job(folder: Path, clocks: int, rate: float = 0.2) -> Path:
    path = folder / "job.yaml"
    path.write_text(JOB.format(clocks=clocks, rate=rate))
    return path


@pytest.mark.slow
@LONG_RUN
def test_a_stopped_training_resumes_from_its_checkpoint_to_the_same_model(tmp_path: Path) -> None:
    home = tmp_path / "home"
    words = [
        sys.executable,
        "-c",
        "from spotctl.cli.app import main; main()",
        "launch",
        str(job(tmp_path, 10**6)),
    ]
    with subprocess.Popen(
        [*words, "--yes"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as launcher:
        give_up = time.monotonic() + 300
        while not list(home.glob("runs/*/iterations.jsonl")) or _clock() < 20:
            assert time.monotonic() < give_up
            time.sleep(0.5)
        assert spotctl("stop", "small").code == 0
        assert launcher.wait(300) == 0
    reached = _clock()
    # The checkpoint may be some clocks ahead of what the log had heard of.
    done = reached + 100
    again = spotctl("launch", job(tmp_path, done), "--yes", "--json").json
    lines = Path(again["model"]).with_name("iterations.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["clock"] > reached, "it did not start from scratch"
    assert (again["outcome"], again["clocks"], again["updates_lost"], again["updates_doubled"]) == (
        "done",
        done,
        0,
        0,
    )
    assert not (home / "kept" / "small").exists(), "a finished training keeps no state"
    fresh = spotctl("launch", tmp_path / "job.yaml", "--yes", "--json").json
    assert fresh["model_sha256"] == again["model_sha256"]


def _clock() -> int:
    return spotctl("status", "--json").json["jobs"][0]["clock"] or 0


def test_only_the_same_training_is_resumed_and_knows_the_machines_of_all_runs_before(
    tmp_path: Path,
) -> None:
    first, second, kept = tmp_path / "first", tmp_path / "second", tmp_path / "kept" / "small"
    spec = loads(job(tmp_path, 10).read_text(), tmp_path / "job.yaml")
    for folder in (first, second):
        folder.mkdir()
    (first / "controller.jsonl").write_text("memory")
    resume_state.keep(spec, ("a",), 3, first, kept)
    assert not kept.exists(), "there is no checkpoint yet"
    for clock in (10, 11):
        FileBlobStore(first).put(f"checkpoints/p0-c{clock}.checkpoint", [b"%d" % clock])
    (first / "checkpoints" / "p0-c11.checkpoint").write_text("damaged")
    resume_state.keep(spec, ("a", "b"), 12, first, kept)
    other = loads(job(tmp_path, 10, rate=0.3).read_text(), tmp_path / "job.yaml")
    resume_state.restore(other, second, kept)
    assert resume_state.earlier(second) == ((), 0)
    longer = loads(job(tmp_path, 99).read_text(), tmp_path / "job.yaml")
    resume_state.restore(longer, second, kept)
    assert resume_state.earlier(second) == (("a", "b"), 12)
    assert FileBlobStore(second).list("checkpoints/") == ["checkpoints/p0-c10.checkpoint"]
    assert b"".join(FileBlobStore(second).get("checkpoints/p0-c10.checkpoint")) == b"10"
    assert (second / "controller.jsonl").read_text() == "memory"
    resume_state.keep(longer, ("c",), 15, second, kept)
    third = tmp_path / "third"
    third.mkdir()
    resume_state.restore(longer, third, kept)
    assert resume_state.earlier(third) == (("a", "b", "c"), 15)
    resume_state.forget(kept)
    resume_state.forget(kept)
    assert not kept.exists()
