"""Trainings whose nodes join from elsewhere, driven as a user drives them: by two commands."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agileml.transport import TcpAddress

SECRET = "the secret of a job in a test, long enough"
PATIENCE_SECONDS = 600.0
"""Until a test gives up on something that has to come about."""

TRAINER = """
import helpers.pace
from agileml.trainer import ParamView
import numpy as np

LENGTH, ROWS = 12, 40


class Decades:
    name = "decades"
    chunk = 3

    def __init__(self, hurry=""):
        self.hurry = hurry

    def init(self, rng):
        return {
            "dense": rng.standard_normal((30, 3)).astype(np.float32),
            "sparse": np.zeros((ROWS, 2), np.float32),
        }

    def shards(self):
        return [range(100 * number, 100 * number + LENGTH) for number in range(16)]

    def step(self, shard, lo, hi, params, clock, rng):
        helpers.pace.wait(self.hurry)
        for item in shard[lo:hi]:
            rows = rng.integers(0, ROWS, 4)
            scale = np.float32(10.0 ** rng.uniform(-3, 3))
            params.update("sparse", rows, scale * np.sin(params.read("sparse", rows) + np.float32(item + clock)))
        params.update("dense", None, 1e-3 * np.cos(params.read("dense") + params.read("sparse", [lo % ROWS])[0, 0]))

    def loss(self, params, sample):
        return float(np.abs(params.read("dense")).mean()) + 0 * len(sample)
"""
"""16 shards whose float32 updates lie over six decades, so that their sum depends on its order."""

PACE = """
import time
from pathlib import Path


def wait(hurry):
    if hurry and not Path(hurry).exists():
        time.sleep(0.05)
"""
"""A clock takes a second on three nodes until a file appears. So faults strike before the job is
done."""


def write_trainer(folder: Path) -> Path:
    """A trainer of two files, one of them in a package."""
    helpers = folder / "helpers"
    helpers.mkdir(parents=True)
    (helpers / "__init__.py").touch()
    (helpers / "pace.py").write_text(PACE)
    trainer = folder / "decades.py"
    trainer.write_text(TRAINER)
    return trainer


def secret_file(folder: Path, secret: str = SECRET) -> Path:
    path = folder / "job.secret"
    path.touch(0o600)
    path.write_text(secret)
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class AttachedTraining:
    """`spotctl lab train --engine attach`, and nodes that join it. A prefix runs commands on other
    hosts.
    """

    def __init__(
        self,
        folder: Path,
        listen: TcpAddress,
        trainer: str,
        *options: str,
        secret: Path,
        prefix: Sequence[str] = (),
    ) -> None:
        """The log, and what the commands print, is written to the folder."""
        self.folder, self.log = folder, folder / "log.jsonl"
        self.at = f"{listen.host}:{listen.port}"
        self._nodes: dict[str, subprocess.Popen[str]] = {}
        self._secret = secret
        self._words = [
            "-m",
            "spotctl",
            "lab",
            "train",
            trainer,
            "--engine",
            "attach",
            "--address",
            self.at,
            "--json",
        ]
        self._words += [
            "--secret-file",
            str(self._secret),
            "--log",
            str(self.log),
            "--deterministic",
            *options,
        ]
        self._prefix = prefix
        self.command = self._start(prefix, self._words, "train")

    def kill_and_run_again(self) -> None:
        """SIGKILL to the command; its controller and everything else that it started ends with
        it."""
        self.command.kill()
        self.command.communicate()
        self.command = self._start(self._prefix, self._words, "train")

    def _start(
        self, prefix: Sequence[str], words: Sequence[str], name: str
    ) -> subprocess.Popen[str]:
        with (self.folder / f"{name}.err").open("w") as errors:
            return subprocess.Popen(
                [*prefix, sys.executable, *words],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
            )

    def join(
        self,
        name: str,
        *options: str,
        at: str | None = None,
        label: str | None = None,
        prefix: Sequence[str] = (),
    ) -> subprocess.Popen[str]:
        """Starts a node; its label tells it from another of the same name."""
        words = [
            "-m",
            "agileml.join",
            at or self.at,
            "--secret-file",
            str(self._secret),
            "--name",
            name,
        ]
        self._nodes[label or name] = self._start(prefix, [*words, *options], label or name)
        return self._nodes[label or name]

    def output_of(self, name: str) -> str:
        return (self.folder / f"{name}.err").read_text()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The iteration log so far."""
        text = self.log.read_text() if self.log.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    @property
    def events(self) -> list[str]:
        return [event for line in self.lines for event in line.get("events", [])]

    def until(self, done: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not done():
            if self.command.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"{what}: it did not come about; {self.story()}")
            time.sleep(0.02)

    def until_clock(self, clock: int) -> None:
        self.until(
            lambda: any(line.get("clock", 0) >= clock for line in self.lines), f"clock {clock}"
        )

    def until_ready(self, name: str) -> None:
        self.until(lambda: f"{name} ready" in self.events, f"{name} ready")

    def until_event(self, text: str) -> None:
        self.until(lambda: any(text in event for event in self.events), text)

    def signal(self, name: str, number: int) -> None:
        self._nodes[name].send_signal(number)

    def ended(self) -> dict[str, Any]:
        """The command's answer. Every node that still ran was released."""
        output, _ = self.command.communicate(timeout=PATIENCE_SECONDS)
        assert self.command.returncode == 0, self.story()
        answer: dict[str, Any] = json.loads(output)
        assert (answer["updates_lost"], answer["updates_doubled"]) == (0, 0)
        return answer

    def has_failed(self, name: str) -> bool:
        """Whether a node has ended without being released."""
        return self._nodes[name].poll() not in (None, 0)

    def exit_code(self, name: str) -> int:
        return self._nodes[name].wait(PATIENCE_SECONDS)

    def story(self) -> str:
        outputs = {name: self.output_of(name)[-600:] for name in ["train", *self._nodes]}
        return f"{outputs}; the log's last lines: {self.lines[-3:]}"

    def close(self) -> None:
        for process in (self.command, *self._nodes.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()
