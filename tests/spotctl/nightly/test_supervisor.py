"""The script that starts nights: it records and reports what could not start, without Python."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import time
from pathlib import Path

import pytest

from spotctl.nightly.schedulers import service, service_unit, timer, timer_unit
from spotctl.nightly.state_dir import SLOTS
from tests.spotctl.nightly.hooks import Hook, hook
from tests.spotctl.nightly.timers import Supervised, program, without
from tests.waiting import eventually

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")

IMPORT_ERROR = (
    'echo "Traceback:" >&2; echo "ModuleNotFoundError: No module named \'spotctl\'" >&2; exit 1'
)

FAULTS = {
    "no program": ("", 127, "could not begin", "does not exist or cannot be run"),
    "an interpreter that does not start": (
        "#!/nowhere/python\n",
        127,
        "could not begin",
        "cannot be run",
    ),
    "an import error": (
        IMPORT_ERROR,
        1,
        "could not begin",
        "exit status 1: ModuleNotFoundError: No module named spotctl",
    ),
    "damaged settings": (
        f'[ "$2" = -c ] || echo "x = = 1" > "$5/config.toml"; exec "{sys.executable}" "$@"',
        2,
        "could not begin",
        "config.toml: not valid TOML",
    ),
    "a kill": (
        "kill -9 $$",
        137,
        "interrupted",
        "killed by signal 9 (KILL); the next start resumes the run",
    ),
    "a crash": ("kill -SEGV $$", 139, "interrupted", "killed by signal 11 (SEGV)"),
}


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as one:
        yield one


@pytest.fixture
def job(tmp_path: Path) -> Supervised:
    job = Supervised(tmp_path / "it's" / "home", program(tmp_path / "bin" / "python", "exit 0"))
    job.install()
    return job


def addresses(receiver: Hook) -> str:
    return f"webhook={receiver.url}\nheartbeat={receiver.url}/beat\n"


@needs_curl
@pytest.mark.parametrize("fault", FAULTS)
def test_a_start_that_python_cannot_report_is_recorded_and_reported(
    job: Supervised, receiver: Hook, fault: str
) -> None:
    text, status, outcome, why = FAULTS[fault]
    job.install(addresses(receiver))
    job.program.unlink()
    if text.startswith("#!"):
        job.program.write_text(text)
        job.program.chmod(0o755)
    elif text:
        program(job.program, text)
    ended = job.start()
    assert ended.returncode == status
    assert why in ended.stdout
    (sent,) = receiver.got
    assert why in sent["text"]
    assert sent["facts"]["event"] == "night failed"
    assert (sent["facts"]["name"], sent["facts"]["outcome"]) == ("small", outcome)
    assert [path.rpartition("/beat")[2] for path in receiver.beats] == ["/fail"]
    latest = job.latest
    assert (latest.number, latest.status, latest.reported) == (1, status, True)
    assert why in latest.why


def test_a_good_start_is_recorded_and_not_reported(job: Supervised, receiver: Hook) -> None:
    job.install(addresses(receiver))
    program(job.program, f'echo "$SPOTCTL_NIGHT_START $*" >> {job.home.parent.parent}/words')
    for number in (1, 2):
        ended = job.start()
        assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
        assert (job.latest.number, job.latest.status) == (number, 0)
        words = (job.home.parent.parent / "words").read_text().splitlines()
        assert (
            words[-1] == f"{number} -P -m spotctl --home {job.home} nightly run small --scheduled"
        )
    assert receiver.got == receiver.beats == []


def test_the_record_is_written_before_anything_can_fail(job: Supervised, tmp_path: Path) -> None:
    program(job.program, f'cp "{job.folder}/starts" {tmp_path}/seen; exit 0')
    job.start()
    seen = (tmp_path / "seen").read_text().strip()
    assert seen.startswith("number=1 began=")
    assert seen.endswith("reported=no")


def test_the_oldest_start_makes_room_and_damaged_lines_are_passed_over(job: Supervised) -> None:
    path = job.state_dir.starts.path
    content = path.read_bytes().splitlines(keepends=True)
    number = SLOTS * 3
    content[0] = f"number={number} began=1 pid=1 reported=no".encode().ljust(255) + b"\n"
    content[1] = (
        f"number={number + 1 - SLOTS} began=1 pid=1 reported=no".encode().ljust(255) + b"\n"
    )
    content[5] = b"number=99999999999999999 \0".ljust(255) + b"\n"
    path.write_bytes(b"".join(content))
    assert job.start().returncode == 0
    starts, damaged = job.state_dir.starts.read()
    assert ([start.number for start in starts], damaged) == ([number, number + 1], 1)
    assert path.stat().st_size == SLOTS * 256


def test_a_missing_record_is_made_again(job: Supervised) -> None:
    job.state_dir.starts.path.unlink()
    assert job.start().returncode == 0
    assert (job.latest.number, job.latest.status) == (1, 0)
    assert job.state_dir.starts.path.stat().st_mode & 0o777 == 0o600


def test_a_failure_that_the_night_has_reported_is_not_reported_again(
    job: Supervised, receiver: Hook
) -> None:
    job.install(addresses(receiver))
    line = "number=1 began=1700000000 pid=1 reported=yes why=a text of the night"
    program(
        job.program,
        f"printf '%-255s' '{line}' | dd of=\"$RECORD\" bs=256 seek=1 conv=notrunc 2>/dev/null; "
        "exit 5",
    )
    assert job.start(RECORD=str(job.state_dir.starts.path)).returncode == 5
    assert (job.latest.status, job.latest.reported, job.latest.why) == (
        5,
        True,
        "a text of the night",
    )
    assert receiver.got == []


@needs_curl
@pytest.mark.parametrize("line", ["A_HOOK={}", "export A_HOOK='{}'", '  A_HOOK="{}"  '])
def test_an_address_in_a_variable_is_read_from_an_environment_file_that_others_can_read(
    job: Supervised, receiver: Hook, line: str
) -> None:
    job.install("webhook=$A_HOOK\n")
    path = job.state_dir.environment
    path.write_text(f"# A_HOOK=x\nOTHER=y\n{line.format(receiver.url)}\n")
    path.chmod(0o644)
    program(job.program, "exit 3")
    job.start()
    assert len(receiver.got) == 1


def test_the_address_is_no_argument_of_curl(job: Supervised, tmp_path: Path) -> None:
    """Arguments of processes can be seen by every user of the computer."""
    places = without(tmp_path / "path", "curl")
    program(
        tmp_path / "path" / "curl", f'echo "$@" >> {tmp_path}/arguments; cat >> {tmp_path}/config'
    )
    for address, key in (
        ("https://hooks.slack.com/services/s3cr3t", "text"),
        ("https://discord.com/api/webhooks/s3cr3t", "content"),
        ("https://a.webhook.office.com/s3cr3t", "attachments"),
        ("https://example.com/s3cr3t?a=[1]", "facts"),
    ):
        job.install(f"webhook={address}\n")
        program(job.program, "exit 3")
        (tmp_path / "config").unlink(missing_ok=True)
        job.start(PATH=places)
        url, _, data = (tmp_path / "config").read_text().splitlines()
        assert url == f'url = "{address}"'
        written = (
            data.removeprefix('data = "')
            .removesuffix('"')
            .replace('\\"', '"')
            .replace("\\\\", "\\")
        )
        body = json.loads(written)
        assert key in body
        assert "exit status 3" in json.dumps(body)
        if "slack" in address:
            assert body.keys() == {"text"}
    assert "s3cr3t" not in (tmp_path / "arguments").read_text()


@pytest.mark.parametrize("missing", ["curl", "receiver"])
def test_a_message_that_could_not_be_sent_is_still_due(
    job: Supervised, tmp_path: Path, missing: str
) -> None:
    job.install("webhook=http://127.0.0.1:9/hook\n")
    program(job.program, "exit 3")
    places = without(tmp_path / "path", "curl")
    if missing == "receiver":
        program(tmp_path / "path" / "curl", "exit 7")
    ended = job.start(PATH=places)
    assert (ended.returncode, job.latest.status, job.latest.reported) == (3, 3, False)
    assert "spotctl nightly small: could not begin: exit status 3" in ended.stdout


def test_a_signal_is_passed_on_and_its_end_awaited(job: Supervised, tmp_path: Path) -> None:
    text = (
        f"trap 'echo asked > {tmp_path}/asked; sleep 0.2; exit 0' TERM; echo > {tmp_path}/began; "
        "sleep 60 & wait"
    )
    program(job.program, text)
    with job.popen() as started:
        eventually((tmp_path / "began").exists)
        started.terminate()
        assert started.wait(30) == 0
    assert (tmp_path / "asked").exists()
    assert job.latest.status == 0


def test_systemd_sees_a_kill_so_that_it_starts_the_night_again(job: Supervised) -> None:
    program(job.program, "kill -9 $$")
    assert job.start(INVOCATION_ID="x").returncode == -signal.SIGKILL
    assert job.latest.status == 137


def test_a_script_that_is_killed_too_leaves_a_start_without_an_end(
    job: Supervised, tmp_path: Path
) -> None:
    program(job.program, f"echo > {tmp_path}/began; sleep 60")
    with job.popen() as started:
        eventually((tmp_path / "began").exists)
        assert job.latest.is_alive
        os.killpg(started.pid, signal.SIGKILL)
    assert (job.latest.ended, job.latest.is_alive) == (None, False)


def test_systemd_accepts_a_unit_with_the_script(job: Supervised, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze here")
    units = "small"
    paths = [tmp_path / service_unit(units), tmp_path / timer_unit(units)]
    for path, text in zip(
        paths, (service("small", job.command), timer("small", [time(2)])), strict=True
    ):
        path.write_text(text)
    words = [analyze, "verify", "--user", *map(str, paths)]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    ran = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
