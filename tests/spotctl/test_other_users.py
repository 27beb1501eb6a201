"""Other users of the computer: what they can read, and what they can make spotctl run."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agileml.runtime.attach import published_in
from agileml.runtime.blob_store import FileBlobStore
from agileml.runtime.folders import NotPrivate
from spotctl.nightly.hours import Hours, local_zone
from spotctl.nightly.install import CRON_ENVIRONMENT
from spotctl.nightly.state_dir import Installed
from spotctl.run.work import resume_state
from tests.samples import LAUNCH
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.dying import APPEND, killed_at
from tests.spotctl.launches import state_of, training
from tests.spotctl.nightly.hooks import Hook, hook
from tests.spotctl.nightly.timers import Supervised

NOBODY = 65534


class Planted:
    """A role whose reading runs the code of whoever wrote it."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._mark,)


def plant(folder: Path, mark: Path) -> None:
    """Creates a run's folder as another user can: with any name, open to everybody."""
    folder.mkdir()
    folder.chmod(0o777)
    FileBlobStore(folder).put("node.job", [pickle.dumps(Planted(mark))])
    (folder / "secret").write_bytes(b"known to others")


def give_away(folder: Path) -> None:
    """Makes a folder another user's, closed to everybody else; only root can."""
    folder.chmod(0o700)
    os.chown(folder, NOBODY, NOBODY)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture(params=["open to all", "another user's"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder that somebody else has filled."""
    folder = tmp_path / "run"
    plant(folder, tmp_path / "mark")
    if request.param != "open to all":
        if os.getuid() != 0:
            pytest.skip("only root can make a folder of another user")
        give_away(folder)
    return folder


def test_nothing_of_others_is_loaded(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotPrivate, match="nothing is read from it"):
        published_in(folder)
    assert not (tmp_path / "mark").exists()
    assert resume_state.secret_of(folder) == b""


def test_a_link_of_others_is_not_followed(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    with pytest.raises(NotPrivate):
        published_in(link)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a link of another user")
def test_a_link_of_others_to_an_own_folder_is_not_followed(tmp_path: Path) -> None:
    """They can let it lead elsewhere at any moment."""
    own, link = tmp_path / "own", tmp_path / "link"
    own.mkdir(mode=0o700)
    link.symlink_to(own)
    assert published_in(link) is None
    os.lchown(link, NOBODY, NOBODY)
    with pytest.raises(NotPrivate):
        published_in(link)


def test_own_folders_are_read(tmp_path: Path) -> None:
    assert published_in(tmp_path / "none") is None
    tmp_path.chmod(0o755)
    assert published_in(tmp_path) is None


@pytest.mark.slow
def test_a_run_is_not_resumed_in_a_folder_of_others(tmp_path: Path, approved: Approved) -> None:
    """As after a restart of the computer: the folder is gone, and its name is in the log."""
    home, mark = tmp_path / "home", tmp_path / "mark"
    assert killed_at(
        f"after={APPEND}", 4, "--home", home, "launch", training(tmp_path, clocks=3), "--yes"
    )
    state = state_of(home)
    assert state.orders
    assert state.began is not None
    run = Path(state.began.folder)
    shutil.rmtree(run)
    plant(run, mark)
    try:
        refused = spotctl("--home", home, "resume", "small")
        assert str(run) in refused.error
        approved(refused)
        if os.getuid() == 0:
            give_away(run)
            assert spotctl("--home", home, "resume", "small").code == 2
        assert spotctl("--home", home, "stop", "small").code == 0
    finally:
        shutil.rmtree(run, ignore_errors=True)
    assert not mark.exists()
    assert state_of(home).ended is not None


SECRET = "hidden-from-the-others"
OF_JOB = [f"planted-in-{place}" for place in ("run", "env", "setup", "output", "checkpoint")]
OF_HOME = "planted-in-home"
LOOK = """
import encodings.idna, json, os, socket, stat, sys
user, needles, places = json.load(sys.stdin)
os.setgroups([])
os.setgid(user)
os.setuid(user)
found = {}
def note(where, content):
    for needle in needles:
        if needle.encode() in content:
            found.setdefault(needle, []).append(where)
for process in filter(str.isdecimal, os.listdir("/proc")):
    for what in ("cmdline", "environ"):
        try:
            with open(f"/proc/{process}/{what}", "rb") as file:
                note(f"{what} of {process}", file.read())
        except OSError:
            pass
for root in places:
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            try:
                if stat.S_ISREG(os.lstat(path).st_mode):
                    with open(path, "rb") as file:
                        note(path, file.read(1 << 22))
                elif stat.S_ISSOCK(os.lstat(path).st_mode):
                    with socket.socket(socket.AF_UNIX) as asked:
                        asked.connect(path)
                        found.setdefault("a socket that answers", []).append(path)
            except OSError:
                pass
for line in open("/proc/net/tcp").readlines()[1:]:
    address, state = line.split()[1], line.split()[3]
    if state == "0A":
        port = int(address.split(":")[1], 16)
        for path in ("/", "/metrics", "/costs"):
            try:
                with socket.create_connection(("127.0.0.1", port), 2) as asked:
                    asked.settimeout(2)
                    asked.sendall(f"GET {path} HTTP/1.0\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n".encode())
                    answer = b""
                    while len(answer) < 1 << 20 and (part := asked.recv(1 << 16)):
                        answer += part
                    note(f"port {port}{path}", answer)
            except OSError:
                pass
print(json.dumps(found))
"""


def wait_for_machine(home: Path, job: str, runner: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 300
    while spotctl("--home", home, "exec", job, "--", "true").code:
        assert runner.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)


def seen(user: int, needles: list[str], places: list[str]) -> dict[str, list[str]]:
    """The needles that a user finds, each with where: in all processes and ports, and in the files
    of the places.
    """
    asked, look = json.dumps([user, needles, places]), [sys.executable, "-c", LOOK]
    found = json.loads(
        subprocess.run(look, input=asked, capture_output=True, text=True, check=True).stdout
    )
    return dict(found)


def started_night(home: Path, folder: Path, hooked: Hook, metrics: Path) -> subprocess.Popen[bytes]:
    """A night as its timer starts it. The address of the webhook is a secret."""
    job, night = folder / "night.yaml", Supervised(home, Path(sys.executable))
    job.write_text(
        "name: small\nkind: command\nrun: sleep 600\nsecrets: [API_KEY]\n"
        "resources: {clouds: [local], types: [c4.2xlarge]}\nlocal: {speed: 1}\n"
        "notify: {webhook: $HOOK, heartbeat: $HOOK}\n"
    )
    begins = Hours((datetime.now(local_zone()[0]) - timedelta(minutes=1)).time())
    installed = Installed("small", job, begins, "cron", os.environ["PATH"], metrics=str(metrics))
    night.state_dir.install(installed)
    night.install("webhook=$HOOK\nheartbeat=$HOOK\n")
    night.state_dir.environment.touch(0o600)
    night.state_dir.environment.write_text(f"API_KEY={SECRET}\nHOOK={hooked.url}\n")
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        night.command, env=CRON_ENVIRONMENT, cwd="/", stdout=quiet, stderr=quiet
    )


@LAUNCH
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
def test_another_user_finds_no_secret_token_or_cost() -> None:
    """In all processes, files and ports, while a job and a night run, and a page and metrics are
    served; and after the night was killed, whose script then sends the message."""
    before = set(Path(tempfile.gettempdir()).iterdir())
    # A folder that others may enter, as most users' folders are.
    with (
        tempfile.TemporaryDirectory(prefix="shared-") as shared,
        umask(0o022),
        ExitStack() as stack,
    ):
        Path(shared).chmod(0o755)
        home, job, free = (
            Path(shared, OF_HOME),
            Path(shared, "job"),
            socket.create_server(("127.0.0.1", 0)),
        )
        with closing(free):
            port = str(free.getsockname()[1])
        job.mkdir()
        (job / "job.yaml").touch(0o600)
        (job / "job.yaml").write_text(
            "name: looked-at\nkind: command\nrun: 'sleep 600 # planted-in-run'\nsecrets: "
            "[API_KEY]\n"
            "env: {OWN: planted-in-env}\nsetup: 'true # planted-in-setup'\noutputs: {model: "
            "planted-in-output}\ncheckpoint: {path: planted-in-checkpoint}\n"
            "resources: {clouds: [local], types: [c4.2xlarge]}\nlocal: {speed: 1}\n"
        )
        main = [sys.executable, "-c", "from spotctl.cli.app import main; main()"]
        launch = [*main, "launch", str(job / "job.yaml"), "--yes", "--metrics", port]
        secret = {**os.environ, "API_KEY": SECRET, "SPOTCTL_HOME": str(home)}
        quiet = subprocess.DEVNULL
        launched = stack.enter_context(
            subprocess.Popen(launch, env=secret, stdout=quiet, stderr=quiet)
        )
        stack.callback(spotctl, "--home", home, "stop", "--all")
        wait_for_machine(home, "looked-at", launched)
        # A timer names the home in its command.
        assert OF_HOME in seen(0, [OF_HOME], [])
        assert seen(NOBODY, [OF_HOME], []) == {}
        hooked = stack.enter_context(hook())
        night = stack.enter_context(started_night(home, job, hooked, Path(shared, "night.prom")))
        stack.callback(spotctl, "--home", home, "stop", "small")
        wait_for_machine(home, "small", night)
        ui = [*main, "--home", str(home), "ui"]
        page = stack.enter_context(subprocess.Popen(ui, stdout=subprocess.PIPE, text=True))
        stack.callback(page.kill)
        assert page.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/([\w-]+)/", page.stdout.readline())
        assert address is not None
        needles = [
            SECRET,
            address[1],
            (home / "metrics-token").read_text(),
            urlsplit(hooked.url).path,
        ]
        needles += [*OF_JOB, "spotctl_spent", "spotctl_replayed_spent", "spotctl_night"]
        began = state_of(home).began
        assert began is not None
        new = [str(path) for path in Path(tempfile.gettempdir()).iterdir() if path not in before]
        places = [shared, began.folder, *new]
        by_root = seen(0, needles, places)
        known = {SECRET, urlsplit(hooked.url).path, "spotctl_night", *OF_JOB}
        assert known <= by_root.keys(), "the search can find something"
        assert seen(NOBODY, needles, places) == {}
        subprocess.run(["pkill", "-KILL", "-P", str(night.pid)], check=True)
        assert night.wait(300) == 128 + signal.SIGKILL
        assert hooked.got
        assert seen(NOBODY, needles, places) == {}
