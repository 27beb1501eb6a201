"""A trainer of one's own, launched from elsewhere: its code, data, variables and setup are where it looks for them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.spotctl.cli import spotctl

TRAINER = """
import os
from agileml.apps.mf import MatrixFactorization

class Mine(MatrixFactorization):
    def __init__(self, rank: int) -> None:
        with open(os.environ["DATA_SIZES"]) as file:
            users = int(file.read())
        assert os.environ["COLOUR"] == "red"
        assert os.environ["TOKEN"] == "hush"
        super().__init__(users=users, items=50, ratings=1000, rank=rank, rate=0.2)
"""

JOB = """\
name: mine
kind: agileml
app: {app}
args: {{rank: 4}}
stop: {{clocks: 5}}
setup: test "$COLOUR" = red && echo ready
env: {{COLOUR: red}}
secrets: [TOKEN]
data: {{sizes: sizes.txt}}
resources: {{clouds: [local], types: [c4.2xlarge], machines: 1..1}}
strategy: on-demand
local: {{speed: 600}}
"""


@pytest.mark.parametrize("app", ["mine_of_this_test:Mine", "mine_of_this_test.py"])
def test_a_trainer_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: str) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    # What a launch sets in its process is not to stay in this one.
    for name in ("DATA_SIZES", "COLOUR"):
        monkeypatch.setenv(name, "of the test")
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "mine_of_this_test.py").write_text(TRAINER)
    (folder / "sizes.txt").write_text("100")
    (folder / "job.yaml").write_text(JOB.format(app=app))
    ended = spotctl("launch", folder / "job.yaml", "--yes", "--json", TOKEN="hush")
    sys.modules.pop("mine_of_this_test", None)
    assert (ended.code, ended.json["message"]) == (0, "5 clocks")
    assert spotctl("logs", "mine").out.count(": ready\n") == 2
    log = b"".join(path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert b"hush" not in log, "a secret is written nowhere"
