"""Launches on the simulated Vast.ai: a script through ten evictions by higher bids, another whose
bid is raised by launchers that are killed around it, and their costs against the books."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.log.folding import fold
from spotctl.log.store import EventLog
from tests.cloud.namespaces import namespaces
from tests.cloud.renting import ROOT, Bought, RentingLaptop
from tests.cloud.vast import RunningContainers
from tests.servers.loopback import serving
from tests.servers.vast import KEY, Vast
from tests.servers.vast_market import Contract, Host, VastMarket

pytestmark = [pytest.mark.slow, pytest.mark.cloud]

OUTBIDS = 10
CHANGE_BID = "spotctl.clouds.vast.calls:VastCalls.change_bid"
RAISE_BID = "spotctl.clouds.vast.provider:VastProvider.raise_bid"


class Laptop(RentingLaptop):
    """See `RentingLaptop`."""

    cloud = "vast"

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "VAST_URL": self.server.url, "VAST_API_KEY": KEY}

    def outbid(self, one: Contract) -> None:
        self.market.outbid(one.host, 0.9)

    def withdraw(self) -> None:
        for host in self.market.hosts:
            self.market.withdraw(host)

    def bought(self) -> Iterator[Bought]:
        for one in self.market.contracts.values():
            yield Bought(f"vast:{one.id}", one.label, sum(self.market.billed(one)))


@contextmanager
def laptop(folder: Path, hosts: int, usd: float = 40.0) -> Iterator[Laptop]:
    with namespaces() as host:
        containers = RunningContainers(host)
        # On demand they cost more than the budget: a run would turn there once three bids have lost
        # its work.
        market = VastMarket(
            [Host(number, gpu_price=usd) for number in range(1, hosts + 1)], containers
        )
        with serving(Vast(market)) as server:
            containers.port = int(server.url.rpartition(":")[2])
            made = Laptop(folder, market, containers, server)
            made.spotctl("prices", "fetch", "--cloud", "vast")
            yield made


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Laptop]:
    with laptop(tmp_path, OUTBIDS + 2) as made:
        yield made


def test_a_script_runs_to_its_end_through_ten_higher_bids(made: Laptop) -> None:
    job = made.job(
        "night", '"touch /tmp/working; until [ -e /tmp/go ]; do sleep 0.2; done; echo finished"'
    )
    process = made.begun("launch", job, "--yes")
    outbid = set[int]()
    for _ in range(OUTBIDS):
        ours = made.working(outbid)
        made.market.outbid(ours.host, 0.9)
        outbid.add(ours.id)
    made.containers.touch(made.working(outbid), "/tmp/go")
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    assert f"survived {OUTBIDS} evictions" in out
    assert "finished" in made.spotctl("logs", "night")
    # Nothing is left, and the ledger, which counts from the order on, is not below the books.
    assert not made.market.alive()
    assert len(made.market.contracts) == OUTBIDS + 1
    books = sum(sum(made.market.billed(contract)) for contract in made.market.contracts.values())
    cost = json.loads(made.spotctl("report", "cost", "--job", "night", "--json"))
    assert cost["evictions"] == OUTBIDS
    assert cost["total_usd"] >= books
    assert json.loads(made.spotctl("gc", "--json"))["resources"] == []


def test_bids_are_raised_as_the_market_rises_and_known_to_who_resumes_a_killed_launch(
    made: Laptop,
) -> None:
    """A launcher dies before the call, the next one before it reads the bid back, the third before
    it logs that.
    """
    (made.home / "config.toml").write_text("[vast]\nlook_minutes = 0.05\n")
    job = made.job(
        "rise", '"touch /tmp/working; until [ -e /tmp/go ]; do sleep 0.2; done; echo finished"'
    )
    words, bids = ["launch", job, "--yes"], list[float]()
    for point in (f"before={CHANGE_BID}", f"after={CHANGE_BID}", f"after={RAISE_BID}"):
        process = made.begun(*words, dies=point)
        ours = made.working(set())
        bids.append(ours.rate)
        for host in made.market.hosts:
            if host is not ours.host:
                made.market.outbid(host, 2 * bids[-1])
        out, err = process.communicate()
        assert process.returncode == -signal.SIGKILL, out + err
        words = ["resume", "rise"]
    first, still, second, last = *bids, ours.rate
    assert first == still
    assert first < second < last
    made.containers.touch(ours, "/tmp/go")
    made.spotctl(*words)
    assert "finished" in made.spotctl("logs", "rise")
    assert len(made.market.contracts) == 1
    with EventLog(made.home / "log.sqlite") as log:
        (row,) = log.beginnings()
        state = fold(log.of_run(row.run))
    (held,) = state.machines.values()
    assert [bid for _, bid in held.bids] == [
        round(usd * NANOS_PER_DOLLAR) for usd in (first, second, last)
    ]
    assert not state.open
    cost = json.loads(made.spotctl("report", "cost", "--job", "rise", "--json"))
    assert cost["evictions"] == 0
    assert 1 > cost["total_usd"] >= sum(made.market.billed(ours))


def test_a_trial_rents_one_host_after_another_for_cents_and_leaves_nothing(tmp_path: Path) -> None:
    with laptop(tmp_path, 3, usd=0.4) as made:
        shared = made.spotctl("try", "vast", "--share", "--region", "vast-us", "--yes")
        passed = dict(line.split()[1::-1] for line in shared.splitlines())
        steps = dict.fromkeys(("account", "orders", "machines", "eviction", "left"), "passed")
        assert passed == {**steps, "checkpoint": "skipped"}
        # The machine of a trial, one that is stopped as if it was outbid, and the next one.
        assert len(made.market.contracts) == 3
        answer = json.loads(made.spotctl("try", "vast", "--yes", "--json"))
        assert (answer["outcome"], answer["left"]) == ("done", [])
        assert not made.market.alive()
        assert sum(sum(made.market.billed(one)) for one in made.market.contracts.values()) < 0.2


def test_launches_that_are_killed_buy_nothing_twice_and_leave_nothing() -> None:
    """A sample of `python -m tests.cloud.container_kills vast`, in a process of its own."""
    with namespaces():
        pass  # skips the test where the other process could make no machines
    words = [sys.executable, "-m", "tests.cloud.container_kills", "vast", "2"]
    found = subprocess.run(words, check=False, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "\n2 killed in " in found.stdout
