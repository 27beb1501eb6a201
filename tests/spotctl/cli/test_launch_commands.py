"""Command jobs on the local market: real programs in real processes, with evictions."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spotctl.log import events as ev
from spotctl.log.store import EventLog
from tests.samples import LAUNCH
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.waiting import eventually

JOB = """\
name: counting
kind: command
run: {run}
resources: {{clouds: [local], types: [c4.2xlarge]}}
local: {{speed: 600, start: 2026-01-15T00:10:00Z, warning: 20m, unwarned: 0}}
"""

COUNT = """
import json, os, signal, sys, time
from pathlib import Path
folder, last = Path(os.environ["SPOTCTL_CHECKPOINT_DIR"]), int(sys.argv[1])
kept = folder / "step"
step = int(kept.read_text()) if kept.exists() else 0
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
# With "stay", the first attempt lasts until its machine is evicted, however fast the computer is.
stays = sys.argv[2:] == ["stay"] and os.environ["SPOTCTL_ATTEMPT"] == "1"
print("from", step, os.environ["SPOTCTL_ATTEMPT"], flush=True)
while step < last or stays:
    time.sleep(0.02)
    step += 1
    if asked or step % 10 == 0:
        (folder / ".step").write_text(str(step))
        (folder / ".step").rename(kept)
    if asked:
        sys.exit(0)
