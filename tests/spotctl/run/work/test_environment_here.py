"""A job's environment on this computer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from spotctl.files.job import reader
from spotctl.run.work.environment_here import environment_here
from tests.spotctl.agent.environment.wheels import wheel

JOB = """\
{name: job, kind: command, run: 'true', hours: 1h,
resources: {clouds: [aws], types: [c6i.large]}, checkpoint: {path: 's3://bucket/job/'}}
"""


def test_what_this_python_lacks_is_built_and_said(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "requirements.txt").write_text("numpy\n")
    given = {**os.environ, "UV_FIND_LINKS": str(tmp_path / "index"), "UV_OFFLINE": "1"}
    said = list[str]()
    cache = tmp_path / "cache"
    spec = reader.load(tmp_path / "job.yaml")
    assert environment_here(spec, cache, given, said.append) == {}

    wheel(tmp_path / "index", "spotone")
    (tmp_path / "requirements.txt").write_text("spotone\n")
    spec = reader.load(tmp_path / "job.yaml")
    variables = environment_here(spec, cache, given, said.append)
    assert said[0] == (
        "job: needs spotone, which this Python does not have (environment: none uses it)"
    )
    done = subprocess.run(["spotone"], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == "1.0\n"
