"""The kill matrix of launches on the three clouds: runners killed around every request and every
write to the log.

    python -m tests.spotctl.run.cloud_kills [--cloud gcp] [--every 10] [--seed 1]

A run rents machines, its work is done, and it returns them, against the API server of a cloud whose
machines are records. Its runner is a process that meets its fate at one point: it is killed by
SIGKILL before or after a request of the cloud's SDK or a write to the event log, or the answer to a
request is lost although it was carried out. Another process then resumes the run. The server says
what was bought, and what is left; the command prints every violation.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import urllib3
from urllib3.connectionpool import HTTPConnectionPool

from bidbrain.billing import rule_of_cloud
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.strategies.base import Offer, Rent
from bidbrain.strategies.standard import Standard
from pricing_data.market import Market
from pricing_data.units import DAY, MINUTE, NANOS_PER_DOLLAR
from spotctl.agent.container.payload import Payload
from spotctl.clouds.link import AgentLink
from spotctl.clouds.provider import CloudProvider, Machine
from spotctl.clouds.remote.agents import RemoteAgents
from spotctl.clouds.remote.connections import RemoteMachine
from spotctl.log.budget import Tariff
from spotctl.log.events import Event, RentIntended, RunBegan
from spotctl.log.outcomes import DONE
from spotctl.log.state import LogRow, RunState
from spotctl.log.store import EventLog
from spotctl.planning.facts import OVERHEADS
from spotctl.run.turn.ending import RunLimits
from spotctl.run.turn.execute import Journal, RetryPolicy
from spotctl.run.turn.reconcile import StrategyTerms
from spotctl.run.turn.service import Runner, RunRules
from spotctl.run.work.workload import Workload, WorkReport
from tests.cloud.api import ApiServer
from tests.spotctl.clouds.unreached import Answering, SteadyPrices, Unreached
from tests.spotctl.run.worlds import LEASE_TIMES, RUN, environment

SPOT, RELIABLE = 2, 1
PRICE, ON_DEMAND = NANOS_PER_DOLLAR // 50, NANOS_PER_DOLLAR // 10
FATES = ("killed before", "killed after", "answer lost")
ENOUGH_SECONDS = 600


class Reached(Unreached):
    """Agents that answer and do nothing."""

    def link(self, machine: RemoteMachine) -> AgentLink:  # noqa: ARG002
        return cast("AgentLink", Answering())


@dataclass(frozen=True)
class Cloud:
    """An API server, a market on it, and providers for it as different processes have them."""

    server: ApiServer
    market: Market
    provider: Callable[..., CloudProvider]
    """With other agents than `Reached`, if any are given."""


@contextmanager
def on_aws(_: Path) -> Iterator[Cloud]:
    # The modules of one cloud's server are not imported for another, because that takes longer than
    # a fate.
    from tests.spotctl.clouds.aws import standins as aws
    from tests.spotctl.clouds.aws.ec2 import Ec2, running_ec2

    settings = replace(aws.SETTINGS, regions=("us-east-1",))
    with pytest.MonkeyPatch.context() as environ, running_ec2(environ, Ec2) as ec2:
        yield Cloud(
            ec2, aws.MARKET, lambda agents=None: aws.provider(settings, agents or Reached())
        )


@contextmanager
def on_gcp(folder: Path) -> Iterator[Cloud]:
    from tests.spotctl.clouds.gcp import world as gcp

    with gcp.world(folder) as made:
        yield Cloud(
            made.server,
            gcp.N2,
            lambda agents=None: made.provider(cast("RemoteAgents", agents or Reached())),
        )


@contextmanager
def on_azure(_: Path) -> Iterator[Cloud]:
    from tests.spotctl.clouds.azure import world as azure

    with azure.running_world() as made:
        yield Cloud(
            made.server,
            azure.MARKET,
            lambda agents=None: azure.provider_of(made.server, agents or Reached()),
        )


CLOUDS: Mapping[str, Callable[[Path], Any]] = {"aws": on_aws, "gcp": on_gcp, "azure": on_azure}


class Visit(Workload):
    """Work that is done as soon as all machines that it wants are there, of both kinds.

    Google Cloud creates machines one by one: of an order that is interrupted, those that exist by
    then come, and the run orders the others.
    """

    def payload(self, order: RentIntended) -> Payload:
        return Payload(f"visit-{order.intent}", ("true",))

    def turn(self, state: RunState, machines: Sequence[Machine], now: int) -> WorkReport:  # noqa: ARG002
        listed = {machine.id for machine in machines}
        reliable = [
            state.allocations[held.allocation].reliable for held in state.alive if held.id in listed
        ]
        ordered = state.unclear or any(isinstance(one, RentIntended) for one in state.open.values())
        complete = not ordered and sorted(reliable) == [False] * SPOT + [True] * RELIABLE
        return WorkReport(outcome=DONE if complete else None)


@dataclass
class Fate:
    """Meets every request and every write of this process; what happens at point number `at` is
    `kind`.
    """

    at: int = -1
    kind: str = ""
    count: int = 0

    # What the act returns.
    def meet(self, act: Callable[[], Any], lost: Exception | None = None) -> Any:  # noqa: ANN401
        self.count += 1
        if self.count - 1 != self.at:
            return act()
        if self.kind == "killed before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = act()
        if self.kind == "killed after":
            os.kill(os.getpid(), signal.SIGKILL)
        if lost is not None:
            raise lost
        return answer

    def governs_requests(self) -> None:
        """From now on and for the rest of this process, all SDKs' requests are points: they share
        urllib3.
        """
        usual = HTTPConnectionPool.urlopen

        # As urllib3 has it.
        def urlopen(pool: HTTPConnectionPool, *given: Any, **named: Any) -> Any:  # noqa: ANN401
            gone = urllib3.exceptions.ProtocolError("the answer was lost")
            return self.meet(lambda: usual(pool, *given, **named), gone)

        HTTPConnectionPool.urlopen = urlopen  # type: ignore[assignment]


class FatedLog(EventLog):
    """A log whose writes are points."""

    def __init__(self, path: Path, fate: Fate) -> None:
        super().__init__(path)
        self._fate = fate

    def append_if(
        self, run: str, at: int, event: Event, holds: Callable[[], bool]
    ) -> LogRow | None:
        row: LogRow | None = self._fate.meet(
            lambda: super(FatedLog, self).append_if(run, at, event, holds)
        )
        return row


def run(cloud: Cloud, log: Path, fate: Fate) -> None:
    """A process that begins the run, or resumes it where another died."""
    fate.governs_requests()
    offer, billing = Offer(cloud.market, 4.0, ON_DEMAND), rule_of_cloud(cloud.market.cloud)
    baseline, reliable, most_nu = Rent(offer, SPOT, None), Rent(offer, RELIABLE, None), 4.0 * SPOT
    terms = StrategyTerms((offer,), baseline, most_nu, 100.0, reliable)
    limits = MachineLimits(1, SPOT, {})
    decider = Decider(
        (offer,),
        baseline,
        reliable,
        most_nu,
        limits,
        OVERHEADS,
        None,
        Standard(),
        billing,
        LEASE_TIMES.committed,
    )
    prices = SteadyPrices((cloud.market,), PRICE)
    tariff = Tariff(
        lambda market: rule_of_cloud(market.cloud),
        lambda market, now: prices.prices(market, now - DAY, now),
    )
    with closing(cloud.provider()) as provider, FatedLog(log, fate) as opened:
        journal = Journal(opened, RUN, provider.now)
        if journal.state.began is None:
            journal.write(RunBegan("job", provider.name, {}, "", 0))
        rules = RunRules(lambda: (decider, terms), tariff, RunLimits(without_machines=2 * MINUTE))
        here = replace(environment(provider), rented=True)
        runner = Runner(
            journal, here, Visit(), rules, RetryPolicy(first_pause=0.01, longest_pause=0.05)
        )
        ended = runner.run(lambda: time.sleep(0.02), lambda: 0)
        assert ended.outcome == DONE, ended


def in_child(cloud: Cloud, log: Path, fate: Fate, counted: Path | None = None) -> int:
    """The wait status of a process that runs it; it writes the number of points that it met."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(ENOUGH_SECONDS)
            run(cloud, log, fate)
            if counted is not None:
                counted.write_text(str(fate.count))
            code = 0
        except BaseException as error:  # noqa: BLE001 - the parent prints it
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            sys.stderr.flush()
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def check(cloud: Cloud) -> None:
    """The server knows each machine that was ordered once, and nothing is left."""
    give_up = time.monotonic() + ENOUGH_SECONDS
    while any(one.ended is None for one in cloud.server.machines()) and time.monotonic() < give_up:
        time.sleep(0.05)
    bought = cloud.server.machines()
    assert all(one.ended is not None for one in bought), f"forgotten: {bought}"
    spot = sum(one.spot for one in bought)
    assert (spot, len(bought) - spot) == (SPOT, RELIABLE), f"bought twice, or not at all: {bought}"
    while (left := cloud.server.resources()) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert not left, f"left: {left}"


