"""Real launches that are killed at random moments, also where stdin, disk, home or another launch
is in the way.

Each launch, or what resumes it, gets SIGKILL at a moment that a seed draws. Then a user resumes the
run or stops it, and lets gc look. Nothing may be left or bought twice, no message may be an
internal error, and the bill must be what `recount` counts from the rows of the log and the
published prices. Others are not killed: the computer's clock jumps, near a change of daylight
saving or elsewhere (needs cc), or every process of the run stands still for minutes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from threading import Lock
from typing import IO

import pricing_data.samples
from spotctl.log.store import EventLog
from tests.spotctl.clouds.leaving import kill_all
from tests.spotctl.launches import TRAINING, check_nothing_bought_twice, processes
from tests.spotctl.log.ledger.recount import differences, from_parquet, recounted
from tests.waiting import eventually

PLAIN, NO_STDIN, FULL_DISK, READ_ONLY, TWO = (
    "plain",
    "closed stdin",
    "full disk",
    "read-only home",
    "two launches",
)
TROUBLES = (NO_STDIN, FULL_DISK, READ_ONLY, TWO)
JUMP, STANDSTILL = "a clock that jumps", "a standstill"
STANDSTILL_SECONDS = 180.0

_JUMPS = (-86400, -3600, -90, -5, 5, 90, 3600, 86400, 40 * 86400)
_CHANGES = (datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC))
"""When the clocks of Berlin change."""
_CLOCK = Path(__file__).with_name("jumping_clock.c")

_PRICES = Path(pricing_data.samples.__path__[0]) / "prices.parquet"
_TMPFS_MIB, _MIB = 8, 1 << 20
_COMMAND = """\
name: {name}
kind: command
run: for i in $(seq {halves}); do echo "step $i"; sleep 0.5; done
resources: {{clouds: [local], types: [c4.2xlarge]}}
nodes: {machines}
local: {{speed: 600}}
"""
_WORDS = (sys.executable, "-c", "from spotctl.cli.app import main; main()")
_COMMAND_SECONDS = 600.0
_SAY_EVERY = 10


@dataclass
class Life:
    """A home and its jobs, from the first launch to the last look."""

    seed: int
    trouble: str
    folder: Path
    seconds: float
    """How long an undisturbed launch takes on this computer at the moment."""
    kills: int = 0
    said: list[str] = field(default_factory=list)
    ahead: float = 0.0
    """How far its clock is ahead of this computer's."""

    def __post_init__(self) -> None:
        self.draw, self.home = random.Random(f"{self.seed} {self.trouble}"), self.folder / "home"
        self.home.mkdir()

    def run(self) -> None:
        """AssertionError: something is left, twice, or wrong."""
        mounted = tmpfs(self.home) if self.trouble in (FULL_DISK, READ_ONLY) else none()
        with mounted:
            try:
                self._lived()
            finally:
                kill_all(self.folder)

    def launched(self) -> None:
        """A launch that nothing disturbs."""
        self._ended(("launch", self._job("one"), "--yes"), works=True)

    def _lived(self) -> None:
        names = ["one", "two"] if self.trouble == TWO else ["one"]
        paths = [self._job(name) for name in names]
        launches = [("launch", path, "--yes") for path in paths]
        if self.trouble in (JUMP, STANDSTILL):
            self._disturbed(launches[0])
        else:
            self._killed(launches)
        while self.trouble == PLAIN and self.draw.random() < 0.3:
            self._killed([self._next(names[0], paths[0])])
        if self.trouble == READ_ONLY:
            # A file system where files are open for writing cannot be made read-only, so the kill
            # comes first.
            remounted(self.home, "ro")
            for words in (
                self._next(names[0], paths[0]),
                ("status",),
                ("stop", names[0]),
                ("gc", "--cloud", "local"),
            ):
                self._ended(words)
            remounted(self.home, "rw")
        for name, path in zip(names, paths, strict=True):
            words = self._next(name, path)
            self._ended(
                ("stop", name) if words[0] == "resume" and self.draw.random() < 0.5 else words,
                works=True,
            )
        self._ended(("gc", "--cloud", "local", "--yes"), works=True)
        eventually(lambda: not processes(self.folder))
        self._check()

    def _job(self, name: str) -> Path:
        path, is_training = self.folder / f"{name}.yaml", self.draw.random() < 0.15
        halves, machines = self.draw.randint(2, 12), self.draw.randint(1, 2)
        text = TRAINING.format(clocks=15).replace("name: small", f"name: {name}")
        path.write_text(
            text if is_training else _COMMAND.format(name=name, halves=halves, machines=machines)
        )
        return path

    def _next(self, name: str, path: Path) -> tuple[str | Path, ...]:
        """Goes on as a user would: there may be no run to resume yet, or it has ended."""
        log = self.home / "log.sqlite"
        if log.exists():
            with EventLog(log) as opened:
                if any(began.job == name for began in opened.runs().values()):
                    return "resume", name
        return "launch", path, "--yes"

    def _killed(self, commands: Sequence[Sequence[str | Path]]) -> None:
        """Runs commands side by side until each gets SIGKILL, or has ended before."""
        with tempfile.TemporaryFile() as said:
            begun = [self._start(words, said) for words in commands]
            for process in begun:
                time.sleep(self.draw.uniform(0.0, self.seconds))
                if self.trouble == FULL_DISK:
                    fill(self.home)
                    time.sleep(self.draw.uniform(0.0, 2.0))
                process.kill()
                self.kills += process.wait() == -signal.SIGKILL
            if self.trouble == FULL_DISK:
                (self.home / "filled").unlink(missing_ok=True)
            said.seek(0)
            self._heard(said.read().decode())

    def _disturbed(self, words: Sequence[str | Path]) -> None:
        """Lets a command meet a jump of the clock or a standstill, and go on."""
        if self.trouble == JUMP:
            change = (
                self.draw.choice(_CHANGES).timestamp()
                - time.time()
                - self.draw.uniform(0.0, self.seconds)
            )
            self._set_clock(self.draw.choice([0.0, change]))
        with tempfile.TemporaryFile() as said:
            process = self._start(words, said)
            time.sleep(self.draw.uniform(0.0, self.seconds))
            if self.trouble == JUMP:
                self._set_clock(self.ahead + self.draw.choice(_JUMPS))
            else:
                stopped = [
                    pid
                    for pid in [process.pid, *named(self.folder)]
                    if signalled(pid, signal.SIGSTOP)
                ]
                time.sleep(STANDSTILL_SECONDS)
                for pid in stopped:
                    signalled(pid, signal.SIGCONT)
            process.wait(_COMMAND_SECONDS)
            said.seek(0)
            self._heard(said.read().decode())

    def _set_clock(self, ahead: float) -> None:
        self.ahead = ahead
        part = self.folder / "clock.part"
        part.write_text(f"{ahead:.0f}")
        part.replace(self.folder / "clock")

    def _ended(self, words: Sequence[str | Path], *, works: bool = False) -> None:
        with tempfile.TemporaryFile() as said:
            code = self._start(words, said).wait(_COMMAND_SECONDS)
            said.seek(0)
            text = said.read().decode()
        self._heard(text)
        # A run that has ended is neither resumed nor stopped again.
        assert not works or code == 0 or " has no run to resume" in text, (
            f"{words}: exit code {code}: {text}"
        )

    def _start(self, words: Sequence[str | Path], said: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [*_WORDS, *map(str, words)]
        if self.trouble == NO_STDIN:
            command = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=self._environment,
            cwd=self.folder,
        )

    @property
    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, "SPOTCTL_HOME": str(self.home)}
        if self.trouble != JUMP:
            return environment
        library, ahead = self.folder / "clock.so", self.folder / "clock"
        if not library.exists():
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, _CLOCK], check=True)
        return {
            **environment,
            "LD_PRELOAD": str(library),
            "JUMPING_CLOCK": str(ahead),
            "TZ": "Europe/Berlin",
        }

    def _heard(self, text: str) -> None:
        self.said.append(text)
        assert "Traceback" not in text, text
        assert "internal error" not in text, text

    def _check(self) -> None:
        if not (self.home / "log.sqlite").exists():
            return
        check_nothing_bought_twice(self.home)
        found = recounted(self.home / "log.sqlite", from_parquet(_PRICES))
        report = [*_WORDS, "report", "cost", "--by", "run", "--local", "--json"]
        answer = subprocess.run(
            report, check=True, capture_output=True, env=self._environment
        ).stdout
        assert not (lines := differences(found, json.loads(answer))), lines
        assert all(not group["running"] for group in json.loads(answer)["groups"])


