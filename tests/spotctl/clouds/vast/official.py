"""Vast.ai's own client, whose commands check the simulated API: `vastai` on the PATH, or at
$SPOTCTL_VASTAI.

It pins packages of its own, so it belongs into an environment of its own:

    python3 -m venv /tmp/vastai && /tmp/vastai/bin/pip install vastai==1.9.1
    export SPOTCTL_VASTAI=/tmp/vastai/bin/vastai
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.servers.vast import KEY


@dataclass(frozen=True)
class OfficialClient:
    """The client, which calls the API at `url` and nothing else."""

    command: str
    url: str
    home: Path

    def ended(self, *words: str) -> subprocess.CompletedProcess[str]:
        """How a command has ended."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "VAST_URL": self.url,
            "VAST_API_KEY": KEY,
            "VASTAI_NO_UPDATE_CHECK": "1",
            "VASTAI_TELEMETRY": "0",
        }
        return subprocess.run(
            [self.command, *words, "--raw"],
            env=environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def answer(self, *words: str) -> Any:  # noqa: ANN401  # JSON is any value
        """The output of a command that succeeds."""
        ended = self.ended(*words)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)


def official_client(url: str, home: Path) -> OfficialClient:
    command = os.environ.get("SPOTCTL_VASTAI") or shutil.which("vastai")
    if command is None:
        pytest.skip("needs Vast.ai's own client: see tests/spotctl/clouds/vast/official.py")
    return OfficialClient(command, url, home)
