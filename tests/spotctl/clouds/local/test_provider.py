"""Local machines: the contracts on real processes, evictions by the market, and what a killed
machine leaves.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.agent.container.payload import Payload
from spotctl.agent.lease.lease_files import MachineNotice
from spotctl.clouds.errors import NoCapacity, NotFound, ProviderError, QuotaReached
from spotctl.clouds.local.provider import LocalProvider, MarketBusy
from spotctl.clouds.provider import EndReason, Machine, MachineRequest, MachineState
from spotctl.home.errors import BadSettings
from tests.spotctl.clouds import markets
from tests.spotctl.clouds.contract import LinkContract, ProviderContract, Setting
from tests.spotctl.clouds.leaving import kill_all, running
from tests.spotctl.clouds.local.conftest import local
from tests.spotctl.clouds.markets import BEGIN, BID, CALM, CLOSES, PEAK, PEAK_AT, UNKNOWN, WILD
from tests.waiting import eventually

FAST = 3600.0
SLEEPER = Payload("sleeper", ("sleep", "1000"))
FAR = CLOSES


def order(token: str = "t", machines: int = 2, payload: Payload | None = None) -> MachineRequest:
    return markets.order(token, FAR, machines, payload=payload)


def gone(provider: LocalProvider) -> dict[str, Machine]:
    eventually(lambda: all(one.state is MachineState.GONE for one in provider.list({})))
    return {one.id: one for one in provider.list({})}


def in_time(root: Path, act: Callable[[LocalProvider, Path], bool], **settings: object) -> None:
    """Does something before a moment of the market; where it comes too soon for a busy computer, in
    a slower market.
    """
    for speed in (FAST, FAST / 8, FAST / 64):
        home = root / f"{speed:g}"
        provider = local(home, **settings)
        provider.begin(BEGIN, speed)
        if act(provider, home):
            return
    raise AssertionError("the market was too fast for this computer")


def told(provider: LocalProvider, machine: str) -> tuple[MachineState, int | None]:
    """What a machine's agent says of its state."""
    listed = next(one for one in provider.list({}) if one.id == machine)
    complete = provider.with_status(listed)
    return complete.state, complete.warned_until


class TestContract(ProviderContract, LinkContract):
    @pytest.fixture
    def setting(self, root: Path) -> Setting:
        provider = local(root)
        provider.begin(BEGIN, FAST)
        payload = markets.python("raise SystemExit(3)")
        return Setting(
            provider,
            CALM,
            BID,
            UNKNOWN,
            payload,
            lambda seconds: time.sleep(max(seconds / FAST, 0.01)),
        )


def test_nothing_of_a_machine_runs_once_it_is_gone(slow: LocalProvider, root: Path) -> None:
    machines = slow.create(order(payload=SLEEPER))
    assert {one.state for one in machines} == {MachineState.RUNNING}
    assert len(running(root)) == 6
    slow.terminate([one.id for one in machines])
    gone(slow)
    eventually(lambda: not running(root))
    assert slow.resources({}) == ()


def test_an_order_does_not_end_what_delays_the_run(slow: LocalProvider, root: Path) -> None:
    """The run's own wait goes on, and its next one has a minute of its own."""

    def since() -> int | None:
        (file,) = (root / "delays").glob(f"{os.getpid()}-*.json")
        starting: int | None = json.loads(file.read_text())["starting"]
        return starting

    with closing(slow):
        slow.attend(starting="the run")
        begun = since()
        slow.create(order())
        assert begun is not None
        assert since() == begun
        slow.attend(starting="programs")
        later = since()
        assert later is not None
        assert later > begun
        slow.attend()
        assert since() is None


def test_the_market_warns_and_evicts_when_the_price_rises(root: Path) -> None:
    provider = local(root, warning_seconds=0.5)
    provider.begin(PEAK_AT - 5 * MINUTE, 120.0)
    spot = provider.create(replace(order("spot", payload=SLEEPER), market=WILD))
    assert {told(provider, one.id) for one in spot} == {(MachineState.RUNNING, None)}
    dear = provider.create(replace(order("dear", 1), market=WILD, bid=PEAK))
    reliable = provider.create(replace(order("reliable", 1), market=WILD, bid=None))
    eventually(lambda: told(provider, spot[0].id) == (MachineState.LEAVING, PEAK_AT))
    assert provider.link(spot[0].id).notices() == (MachineNotice("evict", PEAK_AT, "local"),)
    taken = [one.id for one in spot]
    eventually(lambda: all(one.state is MachineState.GONE for one in provider.list(spot[0].tags)))
    found = {one.id: one for one in provider.list({})}
    assert {(found[one].ended, found[one].end_reason) for one in taken} == {
        (PEAK_AT, EndReason.EVICTED)
    }
    assert {found[one.id].state for one in (*dear, *reliable)} == {MachineState.RUNNING}
    with pytest.raises(NoCapacity, match="more than the bid"):
        provider.create(replace(order("late"), market=WILD))


