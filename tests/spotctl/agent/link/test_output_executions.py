"""Commands that an agent runs for its caller."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from spotctl.agent.errors import RequestRefused
from tests.spotctl.agent.agents import python
from tests.spotctl.agent.conftest import Started
from tests.waiting import eventually


def test_exec_runs_in_the_folder_and_environment_of_the_payload(
    started: Started, tmp_path: Path
) -> None:
    agent = started(
        python("import time; time.sleep(1000)", environment={"COLOUR": "red"}, folder=str(tmp_path))
    )
    client = agent.connect()
    number = client.call(
        "exec", command=["/bin/sh", "-c", "pwd; echo $COLOUR; echo no >&2; exit 4"]
    )["id"]
    told: dict[str, object] = {"code": None}
    out, err = b"", b""
    while told["code"] is None:
        told = client.call("exec_read", id=number, out=len(out), err=len(err))
        out, err = (
            out + base64.b64decode(str(told["out"])),
            err + base64.b64decode(str(told["err"])),
        )
    assert (told["code"], out, err) == (4, f"{tmp_path}\nred\n".encode(), b"no\n")
    with pytest.raises(RequestRefused, match="there is no such command"):
        client.call("exec_read", id=number, out=0, err=0)
    client.close()
    assert not list(agent.folder.glob("exec-*"))


def test_a_command_ends_when_its_caller_disconnects(started: Started) -> None:
    agent = started()
    client = agent.connect()
    client.call("exec", command=["sleep", "1000"])
    assert len(agent.running) == 1
    with pytest.raises(RequestRefused, match="there is no such command"):
        agent.call("exec_read", id=1, out=0, err=0)
    client.close()
    eventually(lambda: not agent.running)


def test_too_many_commands_at_once_are_refused(started: Started) -> None:
    agent = started()
    client = agent.connect()
    for _ in range(16):
        client.call("exec", command=["sleep", "1000"])
    with pytest.raises(RequestRefused, match="16 commands are already running"):
        client.call("exec", command=["sleep", "1000"])
    client.close()
