"""What a trial may do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spotctl.home.errors import BadRequest
from spotctl.trials import sandbox
from tests.spotctl.trials.test_seen_work import seen

pytestmark = [pytest.mark.usefixtures("scratch"), pytest.mark.usefixtures("few_windows")]

OUTSIDE = """
import json, os, socket, pathlib

found = {}
try:
    pathlib.Path(os.environ["MARK_HERE"]).write_text("x")
except OSError as error:
    found["outside"] = type(error).__name__
try:
    socket.create_connection(("192.0.2.1", 9), 1)
except OSError as error:
    found["network"] = error.strerror
found["secrets"] = sorted(name for name in os.environ if name in ("MY_TOKEN", "AWS_PROFILE", "PLAIN"))
found["gpus"] = os.environ["CUDA_VISIBLE_DEVICES"]
found["loopback"] = bool(socket.create_server(("127.0.0.1", 0)))
raise SystemExit(json.dumps(found))
"""


def test_a_trial_is_shut_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = sandbox.guards(())
    for name in ("MY_TOKEN", "AWS_PROFILE", "PLAIN"):
        monkeypatch.setenv(name, "x")
    outside = tmp_path / "written"
    monkeypatch.setenv("MARK_HERE", str(outside))
    with pytest.raises(BadRequest) as refused:
        seen(tmp_path, OUTSIDE)
    found = json.loads(str(refused.value).partition("status 1: ")[2])
    assert (found["secrets"], found["gpus"], found["loopback"]) == (["PLAIN"], "", True)
    if sandbox.READ_ONLY in held:
        assert (found["outside"], outside.exists()) == ("OSError", False)
    if sandbox.NO_NETWORK in held:
        assert found["network"] == "Network is unreachable"


def test_what_is_allowed_is_not_taken_away() -> None:
    variables = {"MY_TOKEN": "x", "PATH": "/bin"}
    assert sandbox.safe_environment(variables, sandbox.ALLOWABLE) == variables
    assert sandbox.safe_environment(variables, (), ["MY_TOKEN"])["MY_TOKEN"] == "x", "the job's own"