def test_an_eviction_may_come_without_a_warning(root: Path) -> None:
    def evicted(provider: LocalProvider, home: Path) -> bool:
        try:
            (machine,) = provider.create(replace(order("t", 1, SLEEPER), market=WILD))
        except NoCapacity:
            return False
        (taken,) = gone(provider).values()
        assert (taken.id, taken.ended, taken.end_reason) == (machine.id, PEAK_AT, EndReason.EVICTED)
        job = (home / "machines").joinpath(*machine.id.split("-"), "job")
        assert not (job / "notice.json").exists()
        return job.exists()

    in_time(root, evicted, unwarned=1.0)


def test_output_and_exit_code_of_a_payload_can_be_read(slow: LocalProvider) -> None:
    say = markets.python(
        "import os; print('machine', os.environ['SPOTCTL_INDEX'], os.environ['KEY']); raise "
        "SystemExit(3)"
    )
    first, second = slow.create(replace(order(payload=say), secrets={"KEY": "hush"}))
    eventually(lambda: all(slow.link(one.id).status().exit_code == 3 for one in (first, second)))
    assert slow.output(first.id) == b"machine 0 hush\n"
    assert slow.output(second.id, after=8) == b"1 hush\n"
    slow.link(first.id).assign(markets.python("print('next')", name="next"))
    eventually(lambda: slow.link(first.id).status().exit_code == 0)
    assert [slow.link(one.id).status().work for one in (first, second)] == ["next", "work"]
    assert slow.output(first.id, after=15) == b"next\n"
    with pytest.raises(NotFound, match="never-0"):
        slow.output("never-0")


