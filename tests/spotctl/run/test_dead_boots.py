"""Machines that never boot, or slowly, on the three simulated clouds: what is bought, what is
returned and when.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from bidbrain.billing import rule_of_cloud
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.strategies.base import Offer, Rent
from bidbrain.strategies.standard import Standard
from pricing_data.units import DAY, MINUTE
from spotctl.clouds.boot import stated_time
from spotctl.clouds.link import AgentLink
from spotctl.clouds.provider import CloudProvider
from spotctl.clouds.remote import connections
from spotctl.clouds.remote.agents import RemoteAgents
from spotctl.home.wall_clock import WallClock
from spotctl.log import events as ev
from spotctl.log.budget import Tariff
from spotctl.log.outcomes import FAILED
from spotctl.log.state import RunState
from spotctl.planning.facts import OVERHEADS
from spotctl.run.turn.execute import Journal, RetryPolicy
from spotctl.run.turn.reconcile import StrategyTerms
from spotctl.run.turn.service import Runner, RunRules
from spotctl.run.work.workload import Workload
from tests.cloud.api import Rented
from tests.cloud.host import Records
from tests.spotctl.clouds.unreached import Answering, SteadyPrices
from tests.spotctl.run.cloud_kills import CLOUDS, ON_DEMAND, PRICE, Cloud
from tests.spotctl.run.worlds import LEASE_TIMES, RUN, MemoryLog, environment
from tests.waiting import eventually

ZONES = {
    "aws": ("us-east-1a", "us-east-1b"),
    "gcp": ("us-central1-b", "us-central1-a"),
    "azure": ("-",),
}
CONSOLE = {
    "aws": "GetConsoleOutput",
    "gcp": "compute.instances.getSerialPortOutput",
    "azure": "Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action",
}
TURN_SECONDS, MAX_TURNS = 20, 200


class Clock:
    """This process's clock, which the simulated clouds share; it goes on in turns of the run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead, self._now, self._now_ns = 0.0, time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: self._now() + self._ahead)
        monkeypatch.setattr(time, "time_ns", lambda: self._now_ns() + round(self._ahead * 1e9))

    def pass_seconds(self, seconds: float) -> None:
        self._ahead += seconds


@dataclass
class Launch:
    """A run of some machines on a cloud, reached by the agents of a home."""

    cloud: Cloud
    clock: Clock
    provider: CloudProvider
    agents: RemoteAgents
    machines: int = 1
    zones: tuple[str, ...] = ()
    log: MemoryLog = field(default_factory=MemoryLog)
    turns: int = 0

    def run(self, each_turn: Callable[[], None] = lambda: None) -> ev.RunEnded:
        zones = self.zones or ZONES[self.provider.name]
        markets = tuple(replace(self.cloud.market, zone=zone) for zone in zones)
        offers = tuple(Offer(market, 4.0, ON_DEMAND) for market in markets)
        prices = SteadyPrices(markets, PRICE)
        tariff = Tariff(
            lambda market: rule_of_cloud(market.cloud),
            lambda market, now: prices.prices(market, now - DAY, now),
        )
        baseline, most_nu, most = (
            Rent(offers[0], self.machines, None),
            4.0 * self.machines,
            self.machines,
        )
        terms = StrategyTerms(offers, baseline, most_nu, 100.0)
        limits, rule = (
            MachineLimits(most, most, {}, together=most > 1),
            rule_of_cloud(self.provider.name),
        )
        decider = Decider(
            offers,
            baseline,
            None,
            most_nu,
            limits,
            OVERHEADS,
            None,
            Standard(),
            rule,
            LEASE_TIMES.committed,
        )
        journal = self.journal
        if journal.state.began is None:
            journal.write(ev.RunBegan("job", self.provider.name, {}, "", 0))
        here = replace(environment(self.provider), rented=True)
        rules = RunRules(lambda: (decider, terms), tariff)
        runner = Runner(
            journal, here, Workload(), rules, RetryPolicy(first_pause=0.01, longest_pause=0.05)
        )

        def pause() -> None:
            self.turns += 1
            assert self.turns < MAX_TURNS, self.log.rows
            self.clock.pass_seconds(TURN_SECONDS)
            each_turn()

        return runner.run(pause, lambda: 0)

    @property
    def journal(self) -> Journal:
        return Journal(self.log, RUN, self.provider.now)

    @property
    def state(self) -> RunState:
        return self.journal.state

    @property
    def bought(self) -> tuple[Rented, ...]:
        return self.cloud.server.machines()

    @property
    def stated(self) -> int:
        stated = stated_time(self.cloud.market)
        assert stated is not None
        return stated

    def show(self, text: str) -> None:
        """The newest machine writes to its console, and the run's connection to it has seen
        that."""
        server: Any = self.cloud.server
        host: Records = (server.project if self.provider.name == "gcp" else server).host
        host.write_console(host.running()[-1], text)
        machine = self.provider.remote(self.state.alive[-1].id)  # type: ignore[attr-defined]
        before = self.agents.boot_sign(machine)
        eventually(lambda: self.agents.boot_sign(machine) != before or self._looks(machine))

    def _looks(self, machine: object) -> bool:
        self.provider.with_status(
            next(one for one in self.provider.list({}) if one.id == machine.id)  # type: ignore[attr-defined]
        )
        return False


