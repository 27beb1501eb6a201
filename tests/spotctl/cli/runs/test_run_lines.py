"""`launch --output script` and `--json-lines`: lines on stdout while runs go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spotctl.log.ledger.same_work import final_figures
from tests.samples import WINDOW
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import command, state_of
from tests.spotctl.terminals import terminal

pytestmark = pytest.mark.usefixtures("few_windows")

PRINTS = r"echo one; printf 'two\033[2J\n' >&2; echo three; exit 3"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def own_lines(home: Path) -> list[str]:
    """The lines with their machine: the last one, as others may have been evicted before they
    printed.
    """
    machine = max(state_of(home).machines.values(), key=lambda held: held.started).id
    return [f"{machine}: {text}" for text in ("one", r"two\x1b[2J", "three")]


def test_a_script_s_own_lines_have_their_machine(tmp_path: Path, home: Path) -> None:
    ended = spotctl("launch", command(tmp_path, PRINTS), "--yes", "--output", "script")
    assert ended.code == 1
    lines = ended.out.splitlines()
    end = lines.index(own_lines(home)[-1]) + 1
    assert lines[end - 3 : end] == own_lines(home)
    assert lines[end].startswith(f"{state_of(home).run}: failed")
    assert "rented 1 x c4.2xlarge" in ended.err


@WINDOW
def test_a_window_shows_them_too(tmp_path: Path, home: Path) -> None:
    with terminal("launch", command(tmp_path, PRINTS), "--yes", "--output", "script") as window:
        assert window.exit_code() == 1
    assert all(line in window.screen for line in own_lines(home))


def test_each_event_is_a_line_of_json_and_the_answer_is_the_last(
    tmp_path: Path, home: Path
) -> None:
    ended = spotctl("launch", command(tmp_path, PRINTS), "--yes", "--json-lines")
    assert ended.code == 1
    lines = [json.loads(line) for line in ended.out.splitlines()]
    state = state_of(home)
    assert state.ended is not None
    assert {(line["job"], line["run"]) for line in lines} == {("small", state.run)}
    events = [line["event"] for line in lines]
    assert events[0] == "RunBegan"
    assert {"RentIntended", "Rented", "AttemptBegan", "StopRequested", "MachineEnded"} <= set(
        events
    )
    assert events[-2:] == ["RunEnded", "Answer"]
    assert lines[-1]["fields"] == final_figures(state, state.ended)


@WINDOW
def test_the_lines_of_several_jobs_name_them(tmp_path: Path) -> None:
    paths = []
    for name in ("first", "second"):
        path = command(tmp_path, f"echo I am {name}").rename(tmp_path / f"{name}.yaml")
        path.write_text(path.read_text().replace("small", name))
        paths.append(path)
    ended = spotctl("launch", *paths, "--yes", "--output", "script")
    assert ended.code == 0
    for name in ("first", "second"):
        (line,) = (line for line in ended.out.splitlines() if line.endswith(f": I am {name}"))
        assert line.startswith(f"{name} ")
    answers = [
        line
        for text in spotctl("launch", *paths, "--yes", "--json-lines").out.splitlines()
        if (line := json.loads(text))["event"] == "Answer"
    ]
    assert {answer["job"] for answer in answers} == {"first", "second"}


def test_a_refused_job_prints_no_line(tmp_path: Path) -> None:
    path = command(tmp_path, "true")
    path.write_text(path.read_text().replace("c4.2xlarge", "no.such"))
    refused = spotctl("launch", path, "--yes", "--json-lines")
    assert (refused.code, refused.out) == (2, "")
