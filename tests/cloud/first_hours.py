"""Ten first hours on the simulated Vast.ai, each with what goes wrong there: how long a launch takes
from its first call on, in seconds of a clock that runs faster, how many machines it rents, what they
cost by the server's books, and its last line.

    python -m tests.cloud.first_hours [NAME...]

The cheapest hosts are the bad ones, and there is a good one. It needs root.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.cloud.fast_clock import VARIABLE, faster
from tests.cloud.namespaces import namespaces
from tests.cloud.renting import JOB, ROOT
from tests.cloud.vast import RunningContainers
from tests.servers.loopback import Fault, LoopbackServer, Reply, serving
from tests.servers.vast import KEY, Vast
from tests.servers.vast_market import Contract, Host, VastMarket

SPEED = 30.0
OLD_DRIVER = "OCI runtime create failed: unsatisfied condition: cuda>=12.8"
NO_CREDIT = {"success": False, "error": "insufficient_credit", "msg": "Your account lacks credit."}


@dataclass
class FastMarket(VastMarket):
    """A market whose clock runs faster than this computer's since `begin`."""

    begin: float = field(default_factory=time.time)

    def now(self) -> float:
        return faster(time.time, self.begin, SPEED)()


class FirstHour(NamedTuple):
    """A failure: what the bad hosts have, what becomes of contracts there while they exist, and
    what else is wrong.
    """

    hosts: dict[str, object]
    happens: Callable[[VastMarket, Contract], None] = lambda _, __: None
    fault: Fault | None = None
    key: str = KEY
    loads_seconds: float = 40.0


def _shows(**words: object) -> Callable[[VastMarket, Contract], None]:
    return lambda _, contract: contract.shown.update(words)


def _pulls(market: VastMarket, contract: Contract) -> None:
    """Another layer every half a minute."""
    layer = int((market.now() - contract.made) // 30)
    contract.shown["status_msg"] = (
        None if market.runs(contract) else f"layer {layer}: Pull complete"
    )


HOURS = {
    "old driver": FirstHour({"cuda": 12.4, "refuses": OLD_DRIVER}),
    "slow line": FirstHour({"mbit_down": 20.0}),
    "slice with too little memory": FirstHour({"share": 0.125}),
    "crash loop": FirstHour({}, _shows(actual_status="exited", status_msg="Exited (137)")),
    "OCI error": FirstHour({"refuses": OLD_DRIVER}),
    "host offline": FirstHour({}, _shows(actual_status="offline")),
    "pull of 15 minutes": FirstHour({}, _pulls, loads_seconds=900.0),
    "outbid at boot": FirstHour({}, lambda market, contract: market.outbid(contract.host, 0.9)),
    "out of credit": FirstHour({}, fault=Fault("/asks/", Reply.of_json(NO_CREDIT, 400), times=-1)),
    "wrong key": FirstHour({}, key="f" * 64),
}


class Outcome(NamedTuple):
    """How a first hour ended."""

    seconds: float
    machines: int
    usd: float
    last: str


def passed(hour: FirstHour) -> Outcome:
    """Lives through a first hour."""
    with namespaces() as place, tempfile.TemporaryDirectory() as folder:
        containers = RunningContainers(place)
        bad = [
            Host(number, gpu_floor=0.10 + number / 1000, **hour.hosts)  # type: ignore[arg-type]
            for number in (1, 2)
        ]
        good = [Host(number, gpu_floor=0.16) for number in (3, 4, 5)]
        market = FastMarket([*bad, *good], containers, loads_seconds=hour.loads_seconds)
        api = Vast(market)
        with serving(api) as server:
            containers.port = int(server.url.rpartition(":")[2])
            return _launched(hour, api, server, Path(folder), {host.machine_id for host in bad})


def _launched(
    hour: FirstHour, api: Vast, server: LoopbackServer, folder: Path, bad: set[int]
) -> Outcome:
    market = api.market
    assert isinstance(market, FastMarket)
    (folder / "home").mkdir()
    (folder / "work").mkdir()
    job = JOB.format(name="night", run="echo done here", cloud="vast")
    (folder / "work" / "night.yaml").write_text(job)
    own = {"PYTHONPATH": str(ROOT), "SPOTCTL_HOME": str(folder / "home"), "VAST_URL": server.url}
    clock = {VARIABLE: f"{market.begin} {SPEED}"}

    def command(*words: str, key: str = KEY) -> str:
        environment = {**os.environ, **own, **clock, "VAST_API_KEY": key}
        ended = subprocess.run(
            [sys.executable, "-m", "tests.cloud.fast_clock", *words],
            env=environment,
            cwd=folder / "work",
            capture_output=True,
            text=True,
            check=False,
        )
        return ended.stdout + ended.stderr

    command("prices", "fetch", "--cloud", "vast")
    if hour.fault is not None:
        server.faults.append(hour.fault)
    over, known, called = threading.Event(), len(server.requests), list[float]()

    def happening() -> None:
        while not over.wait(0.05):
            # The start of the program is not the cloud's.
            if not called and len(server.requests) > known:
                called.append(market.now())
            with api.lock:
                for contract in market.alive():
                    if contract.host.machine_id in bad:
                        hour.happens(market, contract)

    thread = threading.Thread(target=happening, daemon=True)
    thread.start()
    said = command("launch", "night.yaml", "--yes", key=hour.key)
    seconds = market.now() - called[0]
    over.set()
    thread.join()
    lines = [line for line in said.splitlines() if line.startswith(("night-", "spotctl: "))]
    usd = sum(sum(market.billed(contract)) for contract in market.contracts.values())
    assert not market.alive(), "left"
    return Outcome(seconds, len(market.contracts), usd, lines[-1] if lines else said[-200:])


def main(names: list[str]) -> None:
    """Prints a line for each first hour."""
    for name in names or HOURS:
        outcome = passed(HOURS[name])
        figures = f"{outcome.seconds:6.0f} s  {outcome.machines} machines  ${outcome.usd:.4f}"
        sys.stdout.write(f"{name:<30}{figures}  {outcome.last}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