@pytest.fixture(params=sorted(CLOUDS))
def launch(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Launch]:
    for name in ("FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS"):
        monkeypatch.setattr(connections, name, 0.01)
    agents = RemoteAgents(tmp_path / "remote", WallClock())
    with CLOUDS[request.param](tmp_path) as cloud, closing(cloud.provider(agents)) as provider:
        yield Launch(cloud, Clock(monkeypatch), provider, agents)


def test_of_machines_that_never_boot_three_are_bought_one_after_the_other(launch: Launch) -> None:
    ended = launch.run()
    assert ended.outcome == FAILED
    assert ended.message.startswith("3 machines in a row")
    assert f"nothing new for {launch.stated // MINUTE} minutes" in ended.message
    assert len(launch.bought) == 3
    for before, after in pairwise(launch.bought):
        assert before.ended is not None
        assert before.ended <= after.started, "its replacement was ordered before it was gone"
    paid = sum((one.ended or 0) - one.started for one in launch.bought)
    assert paid <= 3 * (launch.stated + TURN_SECONDS * 1e6 + MINUTE // 2)
    zones = ZONES[launch.provider.name]
    assert [order.market.zone for order in launch.state.orders.values()][:2] == [
        zones[0],
        zones[-1],
    ]


def test_a_boot_of_three_times_the_stated_time_that_goes_on_is_kept(launch: Launch) -> None:
    began = launch.provider.now()

    def boots_on() -> None:
        if launch.provider.now() - began > 3 * launch.stated:
            launch.journal.write(ev.StopRequested("stopped", "seen enough"))
        elif launch.turns % 6 == 0:
            launch.show(f"[{launch.turns}] counting memory\n")

    ended = launch.run(boots_on)
    assert ended.outcome == "stopped"
    assert len(launch.bought) == 1
    (held,) = launch.state.machines.values()
    assert (held.phase, held.silence) == ("console", "")
    assert held.signed_at - held.granted_at > 2 * launch.stated


def test_a_boot_that_never_ends_is_returned_although_it_goes_on(launch: Launch) -> None:
    def boots_on() -> None:
        if launch.state.alive and launch.turns % 6 == 0:
            launch.show(f"[{launch.turns}] retrying\n")
        if len(launch.bought) > 1:
            launch.journal.write(ev.StopRequested("stopped", "seen enough"))

    launch.run(boots_on)
    first = min(launch.state.machines.values(), key=lambda held: held.allocation)
    assert first.silence == "it has not come up in 14 minutes (stage: console)"


def test_the_end_quotes_the_last_lines_of_the_console(launch: Launch) -> None:
    def panics() -> None:
        if launch.state.alive and launch.state.alive[-1].phase == "running":
            launch.show(
                "\x1b[0;31m[ 1.2] VFS: cannot open root device\x1b[0m\r\n\r\n[ 1.3] Kernel "
                "panic\x07\n"
            )

    ended = launch.run(panics)
    last = max(launch.state.machines.values(), key=lambda held: held.allocation).id
    quoted = (
        f"the console of {last} ends: [ 1.2] VFS: cannot open root device | [ 1.3] Kernel panic"
    )
    assert quoted in ended.message
    assert "(last stage: console)" in ended.message


def test_a_machine_is_not_silent_while_nobody_looks(launch: Launch) -> None:
    """A laptop sleeps, or the cloud's list of machines fails."""

    def sleeps() -> None:
        if launch.turns == 3:
            launch.clock.pass_seconds(2 * launch.stated / 1e6)
        if launch.provider.now() - launch.state.started > 2.5 * launch.stated:
            launch.journal.write(ev.StopRequested("stopped", "seen enough"))

    launch.run(sleeps)
    assert len(launch.bought) == 1
    (held,) = launch.state.machines.values()
    assert held.silence == ""


def test_without_permission_to_see_the_console_the_stated_time_counts(launch: Launch) -> None:
    server: Any = launch.cloud.server
    denied = server.access.denied if launch.provider.name == "azure" else server.denied
    denied.add(CONSOLE[launch.provider.name])
    ended = launch.run()
    assert (ended.outcome, len(launch.bought)) == (FAILED, 3)
    assert "onsole" in ended.message, "what is not permitted"


def test_of_several_nodes_that_never_boot_one_is_lost_at_a_time(launch: Launch) -> None:
    launch.machines = 4
    ended = launch.run()
    assert ended.outcome == FAILED
    assert [order.machines for order in launch.state.orders.values()] == [1, 1, 1]
    assert len(launch.bought) == 3


def test_the_other_nodes_are_ordered_once_one_has_answered(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch.machines = 4
    answers, ask = set[str](), launch.provider.link

    def link(machine: str) -> AgentLink:
        return cast("AgentLink", Answering()) if machine in answers else ask(machine)

    def boots() -> None:
        answers.update(held.id for held in launch.state.alive if launch.turns >= 3)
        if len(launch.bought) == launch.machines and launch.turns >= 6:
            launch.journal.write(ev.StopRequested("stopped", "seen enough"))

    monkeypatch.setattr(launch.provider, "link", link)
    assert launch.run(boots).outcome == "stopped"
    assert [order.machines for order in launch.state.orders.values()] == [1, 3]
    assert len(launch.bought) == launch.machines


@pytest.mark.parametrize("launch", ["gcp"], indirect=True)
def test_where_the_market_leaves_the_zone_open_the_next_machine_is_in_another(
    launch: Launch,
) -> None:
    launch.zones = ("-",)
    launch.run()
    zones = [name.split(":")[1] for name in launch.state.machines]
    assert len(zones) == 3
    assert all(before != after for before, after in pairwise(zones))
