"""Starts of a command that still runs, and the checkpoints that it wrote."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pricing_data.units import SECOND
from spotctl.files.job.programs import Command
from spotctl.files.job.reader import load
from spotctl.planning.candidates import saves_of
from spotctl.planning.values import Job
from spotctl.trials.rehearsal import rehearse
from spotctl.trials.seen_work import WorkMark
from spotctl.trials.starts import TrialTerms, written_at
from tests.spotctl.launches import command, processes

pytestmark = pytest.mark.usefixtures("few_windows")


def test_a_command_that_still_runs_has_passed_and_leaves_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path_factory.mktemp("scratch")
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    checks = 'echo x > made && [ -d "$SPOTCTL_CHECKPOINT_DIR" ] && [ -d "$OUTPUT_MODEL" ]'
    checks += ' && [ "$SPOTCTL_NODES$SPOTCTL_NPROC_PER_NODE" = 11 ]'
    path = command(tmp_path, f"{checks} && (sleep 1000 & exec sleep 1000) || exit 9")
    path.write_text(path.read_text() + "outputs: {model: out}\n")
    before = sorted(tmp_path.iterdir())
    rehearse(load(path), tmp_path / "cache", TrialTerms(2.0), print)
    assert sorted(tmp_path.iterdir()) == before
    assert not processes(scratch)
    assert not list(scratch.iterdir())


def test_a_command_is_planned_with_the_checkpoints_that_it_wrote(tmp_path: Path) -> None:
    """Each is 3 MB, written bit by bit under another name; the last one is written on SIGTERM."""
    save = (
        "cd $SPOTCTL_CHECKPOINT_DIR;"
        " save() { for i in $(seq 20); do head -c 150000 /dev/zero >> .new; sleep 0.05; done; mv "
        ".new model; }"
    )
    path = command(
        tmp_path, f"{save}; trap 'save; exit 75' TERM; save; while :; do sleep 0.2; done"
    )
    path.write_text(path.read_text() + f"checkpoint: {{path: {tmp_path / 'kept'}, every: 10m}}\n")
    said = list[str]()
    seen = rehearse(load(path), tmp_path / "cache", TrialTerms(10.0), said.append)[0].program
    assert isinstance(seen, Command)
    assert seen.checkpoint is not None
    assert seen.checkpoint.size == 3_000_000
    assert seen.checkpoint.takes is not None
    assert seen.checkpoint.takes > 0.9 * SECOND
    (line,) = said
    assert re.search(r"wrote \d+ checkpoints? here, of 3 MB", line)
    again = load(path)
    stated = replace(seen, checkpoint=replace(seen.checkpoint, takes=7 * SECOND))
    assert (
        rehearse(replace(again, program=stated), tmp_path / "cache", TrialTerms(2.0), print)[
            0
        ].program
        == stated
    ), "the file's stays"
    assert saves_of(Job(replace(again, program=stated)))[1] == 7 * SECOND * again.local.speed


def test_a_file_is_written_when_it_gets_its_name_and_not_when_it_loses_another(
    tmp_path: Path,
) -> None:
    """The last checkpoint is written under another name, and is also that of its epoch."""
    last, other = tmp_path / "last.pt", tmp_path / "epoch-1.pt"
    (tmp_path / "new").write_text("state")
    (tmp_path / "new").rename(last)
    named = time.monotonic()
    os.link(last, other)
    os.utime(last, (1.0, 1.0))
    now = last.stat()
    file = (last.name, now.st_size, now.st_mtime_ns, now.st_ino)
    marks = [WorkMark("done", named, str(last)), WorkMark("save", named + 60.0, str(last))]
    other.unlink()
    assert written_at(file, last, marks) == named
    ahead = time.time() - time.monotonic()
    # Its own times are all that is known of a program that is not Python.
    assert written_at(file, last, ()) >= now.st_ctime_ns / 1e9 - ahead - 1.0
    assert abs(written_at(file, last, marks[1:]) - (1.0 - ahead)) < 1.0
