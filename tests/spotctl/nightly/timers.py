"""Starts of nights as a timer makes them: the installed script, in the environment of cron, with
any program.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from spotctl.nightly.install import CRON_ENVIRONMENT
from spotctl.nightly.state_dir import NightStart, StateDir

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "spotctl" / "nightly" / "supervise.sh"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def python(path: Path) -> Path:
    """A Python that has this source tree, as one of a virtual environment has its packages."""
    return program(
        path, f'PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} "$@"'
    )


@dataclass(frozen=True)
class Supervised:
    """The folder of a job whose timer starts a program."""

    home: Path
    program: Path

    @property
    def state_dir(self) -> StateDir:
        return StateDir(self.home, "small")

    @property
    def folder(self) -> Path:
        return self.state_dir.folder

    @property
    def command(self) -> list[str]:
        words = [
            "-P",
            "-m",
            "spotctl",
            "--home",
            str(self.home),
            "nightly",
            "run",
            "small",
            "--scheduled",
        ]
        return ["/bin/sh", str(self.state_dir.supervisor), str(self.program), *words]

    def install(self, addresses: str = "") -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.state_dir.supervisor.write_bytes(SCRIPT.read_bytes())
        self.state_dir.starts.create()
        self.state_dir.addresses.write_text(addresses)

    def start(self, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {**CRON_ENVIRONMENT, **environment}
        return subprocess.run(
            self.command, env=env, capture_output=True, text=True, check=False, cwd="/", timeout=120
        )

    def popen(self, **environment: str) -> subprocess.Popen[bytes]:
        env = {**CRON_ENVIRONMENT, **environment}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.command, env=env, stdout=pipe, stderr=pipe, cwd="/", start_new_session=True
        )

    @property
    def latest(self) -> NightStart:
        starts, damaged = self.state_dir.starts.read()
        assert damaged == 0
        return starts[-1]


def without(folder: Path, *names: str) -> str:
    """A PATH with the programs that the script needs, except these."""
    folder.mkdir()
    needed = {
        "sh",
        "date",
        "dd",
        "sed",
        "tr",
        "cut",
        "tail",
        "mv",
        "rm",
        "curl",
        "logger",
        "sleep",
        "cat",
        "kill",
    }
    for name in needed - set(names):
        for place in ("/usr/bin", "/bin"):
            if os.access(f"{place}/{name}", os.X_OK):
                (folder / name).symlink_to(f"{place}/{name}")
                break
    return str(folder)
