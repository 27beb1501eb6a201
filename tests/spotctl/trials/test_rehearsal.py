"""`launch --rehearse`: what fails within seconds on this computer fails before anything is
rented."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from spotctl.files.job.reader import load
from spotctl.home.errors import BadRequest
from spotctl.trials import rehearsal
from spotctl.trials.rehearsal import rehearse
from spotctl.trials.starts import TrialTerms
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import command, training

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


@dataclass
class Importing:
    """A start that imports modules, or works."""

    imports: bool

    def is_importing(self) -> bool:
        return self.imports


def test_time_of_imports_does_not_count_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [0.0], list[str]()
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    ground = SimpleNamespace(spec=None, terms=TrialTerms(60.0))
    trial = rehearsal._CommandTrial(ground, said.append)  # type: ignore[arg-type]
    counted = []
    for imports, until in ((True, 30.0), (False, 40.0), (True, 1000.0)):
        now[0] = until
        trial._count(Importing(imports), [])  # type: ignore[arg-type]
        trial._checked = until
        counted.append(trial._time())
    assert counted == [0.0, 10.0, 1000.0 - 4 * 60.0]
    assert len(said) == 1


def test_time_without_a_processor_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, waits = [0.0], tmp_path / "7" / "schedstat"
    waits.parent.mkdir()
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(rehearsal, "_PROC", tmp_path)
    ground = SimpleNamespace(spec=None, terms=TrialTerms(60.0))
    trial = rehearsal._CommandTrial(ground, print)  # type: ignore[arg-type]
    for seconds, waited in ((1.0, 0.0), (11.0, 8.0)):
        waits.write_text(f"5 {round(waited * 1e9)} 3\n")
        now[0] = seconds
        trial._count(Importing(False), [7, 8])  # type: ignore[arg-type]
        trial._checked = seconds
    assert trial._time() == 3.0
