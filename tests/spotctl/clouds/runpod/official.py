"""RunPod's own client, which checks the simulated API: a Python with it is at $SPOTCTL_RUNPOD_CLIENT.

It pins packages of its own, so it belongs into an environment of its own:

    python3 -m venv /tmp/runpod && /tmp/runpod/bin/pip install runpod==1.12.0
    export SPOTCTL_RUNPOD_CLIENT=/tmp/runpod/bin/python
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.servers.runpod import KEY

_CALL = """
import json, os, sys, runpod
runpod.api_key = os.environ["RUNPOD_API_KEY"]
name, arguments = json.loads(sys.argv[1])
try:
    answer = {"answer": getattr(runpod, name)(**arguments)}
except Exception as error:
    answer = {"error": type(error).__name__, "said": str(error)}
print(json.dumps(answer))
"""


@dataclass(frozen=True)
class OfficialClient:
    """The client, which calls the API at `url` and nothing else."""

    python: str
    url: str
    home: Path
    key: str = KEY

    def ended(self, name: str, /, **arguments: object) -> dict[str, Any]:
        """How one of its functions has ended: with an answer, or an error."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "RUNPOD_API_BASE_URL": self.url,
            "RUNPOD_API_KEY": self.key,
        }
        ended = subprocess.run(
            [self.python, "-c", _CALL, json.dumps([name, arguments])],
            env=environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return answer

    def answer(self, name: str, /, **arguments: object) -> Any:  # noqa: ANN401  # JSON is any value
        """The answer of a function that succeeds."""
        ended = self.ended(name, **arguments)
        assert "answer" in ended, ended
        return ended["answer"]


def official_client(url: str, home: Path) -> OfficialClient:
    python = os.environ.get("SPOTCTL_RUNPOD_CLIENT")
    if python is None:
        pytest.skip("needs RunPod's own client: see tests/spotctl/clouds/runpod/official.py")
    return OfficialClient(python, url, home)