def named(folder: Path) -> list[int]:
    """The processes whose words or variables name a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            about = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in about and process.name != str(os.getpid()):
            found.append(int(process.name))
    return found


def signalled(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def none() -> Iterator[None]:
    yield


@contextmanager
def tmpfs(folder: Path) -> Iterator[None]:
    """A small disk of its own; needs root."""
    words: list[str | Path] = [
        "mount",
        "-t",
        "tmpfs",
        "-o",
        f"size={_TMPFS_MIB}m,mode=700",
        "none",
        folder,
    ]
    subprocess.run(words, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def remounted(folder: Path, how: str) -> None:
    """Once nobody writes there any more."""
    words: list[str | Path] = ["mount", "-o", f"remount,{how}", folder]
    eventually(lambda: subprocess.run(words, check=False, capture_output=True).returncode == 0)


def fill(home: Path) -> None:
    """Leaves no free byte on the disk of a home."""
    try:
        with (home / "filled").open("wb", buffering=0) as file:
            while file.write(bytes(_MIB)) or file.write(b"0"):
                pass
    except OSError:
        return


def lives(number: int, seed: int, workers: int, trouble: str = "") -> int:
    """Lives until this many processes were killed, three in ten in trouble, or this many lives with
    one trouble; prints violations and counts, and returns the number of violations."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = Life(seed, PLAIN, Path(folder), 0.0)
        undisturbed.launched()
        seconds = time.monotonic() - began
    met, failed, homes, numbers, heard = Counter[str](), 0, list[int](), count(seed), Lock()

    def work(_: int) -> None:
        nonlocal failed
        while (len(homes) if trouble else met.total()) < number:
            problem, at = "", next(numbers)
            with tempfile.TemporaryDirectory(
                prefix="spotctl-kills-", ignore_cleanup_errors=True
            ) as folder:
                life = Life(at, trouble or _trouble(at), Path(folder), seconds)
                try:
                    life.run()
                # All that goes wrong is shown, and the next life begins.
                except Exception as error:  # noqa: BLE001
                    problem = f"seed {at}, {life.trouble}: {type(error).__name__}: {error}"
            with heard:
                met[life.trouble] += life.kills
                homes.append(at)
                failed += bool(problem)
                if problem or len(homes) % _SAY_EVERY == 0:
                    _say(problem or f"{met.total()} killed in {len(homes)} homes")

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    each = ", ".join(f"{met[each]} with {each}" for each in TROUBLES)
    what = f"with {trouble}" if trouble else f"in which {met.total()} processes were killed, {each}"
    _say(f"{len(homes)} homes {what}: {failed} violations")
    return failed


def _trouble(number: int) -> str:
    """Three in ten are in trouble, of each kind in turn."""
    tens, place = divmod(number, 10)
    return TROUBLES[(3 * tens + place) % len(TROUBLES)] if place < 3 else PLAIN


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