def points_of(name: str) -> int:
    """How many requests and writes an undisturbed run makes."""
    with tempfile.TemporaryDirectory() as folder, CLOUDS[name](Path(folder)) as cloud:
        counted = Path(folder) / "points"
        assert in_child(cloud, Path(folder) / "log.sqlite", Fate(), counted) == 0
        check(cloud)
        return int(counted.read_text())


def survive(name: str, at: int, kind: str) -> bool:
    """Whether a runner met this fate; another one resumes the run."""
    with tempfile.TemporaryDirectory() as folder, CLOUDS[name](Path(folder)) as cloud:
        log, counted = Path(folder) / "log.sqlite", Path(folder) / "points"
        status = in_child(cloud, log, Fate(at, kind), counted)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL, status
            assert in_child(cloud, log, Fate()) == 0, "the run was not resumed"
        else:
            assert status == 0, "the runner failed"
        check(cloud)
        return os.WIFSIGNALED(status) or int(counted.read_text()) > at


def main() -> int:
    """Tries one of `--every` points of each cloud, chosen at random by `--seed`; returns the number
    of violations.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cloud", choices=sorted(CLOUDS), help="only this one")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failed = tried = met = 0
    for name in [given.cloud] if given.cloud else CLOUDS:
        points = [(at, kind) for at in range(points_of(name)) for kind in FATES]
        chosen = random.Random(given.seed).sample(points, max(len(points) // given.every, 1))
        for at, kind in chosen:
            tried += 1
            try:
                met += survive(name, at, kind)
            # All that goes wrong is shown, and the next point tried.
            except Exception as error:  # noqa: BLE001
                failed += 1
                say(f"{name}, {kind} at point {at}: {type(error).__name__}: {error}")
        say(f"{name}: {len(chosen)} of {len(points)} fates")
    say(f"{tried} fates tried, {met} met, {failed} failed")
    return failed


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main() > 0)
