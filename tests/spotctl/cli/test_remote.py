"""Commands of a user on the machines of a run: real processes, which end with their machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.clouds.errors import Unanswered
from spotctl.clouds.link import Invocation
from spotctl.clouds.local.replayed import Replayed
from spotctl.run import remote
from tests.samples import LAUNCH
from tests.spotctl.approvals import Approved
from tests.spotctl.clouds.fake import FakeProvider
from tests.spotctl.command_line import spotctl
from tests.spotctl.run.worlds import PRICES, START

JOB = """\
name: sleeper
kind: command
run: sleep 600
env: {GREETING: good day}
secrets: [API_KEY]
resources: {clouds: [local], types: [c4.2xlarge]}
local: {speed: 1}
"""


def launcher(folder: Path) -> subprocess.Popen[bytes]:
    path = folder / "job.yaml"
    path.write_text(JOB)
    return beside("launch", str(path), "--yes", API_KEY="a secret")


def beside(*words: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from spotctl.cli.app import main; main()", *words]
    environment = {**os.environ, **environment}
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )


def wait_for_the_machine() -> str:
    """Until the command runs there."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        ended = spotctl("exec", "sleeper", "--json", "--", "printenv", "GREETING")
        if ended.code == 0:
            return str(ended.json["machine"])
        time.sleep(0.1)
    raise AssertionError("no machine came to work")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[str]:
    """The machine of an active run."""
    process = launcher(tmp_path)
    try:
        yield wait_for_the_machine()
    finally:
        spotctl("stop", "--all")
        assert process.wait(300) == 0


@LAUNCH
def test_a_command_on_a_machine(
    machine: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], approved: Approved
) -> None:
    """In the job's folder, with its environment and secrets; the exit code is the command's."""
    script = 'echo "$GREETING, $API_KEY"; pwd; exit 7'
    assert spotctl("exec", "sleeper", "--", "sh", "-c", script).code == 7
    assert capfd.readouterr().out.splitlines() == ["good day, a secret", str(tmp_path)]
    captured = spotctl(
        "exec", "sleeper", "--node", machine, "--json", "--", "sh", "-c", "echo out; echo err >&2"
    ).json
    assert captured == {"machine": machine, "exit_code": 0, "out": "out\n", "err": "err\n"}
    assert spotctl("exec", "sleeper", "--", "sh", "-c", "kill -TERM $$").code == 128 + 15
    missing = spotctl("exec", "sleeper", "--", "no-such-command")
    assert (missing.code, missing.error) == (
        127,
        "spotctl: no-such-command: No such file or directory\n",
    )
    # How many machines there are by now differs.
    far = spotctl("exec", "sleeper", "--node", "9", "--", "true")
    approved(replace(far, err=re.sub(r"0 to \d", "0 to LAST", far.err)))
    assert spotctl("ssh", "sleeper", "--json").json["folder"] == str(tmp_path)
    capfd.readouterr()
    assert spotctl("ssh", "sleeper", SHELL="/bin/true").code == 0
    assert machine in spotctl("ssh", "sleeper", SHELL="/bin/true").err


@LAUNCH
@pytest.mark.slow
def test_a_command_ends_with_its_machine(machine: str, approved: Approved) -> None:
    with beside("stop", "--all"):
        assert spotctl("exec", "sleeper", "--json", "--", "sleep", "100").code == 128 + 9
    over = spotctl("exec", "sleeper", "--", "true")
    approved(over)
    assert machine not in over.error


def test_an_unknown_job(approved: Approved) -> None:
    for command in (["exec", "nobody", "--", "true"], ["ssh", "nobody"]):
        refused = spotctl(*command)
        approved(refused)


class Broken(FakeProvider):
    """Machines to which the connection breaks if a command there ends with 9."""

    def invocation(self, machine: str, command: Sequence[str]) -> Invocation:
        broken = Unanswered(f"{machine}: no answer")
        return Invocation(
            tuple(command), dict(os.environ), "/", lambda code: broken if code == 9 else None
        )


def test_a_machine_that_is_not_reached_is_an_error_and_no_status_of_the_command() -> None:
    provider = Broken(Replayed.of(PRICES.values()), START)
    assert remote.run("m-1", provider, ["sh", "-c", "exit 8"]).returncode == 8
    with pytest.raises(Unanswered, match="m-1: no answer"):
        remote.run("m-1", provider, ["sh", "-c", "exit 9"])
