"""Launches on the simulated Vast.ai: a script through ten evictions by higher bids, another whose
bid is raised by launchers that are killed around it, and their costs against the books."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.log.folding import fold
from spotctl.log.store import EventLog
from tests.cloud.namespaces import namespaces
from tests.cloud.vast import RunningContainers
from tests.servers.loopback import LoopbackServer, serving
from tests.servers.vast import KEY, Vast
from tests.servers.vast_market import Contract, Host, VastMarket
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.cloud]

ROOT = Path(__file__).parents[2]
OUTBIDS = 10
CHANGE_BID = "spotctl.clouds.vast.calls:VastCalls.change_bid"
RAISE_BID = "spotctl.clouds.vast.provider:VastProvider.raise_bid"
JOB = """\
name: {name}
kind: command
run: {run}
resources: {{clouds: [vast], types: [1xRTX_4090]}}
hours: 15m
budget: 1 USD
"""


@dataclass
class Laptop:
    """A home, and the market as this computer sees it."""

    home: Path
    market: VastMarket
    containers: RunningContainers
    server: LoopbackServer

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PYTHONPATH": str(ROOT),
            "SPOTCTL_HOME": str(self.home),
            "VAST_URL": self.server.url,
            "VAST_API_KEY": KEY,
        }

    def begun(self, *words: str, dies: str = "") -> subprocess.Popen[str]:
        """A command, which kills itself at a point of `tests.spotctl.dying`."""
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                *(["tests.spotctl.dying", dies, "0"] if dies else ["spotctl"]),
                *words,
            ],
            cwd=self.home,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def spotctl(self, *words: str) -> str:
        """The output of a command that succeeds."""
        process = self.begun(*words)
        out, err = process.communicate()
        assert process.returncode == 0, out + err
        return out

    def job(self, name: str, run: str) -> str:
        folder = self.home / "jobs"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(JOB.format(name=name, run=run))
        return str(folder / f"{name}.yaml")

    def working(self, seen: set[int]) -> Contract:
        """The next instance that runs the job's command."""
        found = list[Contract]()

        def works() -> bool:
            new = (contract for contract in self.market.alive() if contract.id not in seen)
            found[:] = [
                one
                for one in new
                if self.market.runs(one) and self.containers.has(one, "/tmp/working")
            ]
            return bool(found)

        eventually(works)
        return found[0]


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
    """A sample of `python -m tests.cloud.vast_kills`, in a process of its own."""
    with namespaces():
        pass  # skips the test where the other process could make no machines
    words = [sys.executable, "-m", "tests.cloud.vast_kills", "2"]
    found = subprocess.run(words, check=False, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "\n2 killed in " in found.stdout
