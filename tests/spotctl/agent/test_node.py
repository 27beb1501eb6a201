"""A node of a command: what it says of an end that is announced while its program ends by
itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.agent.checkpoints.copying import CheckpointSync
from spotctl.agent.checkpoints.stored import StoredCheckpoints, have_ended
from spotctl.agent.container.payload import NODE, CheckpointPolicy, NodeTask
from spotctl.agent.container.processes import MARK
from spotctl.agent.layout import TASK_VARIABLE
from spotctl.agent.lease.job_lease import SAVED_AND_ENDED
from spotctl.agent.node import CANNOT_TRANSFER, CommandNode


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    usual = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, usual)


@pytest.mark.parametrize(
    ("run", "code"), [("exit 0", 0), ("exit 3", 3), (f"exit {SAVED_AND_ENDED}", SAVED_AND_ENDED)]
)
def test_a_program_that_ended_by_itself_keeps_its_status_although_its_machine_is_then_warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str, code: int
) -> None:
    usual = CheckpointSync.last

    def warned(sync: CheckpointSync) -> bool:
        signal.raise_signal(signal.SIGTERM)
        return usual(sync)

    monkeypatch.setattr(CheckpointSync, "last", warned)
    assert node(tmp_path, run).run() == code
    assert have_ended(str(tmp_path / "kept"), "r.1", 1) is (code == 0)


def test_a_program_that_ends_because_it_was_told_to_has_not_ended_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, told = CheckpointSync.look, [False]

    def warns_once(sync: CheckpointSync) -> bool:
        if (tmp_path / "started").exists() and not told[0]:
            told[0] = True
            signal.raise_signal(signal.SIGTERM)
        return usual(sync)

    monkeypatch.setattr(CheckpointSync, "look", warns_once)
    script = f"trap 'exit 0' TERM; touch {tmp_path / 'started'}; while :; do sleep 0.01; done"
    assert node(tmp_path, script).run() == SAVED_AND_ENDED
    assert not have_ended(str(tmp_path / "kept"), "r.1", 1)


_WRITER = """\
import os, pathlib, signal, sys, time
handles, folder = sys.argv[1] == "handles", pathlib.Path(os.environ["SPOTCTL_CHECKPOINT_DIR"])
(folder / "model.pt").write_text("old")
while not list(pathlib.Path(sys.argv[3]).glob("node-0/*.record")):
    time.sleep(0.01)
if handles:
    signal.signal(signal.SIGTERM, lambda *_: None)
log = (folder / "log").open("a")
if sys.argv[1] == "logs":
    pathlib.Path(sys.argv[2]).touch()
    (folder / "model.pt").write_text("new")
    time.sleep(1000.0)
with (folder / "model.pt").open("w") as file:
    print("new, the first half", file=file, flush=True)
    pathlib.Path(sys.argv[2]).touch()
    time.sleep(1.0 if handles else 1000.0)
    print("and the second", file=file)
"""


@pytest.mark.parametrize(
    ("kind", "kept"),
    [("handles", "new, the first half\nand the second\n"), ("dies", "old"), ("logs", "new")],
)
def test_a_file_that_a_program_dies_in_writing_does_not_become_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, kept: str
) -> None:
    """A script that saves to one name, again and again, and knows nothing of evictions."""
    usual = CheckpointSync.look

    def warns(sync: CheckpointSync) -> bool:
        if (tmp_path / "writes").exists():
            signal.raise_signal(signal.SIGTERM)
            return False
        return usual(sync)

    monkeypatch.setattr(CheckpointSync, "look", warns)
    (tmp_path / "writer.py").write_text(_WRITER)
    run = (
        f"{sys.executable} {tmp_path / 'writer.py'} {kind} {tmp_path / 'writes'} "
        f"{tmp_path / 'kept'} && true"
    )
    assert node(tmp_path, run).run() == SAVED_AND_ENDED
    StoredCheckpoints(str(tmp_path / "kept"), 0).restore(tmp_path / "next")
    assert (tmp_path / "next" / "model.pt").read_text() == kept


def test_kept_places_of_the_jobs_folder_are_there_on_the_next_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = "mkdir -p ckpt; read n <ckpt/n || n=0; echo $((n + 1)) >ckpt/n; cat ckpt/n >>../seen"
    for number in range(3):
        work = tmp_path / f"job-{number}"
        work.mkdir()
        monkeypatch.chdir(work)
        assert node(tmp_path, counts, keep=("ckpt/",)).run() == 0
    assert (tmp_path / "seen").read_text().split() == ["1", "2", "3"]


def test_what_a_program_that_failed_wrote_last_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert node(tmp_path, "echo whole >state", keep=("state",)).run() == 0
    assert node(tmp_path, "exec >state; echo ha; exit 3", keep=("state",)).run() == 3
    assert node(tmp_path, "cp state found", keep=("state",)).run() == 0
    assert (tmp_path / "found").read_text() == "whole\n"


def test_a_kept_file_that_a_program_dies_in_writing_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert node(tmp_path, "echo whole >state", keep=("state",)).run() == 0
    usual = CheckpointSync.look

    def warns(sync: CheckpointSync) -> bool:
        if (tmp_path / "state").read_text() == "ha\n":
            signal.raise_signal(signal.SIGTERM)
            return False
        return usual(sync)

    monkeypatch.setattr(CheckpointSync, "look", warns)
    assert node(tmp_path, "exec >state; echo ha; sleep 1000", keep=("state",)).run() == (
        SAVED_AND_ENDED
    )
    assert node(tmp_path, "cp state found", keep=("state",)).run() == 0
    assert (tmp_path / "found").read_text() == "whole\n"


@pytest.mark.parametrize("code", [0, 3])
def test_a_program_without_a_checkpoint_leaves_a_mark_too(tmp_path: Path, code: int) -> None:
    assert node(tmp_path, f"exit {code}", keeps=False).run() == code
    assert have_ended(str(tmp_path / "kept"), "r.1", 1) is (code == 0)


def test_a_node_of_a_training_becomes_its_command_once_the_data_is_there(tmp_path: Path) -> None:
    (tmp_path / "points").write_text("1 2 3")
    task = NodeTask(
        "node", cache=str(tmp_path / "cache"), data={"DATA_POINTS": str(tmp_path / "points")}
    )
    ended = become(task, "cat $DATA_POINTS")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "1 2 3"
    missing = become(replace(task, data={"DATA_POINTS": str(tmp_path / "nothing")}), "echo began")
    assert (missing.returncode, missing.stdout) == (CANNOT_TRANSFER, "")
    assert "there is no such file or folder" in missing.stderr


def become(task: NodeTask, run: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-P", "-c", NODE, "become", "/bin/sh", "-c", run]
    environment = {**os.environ, TASK_VARIABLE: task.to_json()}
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)


def node(folder: Path, run: str, *, keeps: bool = True, keep: tuple[str, ...] = ()) -> CommandNode:
    policy = None
    if keeps:
        policy = CheckpointPolicy(str(folder / "kept"), None, None, 1.0, 60.0, keep=keep)
    task = NodeTask("r.1", run=run, checkpoint=policy, marks=str(folder / "kept"))
    return CommandNode(task, {MARK: str(folder / "machine"), "PATH": "/bin:/usr/bin"})
