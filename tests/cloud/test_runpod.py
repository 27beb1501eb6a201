"""Launches on the simulated RunPod: a script through higher bids, a trial, and their costs against
the books.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spotctl.clouds.order_ledger import OrderLabel
from spotctl.home.installation import INSTALLATION_TAG
from tests.cloud.namespaces import namespaces
from tests.cloud.renting import ROOT, Bought, RentingLaptop
from tests.cloud.runpod import RunningPods
from tests.servers.loopback import serving
from tests.servers.runpod import KEY, RunPod
from tests.servers.runpod_market import Pod, RunPodMarket, Stock

pytestmark = [pytest.mark.slow, pytest.mark.cloud]

OUTBIDS = 3
AT_ONCE_SECONDS = 11
"""A pod that RunPod stops sooner after its order was not outbid."""


class Laptop(RentingLaptop):
    """See `RentingLaptop`."""

    cloud = "runpod"

    @property
    def environment(self) -> dict[str, str]:
        own = {"RUNPOD_API_BASE_URL": self.server.url, "RUNPOD_API_KEY": KEY}
        return {**super().environment, **own}

    def outbid(self, one: Pod) -> None:
        time.sleep(max(0.0, one.made + AT_ONCE_SECONDS - self.market.now()))
        if one.ended is None:
            bid = one.stock.bid
            self.market.outbid(one, 9.0)
            # The others have that pod's GPUs, and its place has more.
            one.stock.bid = bid

    def withdraw(self) -> None:
        for stock in self.market.stocks:
            stock.free = 8

    def bought(self) -> Iterator[Bought]:
        for one in self.market.pods.values():
            self.market.charge(one)
            label = {each["key"]: each["value"] for each in one.given["env"]}["SPOTCTL_LABEL"]
            yield Bought(f"runpod:{one.id}", label, one.usd)


@contextmanager
def laptop(folder: Path, gpus: int, usd: float = 40.0) -> Iterator[Laptop]:
    folder.mkdir(exist_ok=True)
    with namespaces() as host:
        pods = RunningPods(host)
        market = RunPodMarket([Stock(free=gpus, price=usd)], pods, balance=1_000.0)
        with serving(RunPod(market)) as server:
            pods.port = int(server.url.rpartition(":")[2])
            made = Laptop(folder, market, pods, server)
            made.spotctl("prices", "fetch", "--cloud", "runpod")
            yield made


def test_a_script_runs_to_its_end_through_higher_bids(tmp_path: Path) -> None:
    with laptop(tmp_path, OUTBIDS + 2) as made:
        job = made.job(
            "night", '"touch /tmp/working; until [ -e /tmp/go ]; do sleep 0.2; done; echo finished"'
        )
        process = made.begun("launch", job, "--yes")
        outbid = set[str]()
        for _ in range(OUTBIDS):
            ours = made.working(outbid)
            made.outbid(ours)
            outbid.add(ours.id)
        made.containers.touch(made.working(outbid), "/tmp/go")
        out, err = process.communicate()
        assert process.returncode == 0, out + err
        assert f"survived {OUTBIDS} evictions" in out
        assert "finished" in made.spotctl("logs", "night")
        # Nothing is left, and the ledger, which counts from the order on, is not below the books.
        assert not made.market.alive()
        assert len(made.market.pods) == OUTBIDS + 1
        cost = json.loads(made.spotctl("report", "cost", "--job", "night", "--json"))
        assert cost["evictions"] == OUTBIDS
        assert cost["total_usd"] >= sum(one.usd for one in made.bought())
        assert json.loads(made.spotctl("gc", "--json"))["resources"] == []


def test_a_trial_rents_one_pod_after_another_for_cents_and_leaves_nothing(tmp_path: Path) -> None:
    with laptop(tmp_path, 8, usd=0.69) as made:
        shared = made.spotctl("try", "runpod", "--share", "--region", "runpod-us-tx-3", "--yes")
        passed = dict(line.split()[1::-1] for line in shared.splitlines())
        steps = dict.fromkeys(("account", "orders", "machines", "left"), "passed")
        assert passed == {**steps, "eviction": "skipped"}
        assert not made.market.alive()
        assert sum(one.usd for one in made.bought()) < 0.2


def test_gc_ends_the_pods_of_a_home_that_is_lost(tmp_path: Path) -> None:
    """Their labels are enough, also for one that is stopped."""
    with laptop(tmp_path / "home", 8) as made:
        process = made.begun("launch", made.job("lost", '"touch /tmp/working; sleep 600"'), "--yes")
        pod = made.working(set())
        process.kill()
        process.communicate()
        made.market.exit(pod, "user")
        (bought,) = made.bought()
        label = OrderLabel.parse(bought.label)
        assert label is not None
        made.home = tmp_path / "new"
        made.home.mkdir()
        (made.home / "installation").write_text(label.tags[INSTALLATION_TAG])
        cleaned = json.loads(made.spotctl("gc", "--cloud", "runpod", "--yes", "--json"))
        assert [one["id"] for one in cleaned["resources"]] == [f"runpod:{pod.id}"]
        assert not made.market.alive()


def test_launches_that_are_killed_buy_nothing_twice_and_leave_nothing() -> None:
    """A sample of `python -m tests.cloud.container_kills runpod`, in a process of its own."""
    with namespaces():
        pass  # skips the test where the other process could make no machines
    words = [sys.executable, "-m", "tests.cloud.container_kills", "runpod", "2"]
    ended = subprocess.run(words, check=False, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "\n2 killed in " in ended.stdout
