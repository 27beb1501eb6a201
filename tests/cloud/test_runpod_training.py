"""A training on the simulated RunPod, where pods reach each other only at the ports that their orders
have asked for.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spotctl.home.paths import Paths
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from tests.cloud.clouds import WHOLE_RUN
from tests.cloud.laptop import Laptop
from tests.cloud.namespaces import namespaces
from tests.cloud.runpod import RunningPods
from tests.servers.loopback import serving
from tests.servers.runpod import KEY, RunPod
from tests.servers.runpod_market import Pod, RunPodMarket, Stock

pytestmark = [WHOLE_RUN, pytest.mark.slow, pytest.mark.cloud]

CLOCKS = 14
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
  clouds: [runpod]
  regions: [runpod-us-tx-3]
  types: [1xRTX_4090]
  machines: 2
  reliable: {{machines: 1, type: 1xRTX_4090}}
"""


def at_work(laptop: Laptop, market: RunPodMarket) -> list[Pod]:
    """The pods with a bid whose nodes do clocks, as the log has them, and whose end would be taken
    for a higher bid.
    """
    with EventLog(Paths(laptop.home).log) as log:
        run = latest_run(log, "line")
    alive = [] if run is None else run.alive
    working = {held.id for held in alive if len(held.turns) % 2}
    return [
        pod
        for pod in market.alive()
        if pod.bid is not None and f"runpod:{pod.id}" in working and market.now() - pod.made > 11
    ]


def test_a_training_of_three_nodes_survives_a_higher_bid(tmp_path: Path) -> None:
    with namespaces() as host:
        pods = RunningPods(host)
        market = RunPodMarket([Stock()], pods)
        with serving(RunPod(market)) as server:
            pods.port = int(server.url.rpartition(":")[2])
            own = {"RUNPOD_API_BASE_URL": server.url, "RUNPOD_API_KEY": KEY}
            laptop = Laptop(tmp_path, own)
            laptop.run("prices", "fetch", "--cloud", "runpod")
            with laptop.launched("launch", laptop.job(JOB), "--yes", "--json") as launched:
                launched.wait_for(lambda: bool(at_work(laptop, market)))
                (ours, *_) = at_work(laptop, market)
                market.outbid(ours, 9.0)
                ours.stock.bid = 0.2
                code, out, err = launched.ended()
    assert code == 0, err
    answer = json.loads(out)
    assert (answer["clocks"], answer["updates_lost"], answer["evictions"]) == (CLOCKS, 0, 1)
    assert all({22, 7071} <= pod.ports.keys() for pod in market.pods.values())
    assert not market.alive()
