"""`launch --rehearse`: what fails within seconds on this computer fails before anything is
rented."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pricing_data.units import SECOND
from spotctl.files.job.programs import Command
from spotctl.files.job.reader import load
from spotctl.home.errors import BadRequest
from spotctl.planning.candidates import save_time
from spotctl.planning.values import Job
from spotctl.trials.rehearsal import rehearse
from spotctl.trials.starts import TrialTerms
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import command, processes, training

pytestmark = pytest.mark.usefixtures("few_windows")


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (
            "python3 -c 'import no_such_module'",
            "status 1: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("cat missing.csv", "No such file or directory"),
        ("cat left_out.txt", "No such file or directory"),
        ("exit 3", "status 3: it printed nothing"),
        ("echo the key is hush-hush; exit 1", r"status 1: the key is \*\*\*"),
    ],
)
def test_a_command_that_fails_is_refused_with_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str, why: str
) -> None:
    monkeypatch.setenv("KEY", "hush-hush")
    (tmp_path / "left_out.txt").touch()
    (tmp_path / ".spotctlignore").write_text("left_out.txt\n")
    path = command(tmp_path, run)
    path.write_text(path.read_text() + "secrets: [KEY]\n")
    with pytest.raises(BadRequest, match=f"small: the trial on this computer failed with .*{why}"):
        rehearse(load(path), tmp_path / "cache", TrialTerms(60.0), print)


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
    assert save_time(Job(replace(again, program=stated))) == 7 * SECOND * again.local.speed


def test_a_setup_is_not_run_and_the_message_says_so(tmp_path: Path) -> None:
    path = command(tmp_path, "[ -e installed ]")
    path.write_text(path.read_text() + "setup: touch installed\n")
    with pytest.raises(
        BadRequest, match="status 1: it printed nothing; --rehearse does not run the setup"
    ):
        rehearse(load(path), tmp_path / "cache", TrialTerms(60.0), print)


def test_a_trainer_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    rehearse(load(training(tmp_path)), tmp_path / "cache", TrialTerms(), print)
    path = training(tmp_path)
    (tmp_path / "mine.py").write_text("import no_such_module\n")
    path.write_text(path.read_text().replace("app: mf", "app: mine.py").replace("rank: 4, ", ""))
    with pytest.raises(BadRequest, match="no_such_module"):
        rehearse(load(path), tmp_path / "cache", TrialTerms(), print)


def test_nothing_is_created_by_a_launch_whose_rehearsal_fails(tmp_path: Path) -> None:
    refused = spotctl("launch", command(tmp_path, "cat missing.csv"), "--yes", "--rehearse")
    assert refused.code == 2
    *_, line = refused.err.splitlines()
    assert line.startswith(
        "spotctl: small: the trial on this computer failed with status 1: cat: missing.csv"
    )
    assert not (tmp_path / "home" / "log.sqlite").exists()


def test_a_launch_goes_on_after_its_rehearsal(tmp_path: Path) -> None:
    ended = spotctl("launch", command(tmp_path, "echo x >> made"), "--yes", "--rehearse")
    assert ended.code == 0
    assert (tmp_path / "made").read_text() == "x\n", "only the run itself has written here"


def test_containers_are_not_rehearsed(tmp_path: Path) -> None:
    path = command(tmp_path, "true")
    path.write_text(path.read_text() + "image: {container: docker.io/library/python:3.12}\n")
    with pytest.raises(BadRequest, match="--rehearse runs no containers"):
        rehearse(load(path), tmp_path / "cache", TrialTerms(), print)