def test_secrets_are_never_written(slow: LocalProvider, root: Path) -> None:
    slow.create(replace(order(payload=SLEEPER), secrets={"KEY": "hush-hush"}))
    assert all(b"hush-hush" not in path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_the_market_outlives_the_process_that_started_it(root: Path) -> None:
    provider = local(root)
    with pytest.raises(NotFound, match="was not started"):
        provider.now()
    with pytest.raises(NotFound, match="was not started"):
        provider.create(order())
    assert not provider.has_begun
    assert provider.list({}) == ()
    with pytest.raises(BadSettings, match="speed of 0"):
        provider.begin(BEGIN, 0.0)
    provider.begin(BEGIN, 60.0)
    before = provider.now()
    other = local(root)
    assert other.has_begun
    assert other.speed == 60.0
    assert before <= other.now() <= provider.now()
    (machine,) = provider.create(order("t", 1))
    assert other.list({}) == (machine,)
    with pytest.raises(MarketBusy, match="1 machines run"):
        other.begin(BEGIN, 1.0)
    other.terminate([machine.id])
    gone(provider)
    other.begin(BEGIN + HOUR, 1.0)
    assert BEGIN + HOUR <= provider.now() < BEGIN + HOUR + 30 * MINUTE


def test_the_number_of_machines_is_limited(root: Path) -> None:
    provider = local(root, most_machines=3)
    provider.begin(BEGIN, 1.0)
    assert len(provider.create(order("a"))) == 2
    (third,) = provider.create(order("b"))
    with pytest.raises(QuotaReached, match="3 local machines are running"):
        provider.create(order("c"))
    provider.terminate([third.id])
    eventually(lambda: provider.list({})[2].state is MachineState.GONE)
    assert len(provider.create(order("c"))) == 1


@pytest.mark.parametrize("process", ["pid", "agent"])
def test_a_machine_whose_hypervisor_or_agent_is_killed_has_failed(
    slow: LocalProvider, root: Path, process: str
) -> None:
    """Nothing of it keeps running, not even what has left the process group, which the kernel does
    not kill.
    """
    family = markets.python(
        "import os, time\n"
        "if os.fork() == 0:\n os.setsid()\n time.sleep(1000)\n"
        "print('here', flush=True)\ntime.sleep(1000)"
    )
    killed, left = slow.create(order(payload=family))
    eventually(lambda: all(slow.output(one.id) for one in (killed, left)))
    of_killed = [pid for pid, mark in running(root) if mark.name == "0"]
    assert len(of_killed) == 2
    before = slow.now()
    (state,) = root.glob("machines/*/0/state.json")
    os.kill(json.loads(state.read_text())[process], signal.SIGKILL)
    eventually(lambda: slow.list({})[0].state is MachineState.GONE)
    found = slow.list({})[0]
    assert found.end_reason is EndReason.FAILED
    assert found.ended is not None
    # The hypervisor may have read the time just before it learned that the clock stands.
    assert before <= found.ended <= slow.now() + SECOND
    assert not [pid for pid, mark in running(root) if mark.name == "0"]
    assert slow.list({})[0] == found, "its end does not move"
    assert slow.list({})[1].state is MachineState.RUNNING
    assert slow.create(order(payload=family))[0] == found, "and it is not started again"
    assert left.id == slow.list({})[1].id


def test_a_request_that_was_granted_but_not_started_waits_for_its_caller(
    slow: LocalProvider, root: Path
) -> None:
    """As after a SIGKILL of the caller between grant and start."""
    asked = replace(order(payload=SLEEPER), lease_until=BEGIN + 30 * MINUTE)
    slow.create(asked)
    kill_all(root)
    for name in ("state.json", "end.json"):
        for path in root.glob(f"machines/*/*/{name}"):
            path.unlink()
    assert {one.state for one in slow.list({})} == {MachineState.STARTING}
    assert len(slow.resources({})) == 2
    first, second = slow.create(asked)
    assert {one.state for one in slow.list({})} == {MachineState.RUNNING}
    assert len(running(root)) == 6
    slow.terminate([first.id, second.id])
    gone(slow)


def test_a_machine_that_is_never_started_ends_with_its_lease_or_a_termination(root: Path) -> None:
    def ended(provider: LocalProvider, home: Path) -> bool:
        asked = replace(order(), lease_until=BEGIN + HOUR)
        machines = provider.create(asked)
        kill_all(home)
        for name in ("state.json", "end.json"):
            for path in home.glob(f"machines/*/*/{name}"):
                path.unlink(missing_ok=True)
        provider.terminate([machines[0].id])
        if provider.now() >= asked.lease_until:
            return False
        found = gone(provider)
        assert [found[one.id].end_reason for one in machines] == [
            EndReason.RETURNED,
            EndReason.LEASE_ENDED,
        ]
        assert found[machines[1].id].ended == asked.lease_until
        return True

    in_time(root, ended)


def test_concurrent_callers_with_one_token_get_the_same_machines(
    slow: LocalProvider, root: Path
) -> None:
    """Processes that only list machines meanwhile do not block them."""
    with ThreadPoolExecutor(6) as pool:
        looks = [pool.submit(lambda: [local(root).list({}) for _ in range(50)]) for _ in range(2)]
        rents = [pool.submit(local(root).create, order("t", 3, SLEEPER)) for _ in range(4)]
        got = [{one.id for one in rent.result()} for rent in rents]
        for look in looks:
            look.result()
    assert got == [got[0]] * 4
    eventually(lambda: len(running(root)) == 9)
    assert [one.state for one in slow.list({})] == [MachineState.RUNNING] * 3


def test_a_machine_that_cannot_start_has_failed_and_logs_why(
    slow: LocalProvider, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = root.parent / "python"
    broken.write_text("#!/bin/sh\necho no such interpreter >&2\nexit 1\n")
    broken.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(broken))
        found = slow.create(order())
    assert {(one.state, one.end_reason) for one in found} == {(MachineState.GONE, EndReason.FAILED)}
    (log,) = root.glob("machines/*/agent.log")
    assert log.read_text() == "no such interpreter\n"


def test_nothing_is_granted_if_the_disk_cannot_be_written(slow: LocalProvider, root: Path) -> None:
    shutil.rmtree(root / "machines")
    (root / "machines").write_text("in the way")
    with pytest.raises(ProviderError, match="cannot be written: File exists; make room"):
        slow.create(order())


def test_machines_that_ended_long_ago_are_forgotten_and_running_ones_are_not(
    slow: LocalProvider, root: Path
) -> None:
    old = slow.create(order("old", 1))[0]
    lives = slow.create(order("lives", 1))[0]
    slow.terminate([old.id])
    eventually(lambda: slow.list(old.tags)[0].state is MachineState.GONE)
    (root / "machines" / ".new-left-by-a-killed-caller").mkdir()
    ages_ago = time.time() - 8 * 24 * 3600
    for path in root.rglob("*"):
        os.utime(path, (ages_ago, ages_ago))
    new = slow.create(order("new", 1))[0]
    assert {one.id for one in slow.list({})} == {lives.id, new.id}
    assert not list((root / "machines").glob(".*"))
