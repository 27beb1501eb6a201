"""A Ray cluster of three hosts: one has a slow link, one is cut off, one dies. `make ray` runs
it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agileml import reference
from agileml.apps.registry import TrainerSource
from tests.agileml.engines.hosts import Host, hosts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not os.environ.get("SPOTCTL_TEST_RAY"), reason="takes minutes: make ray"),
]

PORT, ATTEMPTS, PATIENCE = 6379, 5, 300
CLOCKS = 60
TRAINING = (
    "lab", "train", "tests.agileml.toys:Slow", "--nodes", "1+2", "--clocks", str(CLOCKS), "--deterministic", "--json",
)  # fmt: skip
LOG = "log.jsonl"


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def on(host: Host, *words: str) -> list[str]:
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "PYTHONPATH": str(Path.cwd()),
    }
    return host.command(
        "env",
        *(f"{name}={value}" for name, value in settings.items()),
        sys.executable,
        "-m",
        *words,
    )


def start_ray(host: Host, head: Host, mark: str) -> None:
    """A Ray node, which may need several attempts: Ray gives it 30 seconds."""
    where = [f"--address={head.address}:{PORT}"]
    if host is head:
        where = [
            "--head",
            f"--port={PORT}",
            f"--temp-dir={host.folder}/r",
            "--include-dashboard=false",
        ]
    words = [
        "ray.scripts.scripts",
        "start",
        *where,
        f"--node-ip-address={host.address}",
        "--num-cpus=4",
    ]
    words += [f"--resources={json.dumps({mark: 1})}", "--object-store-memory=80000000"]
    for _ in range(ATTEMPTS):
        started = subprocess.run(on(host, *words), capture_output=True, text=True, check=False)
        if not started.returncode:
            return
    pytest.fail(started.stdout + started.stderr)


@contextmanager
def training_on(head: Host, seen: Path) -> Iterator[subprocess.Popen[str]]:
    words = (
        *TRAINING,
        "--engine",
        "ray",
        "--address",
        f"{head.address}:{PORT}",
        "--log",
        str(seen / LOG),
    )
    with subprocess.Popen(
        on(head, "spotctl", *words), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_hosts_are_slow_are_cut_off_and_die(tmp_path: Path) -> None:
    def lines() -> list[dict[str, Any]]:
        texts = (
            (tmp_path / LOG).read_text().splitlines(keepends=True)
            if (tmp_path / LOG).exists()
            else []
        )
        return [json.loads(text) for text in texts if text.endswith("\n")]

    def lost() -> set[str]:
        return {
            event[:2]
            for line in lines()
            for event in line.get("events", ())
            if event[2:].startswith(" lost")
        }

    with (
        tempfile.TemporaryDirectory(prefix="h-", dir="/tmp") as name,
        hosts(3, Path(name)) as (head, slow, other),
    ):
        # A tenth of a gigabit.
        slow.limit("100mbit")
        for host, mark in ((head, "reliable"), (slow, "transient"), (other, "transient")):
            start_ray(host, head, mark)
        with training_on(head, tmp_path) as training:
            until(lambda: len(lines()) > 3 or training.poll() is not None, "no clock")
            assert lines()[-1]["nodes"] == {"reliable": 1, "transient": 2}
            other.cut()
            until(lambda: len(lost()) == 1, "the host that is cut off")
            before = len(lines())
            until(lambda: len(lines()) > before + 1, "no clock without it")
            slow.kill()
            until(lambda: len(lost()) == 2, "the host that is killed")
            answer = json.loads(training.communicate(timeout=PATIENCE)[0])
    assert answer["failures"] == 2
    quick = TrainerSource("tests.agileml.toys:Decades").load()
    assert answer["model_sha256"] == reference.model_digest(reference.run(quick, CLOCKS, seed=0))
