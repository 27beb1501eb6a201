"""A training on the simulated Vast.ai, where machines reach each other only at ports that routers
forward.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotctl.home.paths import Paths
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from tests.cloud.clouds import WHOLE_RUN
from tests.cloud.laptop import Laptop
from tests.cloud.namespaces import namespaces
from tests.cloud.vast import RunningContainers
from tests.servers.loopback import serving
from tests.servers.vast import KEY, Vast
from tests.servers.vast_market import Contract, Host, VastMarket

pytestmark = [WHOLE_RUN, pytest.mark.slow, pytest.mark.cloud]

NODES, OUTBIDS = 4, 10 if os.environ.get("SPOTCTL_TEST_CLOUDS") == "all" else 3
CLOCKS = 5 * OUTBIDS
JOB = f"""\
name: line
kind: agileml
app: line:Line
args: {{pause: 0.06}}
workdir: work
stop: {{clocks: {CLOCKS}}}
throughputs: {{1xRTX_4090: 600}}
hours: 15m
resources:
  clouds: [vast]
  regions: [vast-us]
  types: [1xRTX_4090]
  machines: {NODES - 1}
  reliable: {{machines: 1, type: 1xRTX_4090}}
"""


@pytest.fixture
def market() -> Iterator[VastMarket]:
    with namespaces() as host:
        yield VastMarket(
            [Host(number) for number in range(1, NODES + OUTBIDS + 1)], RunningContainers(host)
        )


@pytest.fixture
def laptop(market: VastMarket, tmp_path: Path) -> Iterator[Laptop]:
    assert isinstance(market.containers, RunningContainers)
    with serving(Vast(market)) as server:
        market.containers.port = int(server.url.rpartition(":")[2])
        laptop = Laptop(tmp_path, {"VAST_URL": server.url, "VAST_API_KEY": KEY})
        laptop.run("prices", "fetch", "--cloud", "vast")
        yield laptop


def at_work(laptop: Laptop, market: VastMarket) -> list[Contract]:
    """The interruptible instances whose nodes do clocks, as the log has them."""
    with EventLog(Paths(laptop.home).log) as log:
        run = latest_run(log, "line")
    working = (
        {held.id for held in run.alive if len(held.turns) % 2} if run is not None else set[str]()
    )
    return [
        one
        for one in market.alive()
        if one.granted and one.price is not None and f"vast:{one.id}" in working
    ]


def test_a_training_of_four_nodes_survives_higher_bids(laptop: Laptop, market: VastMarket) -> None:
    """Each takes a node at work, without a warning; the model is that of an undisturbed training,
    to the bit.
    """
    outbid: list[Contract] = []
    with laptop.launched("launch", laptop.job(JOB), "--yes", "--json") as launched:
        for _ in range(OUTBIDS):
            launched.wait_for(lambda: bool(at_work(laptop, market)))
            (ours, *_) = at_work(laptop, market)
            market.outbid(ours.host, 0.9)
            outbid.append(ours)
            at = laptop.clock("line")
            launched.wait_for(lambda at=at: laptop.clock("line") >= at + 2)  # type: ignore[misc]
        code, out, err = launched.ended()
    assert code == 0, err
    answer = json.loads(out)
    assert (answer["clocks"], answer["updates_lost"], answer["evictions"]) == (CLOCKS, 0, OUTBIDS)
    words = (
        "lab",
        "train",
        "work/line.py",
        "--engine",
        "sim",
        "--nodes",
        f"1+{NODES - 1}",
        "--deterministic",
    )
    undisturbed = laptop.answer(*words, "--clocks", str(CLOCKS))
    assert answer["model_sha256"] == undisturbed["model_sha256"]
    # Nothing is left, and the report is not below the books.
    assert not market.alive()
    books = sum(sum(market.billed(contract)) for contract in market.contracts.values())
    assert laptop.answer("report", "cost", "--job", "line")["total_usd"] >= books > 0
    assert laptop.answer("gc")["resources"] == []
    (reliable,) = (contract for contract in market.contracts.values() if contract.price is None)
    assert reliable not in outbid
