"""`AgentLink` with a real agent: how failures of the connection become errors of a provider."""

from __future__ import annotations

import signal
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from pricing_data.units import HOUR
from spotctl.clouds import link as links
from spotctl.clouds.errors import NotFound, NotPermitted, Throttled, Unanswered
from spotctl.clouds.link import AgentLink, ExecResult, link_key, link_secret
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import MachineRequest, MachineState
from spotctl.home.errors import BadRequest
from tests.spotctl.agent.agents import SECRET, Agent, python
from tests.spotctl.clouds.fake import FakeLink, FakeProvider
from tests.spotctl.run.worlds import MARKETS, PRICES, START
from tests.waiting import eventually


@dataclass
class FastClock:
    """A provider's clock that runs 100 times faster than the computer's."""

    speed: float = 100.0

    def now(self) -> int:
        return round(time.monotonic() * self.speed * 1e6)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    started = Agent(tmp_path, python("import time; print('hello', flush=True); time.sleep(1000)"))
    yield started
    started.close()


def to(agent: Agent, secret: bytes = SECRET, *, gone: bool = False) -> AgentLink:
    return AgentLink(lambda: ("127.0.0.1", agent.port), "m-0", secret, FastClock(), lambda: gone)


def test_a_wrong_secret_is_a_lack_of_permission(agent: Agent) -> None:
    with pytest.raises(
        NotPermitted, match="m-0 refused the connection: wrong secret; was the machine rented"
    ):
        to(agent, bytes(32)).status()
    assert to(agent).status().work == "work"


def test_times_of_the_provider_become_seconds_of_the_machine(agent: Agent) -> None:
    link, clock = to(agent), FastClock()
    link.renew(clock.now() + 10**12)
    assert link.status().lease_until > clock.now()
    link.renew(clock.now() + 20_000_000)
    assert agent.exit_code() == 3, "20 seconds of the provider are a fifth of a second here"


def test_a_dead_agent_is_unanswered_until_its_provider_knows_that_it_is_gone(agent: Agent) -> None:
    link = to(agent)
    link.status()
    agent.process.kill()
    agent.process.wait()
    with pytest.raises(Unanswered, match="the machine may be starting or gone"):
        link.status()
    with pytest.raises(NotFound, match="m-0: gone"):
        to(agent, gone=True).status()


def test_a_hung_agent_is_not_asked_again_at_once(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "CALL_SECONDS", 0.2)
    link = to(agent)
    link.status()
    agent.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(Unanswered, match="timed out"):
            link.status()
        with pytest.raises(Unanswered, match="asks again in a few seconds"):
            link.status()
    finally:
        agent.process.send_signal(signal.SIGCONT)
    monkeypatch.setattr(link, "_silent_until", 0.0)
    assert link.status().work == "work"


def test_a_connection_that_died_is_opened_again(agent: Agent) -> None:
    link = to(agent)
    link.status()
    assert link._client is not None
    link._client.close()
    assert link.status().work == "work"


def test_a_command_runs_and_prints(agent: Agent) -> None:
    link = to(agent)
    assert link.exec(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"]) == ExecResult(
        3, b"out\n", b"err\n"
    )
    assert len(link.exec(["/bin/sh", "-c", "head -c 500000 /dev/zero"]).out) == 500_000
    assert link.exec(["/no/such/program"]).exit_code == 127
    with pytest.raises(BadRequest, match="exec needs a command"):
        link.exec([])


def arguments(pid: int) -> bytes:
    """The words of a process, separated by zeros; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_command_is_killed_with_its_machine(agent: Agent) -> None:
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(to(agent, gone=True).exec, ["/bin/sh", "-c", "sleep 1000"])
        try:
            eventually(lambda: any(b"sleep\x001000" in arguments(pid) for pid in agent.running))
            # The agent answers one request after the other: by now the caller knows that its
            # command was started.
            to(agent).status()
        finally:
            agent.process.kill()
        assert ended.result().exit_code == -signal.SIGKILL


def test_output_is_read_from_an_offset(agent: Agent) -> None:
    link = to(agent)
    while link.output() != b"hello\n":
        time.sleep(0.01)
    assert link.output(after=3) == b"lo\n"
    assert link.output(after=6) == b""


def test_only_the_owner_can_read_the_key_of_links(tmp_path: Path) -> None:
    key = link_key(tmp_path)
    assert link_key(tmp_path) == key
    assert stat.S_IMODE((tmp_path / "link.key").stat().st_mode) == 0o600
    assert link_secret(key, "a-0") != link_secret(key, "a-1")
    assert key not in (link_secret(key, "a-0"), link_secret(key, "a-1"))


def test_a_machine_whose_cloud_is_asked_too_often_counts_as_starting() -> None:
    """The others are looked at all the same."""

    class Busy(FakeProvider):
        def link(self, machine: str) -> FakeLink:
            raise Throttled(f"{machine}: slow down")

    cloud = Busy(Replayed.of(PRICES.values()), START)
    (machine,) = cloud.create(MachineRequest("t", MARKETS[0], 1, None, START + HOUR))
    assert cloud.with_status(machine).state is MachineState.STARTING
