"""A plan in a market of hosts bids by its snapshots: near what hosts ask, and higher where low bids
are soon outbid.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pricing_data.units import HOUR
from tests.servers.loopback import serving
from tests.servers.vast import KEY, Vast
from tests.servers.vast_market import Host, VastMarket
from tests.spotctl.command_line import spotctl

JOB = """
name: night
kind: command
run: python train.py
hours: 8h
checkpoint: {path: out, every: 30m, size: 2GB}
resources: {clouds: [vast], types: [1xRTX_4090]}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with one fetch from a simulated Vast.ai of twelve hosts, at $0.11 to $0.22 and $0.40
    on demand, and four that cannot run the job, one of them elsewhere.
    """
    hosts = [
        Host(number, gpu_floor=0.1 + number / 100, gpu_price=0.4, traffic=0.02 * (number > 3))
        for number in range(1, 13)
    ]
    unfit = [Host(number, gpu_floor=0.05, cuda=12.4) for number in (21, 22)]
    unfit += [Host(23, mbit_down=20.0), Host(24, country="DE", cuda=12.4)]
    api = Vast(VastMarket([*hosts, *unfit]))
    monkeypatch.setenv("VAST_API_KEY", KEY)
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path))
    (tmp_path / "job.yaml").write_text(JOB)
    with serving(api) as server:
        monkeypatch.setenv("VAST_URL", server.url)
        fetch = [sys.executable, "-m", "spotctl", "prices", "fetch", "--cloud", "vast"]
        subprocess.run(fetch, check=True, capture_output=True, timeout=120)
        yield tmp_path


def planned(home: Path) -> dict[str, Any]:
    """The one allocation of the plan."""
    (chosen,) = json.loads(spotctl("plan", home / "job.yaml", "--json").out)["choice"]
    return dict(chosen)


def add_history(home: Path, *, fought_over: int) -> None:
    """Two days of snapshots before the fetch, in which a number of the cheapest hosts rise in every
    other hour.
    """
    folder = home / "vast" / "offers"
    newest = max(folder.glob("*.json.gz"))
    snapshot = json.loads(gzip.decompress(newest.read_bytes()))
    for hours in range(1, 48):
        at = snapshot["at"] - hours * HOUR
        rows = [
            [
                machine,
                market,
                price + (100_000_000 if machine <= fought_over and (hours + machine) % 2 else 0),
                *asked,
            ]
            for machine, market, price, *asked in snapshot["offers"]
        ]
        (folder / f"{at}.json.gz").write_bytes(
            gzip.compress(json.dumps({"at": at, "offers": rows}).encode())
        )


def test_a_calm_market_is_bid_for_at_its_price_and_a_fought_over_one_higher(home: Path) -> None:
    unknown = planned(home)
    add_history(home, fought_over=0)
    calm = planned(home)
    add_history(home, fought_over=6)
    fought = planned(home)
    assert calm["bid"] == pytest.approx(0.13)
    assert 0.13 <= unknown["bid"] < 0.2
    assert 0.13 < fought["bid"] < 0.4
    assert calm["beta"] < unknown["beta"]
    assert calm["beta"] < fought["beta"]


def test_a_damaged_snapshot_is_named(home: Path) -> None:
    (path,) = (home / "vast" / "offers").glob("*.json.gz")
    path.write_bytes(path.read_bytes()[:40])
    ended = spotctl("plan", home / "job.yaml")
    assert ended.code == 2
    assert str(path) in ended.err
    assert "remove it" in ended.err


def test_an_explained_plan_counts_the_hosts_that_were_left_out_by_the_reason(home: Path) -> None:
    """Hosts in other regions than the job names are not counted."""
    job = home / "job.yaml"
    job.write_text(JOB.replace("types:", "regions: [vast-us], types:"))
    driver = "a driver that is older than CUDA 12.8"
    slow = "a download of less than 128 Mbit in a second"
    shown = spotctl("plan", job, "--explain").out
    assert (
        f"offers that the last fetch left out\nvast: 2 with {driver}\nvast: 1 with {slow}\n"
        in shown
    )
    assert json.loads(spotctl("plan", job, "--explain", "--json").out)["left_out"] == [
        {"cloud": "vast", "why": driver, "hosts": 2},
        {"cloud": "vast", "why": slow, "hosts": 1},
    ]
    assert "left out" not in spotctl("plan", job).out


def test_a_plan_says_what_the_bytes_of_checkpoints_cost(home: Path) -> None:
    """At the usual price of hosts, each time that one is sent, and again where it is received."""
    plan = json.loads(spotctl("plan", home / "job.yaml", "--json").out)
    saves = 8 * 2
    assert saves * 2 * 0.02 <= plan["traffic_usd"] < 2 * saves * 2 * 0.02
    shown = spotctl("plan", home / "job.yaml").out
    assert f"${plan['traffic_usd']:.2f} on top, for checkpoints of 2 GB" in " ".join(shown.split())
    (home / "job.yaml").write_text(JOB.replace(", size: 2GB", ""))
    assert json.loads(spotctl("plan", home / "job.yaml", "--json").out)["traffic_usd"] == 0
    assert "traffic" not in spotctl("plan", home / "job.yaml").out


def test_a_budget_covers_the_bytes_of_checkpoints_too(home: Path) -> None:
    """It is refused where only the machines would be within it."""
    job = home / "job.yaml"
    plan = json.loads(spotctl("plan", job, "--json").out)
    machines, traffic = plan["expected"]["cost_usd"], plan["traffic_usd"]
    on_demand = plan["on_demand_usd"]
    job.write_text(JOB + f"budget: {on_demand + traffic / 2:.2f} USD\nstrategy: on-demand\n")
    refused = spotctl("plan", job)
    assert (refused.code, machines < on_demand) == (4, True)
    assert "of traffic, exceeds the budget" in refused.err
