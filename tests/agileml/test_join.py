"""A node that is refused or fails early says why in its log, which is its standard error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agileml.apps.registry import TrainerSource
from agileml.engines.attached import AttachedJob
from agileml.runtime.folders import SECRET_VARIABLE
from agileml.runtime.node_process import NOT_ADMITTED
from agileml.runtime.prepared_job import PreparedJob, shape_of
from tests.agileml.engines.fleet_suite import JOB, LENGTHS, SAME

pytestmark = pytest.mark.timeout(600)

SECRET, OTHER = b"0123456789abcdef0123456789abcdef", b"another secret of the same size."


@pytest.fixture
def folder(left_behind: Path) -> Iterator[Path]:
    folder = left_behind / "job"
    folder.mkdir()
    yield folder
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def joined(folder: Path, secret: bytes = SECRET, job: AttachedJob | None = None) -> tuple[int, str]:
    """The exit status and the log of a node that tries to join."""
    words = [sys.executable, "-m", "agileml.join", str(folder), "--name-in", "NODE_NAME"]
    environment = {**os.environ, "NODE_NAME": "m/t1", SECRET_VARIABLE: secret.hex()}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as node:
        while node.poll() is None:
            if job is not None:
                job.turn(0.02)
        assert node.stderr is not None
        return node.returncode, node.stderr.read()


def test_a_node_with_another_secret_says_that_it_was_refused(folder: Path) -> None:
    job = AttachedJob(PreparedJob(JOB, shape_of(JOB)), folder, SECRET, lambda _: None)
    try:
        status, log = joined(folder, OTHER, job)
    finally:
        job.close()
    assert status == NOT_ADMITTED
    assert "refused this node" in log
    assert "the two processes have different job secrets" in log


def test_a_node_with_other_code_says_that_it_was_refused(folder: Path, tmp_path: Path) -> None:
    trainer = tmp_path / "same.py"
    trainer.write_text(SAME)
    given = replace(JOB, source=TrainerSource(str(trainer), {"lengths": LENGTHS}))
    job = AttachedJob(PreparedJob(given, shape_of(given)), folder, SECRET, lambda _: None)
    trainer.write_text(SAME + "# another version\n")
    try:
        status, log = joined(folder, SECRET, job)
    finally:
        job.close()
    assert status == NOT_ADMITTED
    assert "leaving: " in log
    assert "code" in log


def test_a_node_without_a_job_says_so(folder: Path) -> None:
    status, log = joined(folder)
    assert status == NOT_ADMITTED
    assert "no job to join" in log
