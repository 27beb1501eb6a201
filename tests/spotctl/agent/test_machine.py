"""A machine's agent, each time in a real process: what it runs, what it kills, and that it ends in
time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spotctl.agent.container.payload import Payload
from spotctl.agent.errors import LinkLost, LinkTimeout, MachineEnding
from spotctl.agent.lease.lease_files import LeaseHolder
from spotctl.agent.machine import LEASE_ENDED, SHUT_DOWN
from tests.spotctl.agent.agents import CODE, python
from tests.spotctl.agent.conftest import Started
from tests.waiting import eventually

IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked to end", flush=True))
print("here", flush=True)
while True: time.sleep(0.05)
"""
SAVES_ON_SIGTERM = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(0)))
print("here", flush=True)
while True: time.sleep(0.05)
"""
# A child in the same group, and a grandchild that has left it as daemons do.
FAMILY = """
import os, time
if os.fork() == 0: time.sleep(1000)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(1000)
    os._exit(0)
os.wait()
print("here", flush=True)
time.sleep(1000)
"""
# One that has lost its mark, and is known by its group only.
UNMARKED = """
import os, time
child = os.fork()
if child == 0: os.execve("/bin/sleep", ["sleep", "1000"], {})
print(child, flush=True)
time.sleep(1000)
"""
SHOW = """
import os
print(os.environ["SPOTCTL_INDEX"], os.environ["COLOUR"], os.environ["SECRET"], os.path.basename(os.getcwd()))
"""


def test_it_waits_without_a_payload_and_ends_with_its_lease(started: Started) -> None:
    agent = started()
    assert agent.call("status") == {"work": "", "exit_code": None, "lease_until": 1, "notices": 0}
    agent.call("renew", until=5, seconds=0.3)
    written = json.loads((agent.folder / "lease.json").read_text())
    assert written["until"] == 5
    assert abs(written["monotonic"] - time.monotonic()) < 60
    assert agent.exit_code() == LEASE_ENDED


def test_a_payload_gets_its_environment_and_the_secrets(started: Started) -> None:
    agent = started(python(SHOW, environment={"COLOUR": "red"}))
    assert agent.result() == 0
    assert agent.output == "7 red hush work\n"
    assert agent.process.poll() is None, "the agent waits for other work"
    assert b"hush" not in b"".join(path.read_bytes() for path in agent.folder.rglob("*.json"))


@pytest.mark.parametrize(
    ("code", "result"),
    [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9), (None, 127)],
)
def test_the_exit_code_says_how_a_payload_ended(
    started: Started, code: str | None, result: int
) -> None:
    agent = started(Payload("work", ("/no/such/program",)) if code is None else python(code))
    assert agent.result() == result
    if code is None:
        assert "/no/such/program: cannot be started: " in agent.output


def test_a_new_payload_replaces_the_old_one_after_its_grace(started: Started) -> None:
    agent = started(python(SAVES_ON_SIGTERM, "first", grace_seconds=60.0))
    eventually(lambda: agent.output == "here\n")
    agent.assign(python("print('second')", "second"))
    assert agent.result() == 0
    assert agent.output == "here\nsaved\nsecond\n"
    agent.assign(python("print('second again')", "second"))
    agent.assign(python("print('third')", "third"))
    assert agent.result() == 0
    assert agent.output.endswith("second\nthird\n")


def test_the_agent_answers_while_a_payload_is_given_grace(started: Started) -> None:
    agent = started(python(IGNORES_SIGTERM, "first", grace_seconds=60.0))
    eventually(lambda: agent.output == "here\n")
    agent.assign(python("print('second')", "second"))
    eventually(lambda: "asked to end" in agent.output)
    status = agent.call("status")
    assert (status["work"], status["exit_code"]) == ("second", None)
    assert "second" not in agent.output


def test_a_lease_that_ends_kills_everything_after_the_grace(started: Started) -> None:
    agent = started(python(FAMILY, grace_seconds=0.1))
    eventually(lambda: agent.output == "here\n")
    assert len(agent.running) == 3
    agent.call("renew", until=2, seconds=0.0)
    assert agent.exit_code() == LEASE_ENDED
    assert agent.running == []


def test_a_process_without_the_mark_is_killed_with_its_group(started: Started) -> None:
    agent = started(python(UNMARKED))
    eventually(lambda: agent.output.endswith("\n"))
    child = Path(f"/proc/{agent.output.strip()}")
    eventually(lambda: (child / "comm").read_text() == "sleep\n")
    agent.process.terminate()
    assert agent.exit_code() == SHUT_DOWN
    eventually(lambda: not child.exists())


@pytest.mark.parametrize("term", [True, False])
def test_a_notice_reaches_the_payload(started: Started, term: bool) -> None:
    agent = started(python(IGNORES_SIGTERM, term_at_notice=term, grace_seconds=0.0))
    eventually(lambda: agent.output == "here\n")
    agent.call("notify", kind="evict", until=9, seconds=60.0, source="test")
    holder = LeaseHolder(agent.folder / "job")
    notice = holder.notice()
    assert notice is not None
    assert (notice.kind, notice.source) == ("evict", "test")
    assert agent.call("notices") == {"notices": [{"kind": "evict", "until": 9, "source": "test"}]}
    if term:
        eventually(lambda: agent.output == "here\nasked to end\n")
    agent.assign(python("print('second')", "second", grace_seconds=0.0))
    agent.result()
    assert agent.output.count("asked to end") == (1 if term else 0)
    assert LeaseHolder(agent.folder / "job").notice() is not None, "a new payload is told, too"


def test_a_hint_does_not_send_a_signal(started: Started) -> None:
    agent = started(python(SAVES_ON_SIGTERM))
    eventually(lambda: agent.output == "here\n")
    agent.call("notify", kind="hint", until=9, seconds=60.0, source="test")
    assert LeaseHolder(agent.folder / "job").notice() is not None
    assert agent.call("status")["exit_code"] is None


def test_the_payloads_lease_follows_the_machines(started: Started) -> None:
    agent = started(python(IGNORES_SIGTERM))
    holder = LeaseHolder(agent.folder / "job")
    first = holder.lease()
    agent.call("renew", until=2, seconds=100.0)
    assert holder.lease().number > first.number
    assert 90 < holder.lease().ends - time.monotonic() <= 100


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_shutdown_gives_the_payload_its_grace(started: Started, number: signal.Signals) -> None:
    agent = started(python(SAVES_ON_SIGTERM, grace_seconds=60.0))
    eventually(lambda: agent.output == "here\n")
    agent.process.send_signal(number)
    assert agent.exit_code() == SHUT_DOWN
    assert agent.output == "here\nsaved\n"


def test_a_payload_that_does_not_end_within_its_grace_is_killed(started: Started) -> None:
    agent = started(python(IGNORES_SIGTERM, grace_seconds=0.2))
    eventually(lambda: agent.output == "here\n")
    agent.process.terminate()
    assert agent.exit_code() == SHUT_DOWN
    assert agent.output == "here\nasked to end\n"
    assert agent.running == []


def test_an_agent_that_is_ending_answers_but_takes_no_more_work(started: Started) -> None:
    agent = started(python(IGNORES_SIGTERM, grace_seconds=60.0))
    eventually(lambda: agent.output == "here\n")
    agent.process.terminate()
    eventually(lambda: agent.output == "here\nasked to end\n")
    assert agent.call("status")["exit_code"] is None
    for call in (
        lambda: agent.assign(python("pass", "next")),
        lambda: agent.call("renew", until=3, seconds=1000.0),
        lambda: agent.call("exec", command=["true"]),
    ):
        with pytest.raises(MachineEnding, match="m-0 is ending"):
            call()


def test_a_killed_agent_takes_its_payload_along(started: Started) -> None:
    agent = started(python(IGNORES_SIGTERM))
    eventually(lambda: agent.output == "here\n")
    client = agent.connect()
    client.call("status")
    agent.process.kill()
    eventually(lambda: not agent.running)
    with pytest.raises(LinkLost):
        client.call("status")
    with pytest.raises(LinkLost, match="no agent answers"):
        agent.connect()


def test_an_agent_that_hangs_times_out(started: Started) -> None:
    agent = started()
    client = agent.connect(seconds=0.2)
    agent.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(LinkTimeout):
            client.call("status")
        with pytest.raises(LinkTimeout):
            agent.connect(seconds=0.2)
    finally:
        agent.process.send_signal(signal.SIGCONT)
    assert agent.call("status")["work"] == ""


def test_a_lease_that_is_over_at_the_start_runs_nothing_for_long(started: Started) -> None:
    agent = started(seconds=0.0)
    assert agent.exit_code() == LEASE_ENDED


def test_it_loads_the_standard_library_and_its_own_package_only() -> None:
    names = "spotctl.agent.machine, spotctl.clouds.local.hypervisor"
    shown = subprocess.run(
        [sys.executable, "-E", "-S", "-c", f"import {names}, sys; print(*sys.modules)"],
        cwd=CODE,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    ours = {"spotctl", "agileml", "__main__"}
    assert {name.partition(".")[0] for name in shown} - sys.stdlib_module_names - ours == set()
    # Of AgileML the ground shelf alone, which needs no other module.
    shelf = {"agileml", "agileml.runtime", "agileml.runtime.ground"}
    assert {name for name in shown if name.partition(".")[0] == "agileml"} <= shelf
