"""Jobs that wait for their turn: they are shown, withdrawn and launched again as jobs that have
begun.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest

from spotctl.log.jobs import runner_of
from tests.samples import LAUNCH, LONG_RUN
from tests.spotctl.cli.test_ctrl_c import started
from tests.spotctl.command_line import spotctl
from tests.spotctl.terminals import terminal
from tests.waiting import PATIENCE_SECONDS, eventually

JOB = """\
name: {name}
kind: command
run: touch {begun}; until [ -e {go} ]; do sleep 0.1; done
hours: 20m
resources: {{clouds: [local], types: [c4.xlarge], regions: [sim-east]}}
local: {{speed: 600}}
"""
NAMES = ("joba", "jobb", "jobc")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Jobs that end once they may, under a quota of one machine."""
    monkeypatch.setenv("SPOTCTL_QUOTAS", "local/*/c4=4")
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    made = [tmp_path / f"{name}.yaml" for name in NAMES]
    for file in made:
        name = file.stem
        file.write_text(
            JOB.format(name=name, begun=tmp_path / f"{name}.begun", go=tmp_path / f"{name}.go")
        )
    return made


@contextmanager
def launched(files: list[Path], form: str = "--json") -> Iterator[Popen[str]]:
    """The launch of all jobs, of which the first one has begun."""
    with started("launch", *files, "--yes", form) as process:
        began(files[0])
        yield process


def began(file: Path) -> None:
    eventually(file.with_suffix(".begun").exists)


def may_end(file: Path) -> None:
    file.with_suffix(".go").touch()


def ended(process: Popen[str]) -> tuple[dict[str, str], str]:
    """The outcome of each job, and what the launch printed on stderr; its exit code is 0."""
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, err
    if out.startswith("["):
        return {(job["run"] or job["job"])[:4]: job["outcome"] for job in json.loads(out)}, err
    lines = map(json.loads, out.splitlines())
    return {
        line["job"]: line["fields"]["outcome"] for line in lines if line["event"] == "Answer"
    }, err


@LONG_RUN
def test_waiting_jobs_are_shown_withdrawn_and_begun(files: list[Path]) -> None:
    """A job that is stopped makes room for the next one; a job that waits can be neither launched
    nor resumed.
    """
    with launched(files) as process:
        shown = spotctl("status", "--json").json
        assert [job["name"] for job in shown["jobs"]] == ["joba"]
        waits = {job["name"]: (job["state"], job["after"]) for job in shown["waiting"]}
        assert waits == {"jobb": ("waiting", ["joba"]), "jobc": ("waiting", ["joba", "jobb"])}
        assert (
            "job jobc waits for joba and jobb, probably until 20" in spotctl("status", "jobc").out
        )
        assert spotctl("launch", files[1], "--yes", SPOTCTL_QUOTAS="local/*/c4=8").code == 6
        refused = spotctl("resume", "jobc")
        assert refused.code == 2
        assert "job jobc has not begun" in refused.err
        withdrawn = spotctl("stop", "jobc", "--json")
        assert (withdrawn.code, withdrawn.json["outcome"], withdrawn.json["run"]) == (
            0,
            "withdrawn",
            None,
        )
        assert spotctl("stop", "joba").code == 0
        began(files[1])
        may_end(files[1])
        outcomes, err = ended(process)
    assert outcomes == {"joba": "stopped", "jobb": "done", "jobc": "withdrawn"}
    assert "jobc: withdrawn before it began; nothing was rented" in err
    assert spotctl("status", "--json").json["waiting"] == []


@LAUNCH
def test_a_launcher_that_is_asked_to_end_withdraws_the_jobs_that_wait(files: list[Path]) -> None:
    with launched(files, "--json-lines") as process:
        process.send_signal(signal.SIGTERM)
        outcomes, _ = ended(process)
    assert outcomes == {"joba": "stopped", "jobb": "withdrawn", "jobc": "withdrawn"}


@LAUNCH
def test_the_end_of_all_jobs_withdraws_those_that_wait(files: list[Path]) -> None:
    with launched(files) as process:
        down = spotctl("stop", "--all", "--json")
        assert [job["outcome"] for job in json.loads(down.out)] == [
            "stopped",
            "withdrawn",
            "withdrawn",
        ]
        outcomes, _ = ended(process)
    assert outcomes == {"joba": "stopped", "jobb": "withdrawn", "jobc": "withdrawn"}


@LAUNCH
def test_jobs_whose_launcher_was_killed_begin_at_their_turn(files: list[Path]) -> None:
    """`resume` waits for the end of an interrupted run, whoever ends it; a job can be withdrawn
    until then.
    """
    with launched(files) as process:
        process.kill()
        process.wait()
    shown = spotctl("status").out
    assert (
        "job jobb has not begun, and its launcher is gone: 'spotctl resume jobb' begins it once it "
        "is" in shown
    )
    states = [job["state"] for job in spotctl("status", "--json").json["waiting"]]
    assert states == ["not begun", "not begun"]
    with (
        started("resume", "jobc", "--json") as last,
        started("resume", "jobb", "--json") as process,
    ):
        eventually(
            lambda: (
                [job["state"] for job in spotctl("status", "--json").json["waiting"]]
                == ["waiting"] * 2
            )
        )
        assert spotctl("resume", "jobb").code == 2
        assert spotctl("stop", "jobc").code == 0
        out, err = last.communicate(timeout=PATIENCE_SECONDS)
        assert (last.returncode, json.loads(out)["outcome"]) == (0, "withdrawn"), err
        assert not files[1].with_suffix(".begun").exists()
        assert spotctl("stop", "joba").code == 0
        began(files[1])
        may_end(files[1])
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, json.loads(out)["outcome"]) == (0, "done"), err
    assert "waits for joba, which no process attends to: its machines end with their leases" in err
    assert spotctl("status", "--json").json["waiting"] == []


@LAUNCH
def test_a_window_names_the_jobs_whose_runner_was_killed(files: list[Path], tmp_path: Path) -> None:
    with terminal("launch", *files, "--yes") as window:
        window.wait_for("jobc: waits for joba and jobb")
        began(files[0])
        process = runner_of(tmp_path / "home" / "locks", "joba")
        assert process is not None
        os.kill(process, signal.SIGKILL)
        assert window.exit_code() != 0
    assert "job jobb has not begun, and its launcher is gone" in " ".join(window.screen.split())
    assert spotctl("stop", "--all").code == 0
    assert spotctl("status", "--json").json["waiting"] == []