Path(os.environ["OUTPUT_RESULT"], "steps").write_text(str(step))
Path(os.environ["OUTPUT_RESULT"], "environment.json").write_text(json.dumps(dict(os.environ)))
"""

# Two nodes that depend on each other: each sends its step to the other before the next one.
PAIR = """
import os, signal, socket, sys, time
from pathlib import Path
rank, where = int(os.environ["SPOTCTL_NODE_RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
folder = Path(os.environ["SPOTCTL_CHECKPOINT_DIR"])
kept = folder / "step"
step = int(kept.read_text()) if kept.exists() else 0
def save(*_):
    if rank == 0:
        (folder / ".step").write_text(str(step))
        (folder / ".step").rename(kept)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("rank", rank, "of", os.environ["WORLD_SIZE"], "from", step, flush=True)
if rank == 0:
    mate = socket.create_server(where).accept()[0]
else:
    while True:
        try:
            mate = socket.create_connection(where)
            break
        except OSError:
            time.sleep(0.02)
stream = mate.makefile("rw")
while step < 40:
    time.sleep(0.05)
    stream.write(f"{step}\\n")
    stream.flush()
    assert int(stream.readline()) == step
    step += 1
Path(os.environ["OUTPUT_RESULT"], "steps").write_text(f"{rank} {step}")
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The home of runs; fails if a process survives the test."""
    yield tmp_path / "home"
    remaining = [
        words
        for process in Path("/proc").glob("[0-9]*")
        if str(tmp_path) in (words := _words(process))
    ]
    assert not remaining


def _words(process: Path) -> str:
    try:
        about = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        return about.replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def job(folder: Path, program: str, *lines: str, words: str = "") -> Path:
    (folder / "program.py").write_text(program)
    run = f"{sys.executable} program.py {words}".strip()
    path = folder / "job.yaml"
    path.write_text(JOB.format(run=json.dumps(run)) + "".join(f"{line}\n" for line in lines))
    return path


def events_of(home: Path) -> list[ev.Event]:
    with EventLog(home / "log.sqlite") as log:
        return [row.event for begun in log.beginnings()[-1:] for row in log.of_run(begun.run)]


def launched(path: Path) -> subprocess.Popen[bytes]:
    return started("launch", str(path), "--yes")


def started(*words: str) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-c", "from spotctl.cli.app import main; main()", *words]
    return subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def beginnings() -> list[str]:
    return [
        line.split(": ", 1)[1]
        for line in spotctl("logs", "counting").out.splitlines()
        if " from " in line and "spotctl:" not in line
    ]


@pytest.mark.slow
def test_a_command_resumes_from_its_checkpoint_on_other_machines(
    tmp_path: Path, home: Path
) -> None:
    (tmp_path / "ratings").mkdir()
    (tmp_path / "ratings" / "part").write_text("5 stars")
    path = job(
        tmp_path,
        COUNT,
        "checkpoint: {path: kept, every: auto}",
        "outputs: {result: results}",
        "data: {ratings: ratings}",
        "setup: test -f $DATA_RATINGS/part && echo prepared",
        "strategy: proteus",
        words="100 stay",
    )
    ended = spotctl("launch", path, "--yes", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["evictions"] > 0
    assert int((tmp_path / "results" / "steps").read_text()) >= 100
    _check_environment(json.loads((tmp_path / "results" / "environment.json").read_text()), home)
    events = events_of(home)
    attempts = [event for event in events if isinstance(event, ev.AttemptBegan)]
    checkpoints = [event for event in events if isinstance(event, ev.Checkpointed)]
    assert len(attempts) > 1
    assert any(
        "will be evicted" in event.reason
        for event in events
        if isinstance(event, ev.AttemptStopped)
    )
    assert checkpoints == sorted(checkpoints, key=lambda one: one.number)
    assert all(one.every_seconds >= 1 for one in checkpoints)
    # With a checkpoint, no attempt starts from scratch.
    kept_before = [one for one in checkpoints if one.attempt < attempts[-1].attempt]
    assert (max(int(line.split()[1]) for line in beginnings()) > 0) is bool(kept_before)
    assert len(list((home / "cache").glob("[!.]*"))) == 1


def _check_environment(environment: dict[str, Any], home: Path) -> None:
    identity = [environment[f"SPOTCTL_{name}"] for name in ("NODES", "NODE_RANK", "JOB")]
    assert identity == ["1", "0", "counting"]
    addresses = {
        environment[name]
        for name in ("MASTER_ADDR", "SPOTCTL_NODE_ADDRESS", "SPOTCTL_NODE_ADDRESSES")
    }
    assert addresses == {"127.0.0.1"}
    assert int(environment["MASTER_PORT"]) > 1024
    # Scripts that find some of the variables of torchrun expect all of them.
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"} & environment.keys()
    assert float(environment["SPOTCTL_CHECKPOINT_EVERY"]) > 0
    assert Path(environment["DATA_RATINGS"]).is_relative_to(home / "cache")


def test_a_failing_setup_is_reported_in_one_line(tmp_path: Path, home: Path) -> None:
    path = job(tmp_path, COUNT, "setup: echo no such package; exit 9", "strategy: on-demand")
    ended = spotctl("launch", path, "--yes", "--json")
    assert ended.code == 1
    assert (
        ended.json["message"] == "setup failed on 2 machines, last with status 9: no such package"
    )
    failed = [event for event in events_of(home) if isinstance(event, ev.SetupFailed)]
    assert len({event.id for event in failed}) == len(failed) == 2
    assert not any(isinstance(event, ev.AttemptBegan) for event in events_of(home))


def test_a_command_is_tried_again_after_the_failures_that_its_job_names(
    tmp_path: Path, home: Path
) -> None:
    """It is killed once, which may be repeated, and then its program is missing, which may not."""
    ran = tmp_path / "ran"
    program = f"""
import pathlib, subprocess, sys
if not pathlib.Path({str(ran)!r}).exists():
    pathlib.Path({str(ran)!r}).touch()
    print("out of memory")
    sys.exit(137)
sys.exit(subprocess.run("no-such-program", shell=True).returncode)
"""
    path = job(tmp_path, program, "retries: {137: 2, setup: 0}", "strategy: on-demand")
    ended = spotctl("launch", path, "--yes", "--json")
    assert ended.code == 1
    assert "the command exited with status 127 on" in ended.json["message"]
    assert "no-such-program" in ended.json["message"]
    (stopped,) = (event for event in events_of(home) if isinstance(event, ev.AttemptStopped))
    assert (stopped.code, "out of memory; retry 1 of 2" in stopped.reason) == (137, True)
    assert len([event for event in events_of(home) if isinstance(event, ev.RentIntended)]) == 1


@LAUNCH
@pytest.mark.slow
def test_a_gang_resumes_together_after_losing_a_machine(tmp_path: Path, home: Path) -> None:
    path = job(
        tmp_path,
        PAIR,
        "nodes: 2",
        "checkpoint: {path: kept}",
        "outputs: {result: results}",
        "strategy: on-demand",
    )
    with launched(path) as launcher:
        eventually(lambda: len(beginnings()) == 2)
        time.sleep(0.5)
        _kill_a_machine(home)
        assert launcher.wait(300) == 0
    events = events_of(home)
    first, second = (event.machines for event in events if isinstance(event, ev.AttemptBegan))
    assert len(set(first) & set(second)) == 1, "the surviving machine resumes with a new one"
    assert (tmp_path / "results" / "steps").read_text() == "0 40"
    assert (tmp_path / "results" / "node-1" / "steps").read_text() == "1 40"
    lines = beginnings()
    assert [line.split(" from")[0] for line in sorted(lines)] == ["rank 0 of 2"] * 2 + [
        "rank 1 of 2"
    ] * 2
    again = {line.split()[-1] for line in lines} - {"0"}
    assert len(again) <= 1, "all resume from the same step"


def _kill_a_machine(home: Path) -> None:
    """The last of the gang, so that the first still saves."""
    folder = sorted((home / "local" / "machines").glob("*/1"))[0]
    os.kill(json.loads((folder / "state.json").read_text())["pid"], signal.SIGKILL)


@LAUNCH
@pytest.mark.slow
def test_a_stopped_job_resumes_and_a_finished_one_starts_from_scratch(
    tmp_path: Path,
    home: Path,  # noqa: ARG001
) -> None:
    lines = ("checkpoint: {path: kept}", "outputs: {result: results}", "strategy: on-demand")
    path = job(tmp_path, COUNT, *lines, words="60 stay")
    begun: list[int] = []

    def steps() -> int:
        return int(beginnings()[-1].split()[1])

    with launched(path) as launcher:
        eventually(lambda: list((tmp_path / "kept").rglob("*.record")))
        assert spotctl("stop", "counting").code == 0
        assert launcher.wait(300) == 0
    begun.append(steps())
    path = job(tmp_path, COUNT, *lines, words="60")
    for _ in range(2):
        ended = spotctl("launch", path, "--yes", "--json")
        assert ended.code == 0, ended.err
        begun.append(steps())
        again = spotctl("stop", "counting")
        assert (again.code, again.out) == (0, "")
        assert re.fullmatch(
            r"counting-\w+ ended at \S+ \(done\); nothing is left to stop\n", again.err
        )
    assert begun[0] == begun[2] == 0 < begun[1]
    assert (tmp_path / "results" / "steps").read_text() == "60"


@LAUNCH
@pytest.mark.slow
def test_a_command_survives_its_launcher_and_is_not_started_twice(
    tmp_path: Path, home: Path
) -> None:
    path = job(
        tmp_path,
        PAIR,
        "nodes: 2",
        "setup: sleep 0.3",
        "checkpoint: {path: kept}",
        "outputs: {result: results}",
        "strategy: on-demand",
    )
    launcher = launched(path)

    def milestones() -> int:
        """Rented machines and the start of the program."""
        return len([one for one in events_of(home) if isinstance(one, ev.Rented | ev.AttemptBegan)])

    for count in (1, 2):
        eventually(lambda: milestones() >= count)  # noqa: B023
        time.sleep(0.2)
        launcher.kill()
        launcher.wait()
        launcher = started("resume", "counting")
    assert launcher.wait(300) == 0
    events = events_of(home)
    # On a computer so busy that a resume takes longer than a lease, the machines end and others
    # replace them.
    expired = [
        event
        for event in events
        if isinstance(event, ev.MachineEnded) and event.reason == "lease ended"
    ]
    assert sum(len(event.machines) for event in events if isinstance(event, ev.Rented)) == 2 + len(
        expired
    )
    attempts = sum(isinstance(event, ev.AttemptBegan) for event in events)
    assert attempts <= 1 + len(expired) // 2
    # Machines may have ended before the program said anything.
    assert 2 <= len(beginnings()) <= 2 * attempts
    assert (tmp_path / "results" / "steps").read_text() == "0 40"


@LAUNCH
def test_several_jobs_run_concurrently_and_the_worst_exit_code_counts(
    tmp_path: Path, home: Path, approved: Approved
) -> None:
    good = job(
        tmp_path, COUNT, "checkpoint: {path: kept}", "outputs: {result: results}", words="60"
    )
    bad = tmp_path / "bad.yaml"
    other = JOB.format(run='"sleep 1; exit 7"').replace("name: counting", "name: failing")
    bad.write_text(other.replace("start: 2026-01-15T00:10:00Z", "start: 2026-01-20T00:00:00Z"))
    assert [one["job"] for one in spotctl("launch", good, bad, "--dry-run", "--json").json] == [
        "counting",
        "failing",
    ]
    ended = spotctl("launch", good, bad, "--yes", "--json")
    assert ended.code == 1
    assert [one["outcome"] for one in ended.json] == ["done", "failed"]
    with EventLog(home / "log.sqlite") as log:
        runs = [log.of_run(row.run) for row in log.beginnings()]
    (first, second), (ended_first, ended_second) = ([rows[i].at for rows in runs] for i in (0, -1))
    assert max(first, second) < min(ended_first, ended_second), "they ran concurrently"
    twice = spotctl("launch", good, good, "--yes")
    approved(twice)


@pytest.mark.parametrize(
    "line",
    [
        "checkpoint: {path: 's3://bucket/ckpt/'}",
        "data: {ratings: 'gs://bucket/x'}",
        "outputs: {model: 'az://box/x'}",
        "data: {ratings: nowhere}",
    ],
)
def test_unreachable_locations_are_refused_before_anything_is_rented(
    tmp_path: Path, home: Path, line: str, approved: Approved
) -> None:
    file = job(tmp_path, COUNT, line)
    refused = spotctl("launch", file, "--yes")
    approved(refused)
    assert not (home / "log.sqlite").exists()


def test_data_that_is_no_file_is_refused_before_anything_is_rented(
    tmp_path: Path, home: Path
) -> None:
    """A FIFO would wait for a writer for ever, and a device has no end."""
    (tmp_path / "corpus").mkdir()
    os.mkfifo(tmp_path / "corpus" / "pipe")
    for place, what in (
        ("corpus", f"{tmp_path}/corpus/pipe"),
        ("corpus/pipe", "pipe"),
        ("/dev/zero", "/dev/zero"),
    ):
        refused = spotctl("launch", job(tmp_path, COUNT, f"data: {{d: {place}}}"), "--yes")
        assert (refused.code, what in refused.error) == (2, True), refused.error
        assert "is no file, folder or link" in refused.error
    assert not (home / "log.sqlite").exists()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_closed_standard_streams_break_no_command(tmp_path: Path, home: Path, closed: str) -> None:
    """Daemons close them. Without a terminal, a launch asks for --yes."""
    command = (
        f"{shlex.quote(sys.executable)} -m spotctl --home {shlex.quote(str(home))} launch job.yaml "
        f"{closed}"
    )
    job(tmp_path, COUNT)
    ended = subprocess.run(
        ["sh", "-c", command], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert ended.stderr.endswith(
        "" if closed == "2>&-" else "pass --yes; spotctl plan shows the plan only\n"
    )


class TestLaunches:
    """Sweeps, runs that have ended, and checkpoints of other jobs."""

    def test_each_value_is_a_job_and_one_stop_names_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
        job = tmp_path / "job.yaml"
        job.write_text(JOB.format(run="echo lr is $lr") + "outputs: {result: out}\n")
        ended = spotctl("launch", job, "--sweep", "lr=1e-3,1e-4", "--yes", "--json")
        runs = [ending["run"] for ending in ended.json]
        assert [run.rpartition("-")[0] for run in runs] == ["counting-lr-1e-3", "counting-lr-1e-4"]
        for lr in ("1e-3", "1e-4"):
            assert f"lr is {lr}" in spotctl("logs", f"counting-lr-{lr}").out
        assert spotctl("stop", "counting-lr-*", "--json").json == []

    def test_a_run_that_has_ended_is_shown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
        job = tmp_path / "job.yaml"
        job.write_text(JOB.format(run="'exit 3'"))
        assert spotctl("launch", job, "--yes").code == 1
        ended = spotctl("resume", "counting")
        assert (ended.code, "nothing is left to resume" in ended.err) == (1, True)
        assert "failed" in ended.out

    def test_a_launch_says_at_whose_checkpoint_it_begins(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
        saves = "echo 1 > $SPOTCTL_CHECKPOINT_DIR/step; exit 3"
        text = JOB.format(run=f"'{saves}'") + "checkpoint: {path: kept}\n"
        job = tmp_path / "job.yaml"
        job.write_text(text)
        first = spotctl("launch", job, "--yes")
        assert (first.code, "begins at" in first.err) == (1, False)

        job.write_text(text.replace("counting", "other"))
        second = spotctl("launch", job, "--dry-run")
        said = " ".join(second.err.split())
        place = tmp_path / "kept"
        assert re.search(rf"other: begins at the checkpoint at {place} of run counting-\w+", said)
        assert "begins at" not in spotctl("launch", job, "--dry-run", "--fresh").err

    def test_a_plan_counts_the_work_that_an_earlier_run_has_left(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A script fails after 15 saves, then after 15 more; with other hours, it is other work."""
        monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
        saves = "for n in $(seq 15); do echo $n > $SPOTCTL_CHECKPOINT_DIR/n; sleep 0.2; done"
        text = JOB.format(run=f"'{saves}; exit 3'") + "checkpoint: {path: kept}\nhours: 20h\n"
        job = tmp_path / "job.yaml"
        job.write_text(text)
        left = [100]
        for _ in range(2):
            assert spotctl("launch", job, "--yes").code == 1
            planned = " ".join(spotctl("plan", job).err.split())
            left += map(int, re.findall(r"; (\d+)% of 20h of work are left", planned))
        assert left[2] < left[1] < left[0]

        job.write_text(text.replace("20h", "30h"))
        changed = spotctl("plan", job, "--json")
        assert "the plan counts the whole work" in " ".join(changed.err.split())
