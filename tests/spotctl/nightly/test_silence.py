"""No night fails silently: what breaks its own files is reported, to the webhook, the health check
and monitoring.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from time import time

import pytest

from spotctl.files.job.spec import Notify
from spotctl.home.wall_clock import wall_us
from spotctl.nightly.environment import keep_addresses
from spotctl.nightly.hours import Hours, local_zone
from spotctl.nightly.install import Timers
from spotctl.nightly.state_dir import Installed, StateDir
from tests.spotctl.command_line import Ended, spotctl
from tests.spotctl.launches import COMMAND
from tests.spotctl.nightly.hooks import Hook, hook
from tests.spotctl.nightly.test_install import table

__all__ = ["table"]


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as one:
        yield one


@pytest.fixture
def small(tmp_path: Path, receiver: Hook, table: Path) -> StateDir:
    """An installed job with a secret, which is missing, so that a night ends at once."""
    assert table.exists()
    path = tmp_path / "job.yaml"
    notify = (
        f"notify: {{webhook: '{receiver.url}', heartbeat: '{receiver.url}/beat'}}\nsecrets: "
        "[A_TOKEN]\n"
    )
    path.write_text(COMMAND.format(run="'true'") + notify)
    return installed(tmp_path / "home", path, receiver)


def installed(home: Path, path: Path, receiver: Hook) -> StateDir:
    state_dir = StateDir(home, "small")
    half_a_day_ago = (datetime.now(local_zone()[0]) - timedelta(hours=12)).time()
    nightly = Installed("small", path, Hours(half_a_day_ago), "cron", os.environ["PATH"])
    state_dir.install(nightly)
    two_days_ago = time() - 2 * 86400
    os.utime(state_dir.folder / "installed.json", (two_days_ago, two_days_ago))
    Timers.of_this_user().add(nightly, home, wall_us())
    state_dir.starts.create()
    keep_addresses(state_dir.addresses, Notify(receiver.url, f"{receiver.url}/beat"))
    return state_dir


def check() -> Ended:
    return spotctl("nightly", "ls", "--check")


def night_record(state_dir: StateDir) -> None:
    (state_dir.folder / "night.json").write_text('{"day": "2026-')


def result(state_dir: StateDir) -> None:
    (state_dir.folder / "result.json").write_text("{}")


def installation(state_dir: StateDir) -> None:
    (state_dir.folder / "installed.json").write_bytes(b"\0" * 300)


def no_installation(state_dir: StateDir) -> None:
    (state_dir.folder / "installed.json").unlink()


def environment(state_dir: StateDir) -> None:
    state_dir.environment.write_text("A_TOKEN=s3cr3t\n")
    state_dir.environment.chmod(0o644)


def event_log(state_dir: StateDir) -> None:
    (state_dir.home / "log.sqlite").write_bytes(b"SQLite format 3\0" + b"\x07" * 8000)


def job_file(state_dir: StateDir) -> None:
    nightly = state_dir.installed
    assert nightly is not None
    nightly.file.unlink()


FAULTS = {
    "its record is damaged": (night_record, "night.json"),
    "its result is damaged": (result, "result.json"),
    "its installation is damaged": (installation, "installed.json"),
    "its installation is gone": (no_installation, "no nightly job named"),
    "others can read its secrets": (environment, "chmod 600"),
    "the event log is damaged": (event_log, "log.sqlite"),
    "the job file is gone": (job_file, "job.yaml"),
}


def test_a_job_without_a_fault_is_well(small: StateDir) -> None:
    small.environment.touch(0o600)
    small.environment.write_text("A_TOKEN=x\n")
    assert "did not start" in check().out
    assert spotctl("nightly", "run", "small", "--scheduled").code == 0
    assert (
        check().out
        == "1 nightly job: no night failed or was missed, and the next night can start\n"
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_what_breaks_a_night_before_it_begins_is_reported(
    small: StateDir, receiver: Hook, fault: str
) -> None:
    plant, cause = FAULTS[fault]
    plant(small)
    night = spotctl("nightly", "run", "small", "--scheduled")
    assert night.code not in (0, None)
    assert "internal error" not in night.err
    assert cause in night.err
    # A damaged result is found after the message about the night was sent.
    assert cause in receiver.got[-1]["text"] + str(receiver.got[-1]["attachments"])
    assert receiver.beats[-1].endswith("/beat/fail")
    assert small.starts.read()[0][-1].reported
    checked = check()
    assert (checked.code, checked.err) == (1, "")
    assert cause.replace("no nightly job named", "installed.json") in checked.out
    assert all(line.startswith("small: ") for line in checked.out.splitlines())
    assert "s3cr3t" not in str(receiver.got) + checked.out + night.err


def test_a_damaged_job_does_not_hide_another(small: StateDir) -> None:
    other = StateDir(small.home, "another")
    other.folder.mkdir(parents=True)
    (other.folder / "installed.json").write_text("{")
    spotctl("nightly", "run", "small", "--scheduled")
    lines = check().out.splitlines()
    assert lines[0].startswith("another: ")
    assert any(line.startswith("small: ") for line in lines)
    listed = spotctl("nightly", "ls", "--json").json["nightly"]
    assert [job["name"] for job in listed] == ["another", "small"]
    assert (listed[0]["file"], "is damaged" in listed[0]["problem"]) == (None, True)
    assert "another" in spotctl("nightly", "ls").out


def test_a_night_whose_message_cannot_be_sent_is_reported_by_the_next_one(
    small: StateDir, receiver: Hook
) -> None:
    environment(small)
    small.environment.write_text("A_TOKEN=\n")
    before = small.addresses.read_text()
    nightly = small.installed
    assert nightly is not None
    text = nightly.file.read_text()
    with hook(404) as deaf:
        nightly.file.write_text(text.replace(receiver.url, deaf.url))
        assert spotctl("nightly", "run", "small", "--scheduled").code == 2
    assert receiver.got == []
    assert not small.starts.read()[0][-1].reported
    nightly.file.write_text(text)
    small.environment.chmod(0o600)
    assert spotctl("nightly", "run", "small").code == 5
    (sent,) = receiver.got
    (late,) = (
        field["value"]
        for field in sent["attachments"][0]["fields"]
        if field["title"] == "Not reported before"
    )
    assert "chmod 600" in late
    assert small.starts.read()[0][-1].reported
    assert small.addresses.read_text() == before


@pytest.mark.usefixtures("small")
def test_an_error_in_the_middle_of_a_night_is_reported(
    receiver: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(StateDir, "record", broken)
    assert spotctl("nightly", "run", "small", "--scheduled").code == 1
    assert "No space left on device" in receiver.got[0]["attachments"][0]["fallback"]
    assert check().code == 1


def no_room(folder: Path) -> bool:
    """Fills the disk of a folder; False if the folder has no small disk of its own."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            for size in (4096, 1):
                while file.write(b"x" * size):
                    pass
        except OSError:
            return True
    return False


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with a disk of its own that can be filled."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    mounted = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("reserved", [True, False])
def test_a_night_on_a_full_disk_is_reported(
    small_disk: Path, tmp_path: Path, receiver: Hook, reserved: bool
) -> None:
    """Also if the record of starts had no space reserved, as in a job that an older version
    installed.
    """
    path = tmp_path / "job.yaml"
    path.write_text(COMMAND.format(run="'true'") + f"notify: {{webhook: '{receiver.url}'}}\n")
    state_dir = installed(small_disk / "home", path, receiver)
    if not reserved:
        state_dir.starts.path.unlink()
        state_dir.addresses.unlink()
    assert no_room(small_disk)
    night = spotctl("--home", small_disk / "home", "nightly", "run", "small", "--scheduled")
    assert night.code == 1
    assert "No space left on device" in receiver.got[0]["text"] + str(
        receiver.got[0]["attachments"]
    )
    checked = spotctl("--home", small_disk / "home", "nightly", "ls", "--check")
    assert checked.code == 1
    cause = "No space left on device" if reserved else "did not start"
    assert [
        line.startswith("small: the ") and cause in line for line in checked.out.splitlines()
    ] == [True]
