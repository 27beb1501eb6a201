"""What a container needs of this computer and of its image."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spotctl.agent.container.podman import NO_CONTAINER
from spotctl.files.job.reader import loads
from spotctl.home.errors import BadRequest
from spotctl.run.work.workload import check_podman, checked

JOB = "name: j\nkind: command\nrun: 'true'\nworkdir: .\nresources: {{clouds: [local]}}\n{image}\n"


def test_the_local_market_needs_podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    plain, boxed = (
        loads(JOB.format(image=image), tmp_path / "j") for image in ("", "image: {container: app}")
    )
    check_podman(plain)
    with pytest.raises(
        BadRequest, match=r"image\.container needs podman, and this computer has none; install it"
    ):
        check_podman(boxed)


def test_a_node_starts_only_with_the_python_of_this_computer(tmp_path: Path) -> None:
    def ran(python: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "python3"
        path.write_text(f"#!/bin/sh\n{python}\n")
        path.chmod(0o755)
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(
            checked(["echo", "node"]), env=environment, capture_output=True, text=True, check=False
        )

    assert ran(f'exec {sys.executable} "$@"').stdout == "node\n"
    refused = ran("echo 'first line\nAssertionError: 3.5.1' >&2; exit 1")
    assert (refused.returncode, refused.stdout) == (NO_CONTAINER, "")
    (line,) = refused.stderr.splitlines()
    assert line.endswith("in the image: AssertionError: 3.5.1")
