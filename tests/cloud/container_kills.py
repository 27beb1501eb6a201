"""Real launches on a simulated cloud of containers, killed by SIGKILL around calls to it and writes
to the log, and resumed.

    python -m tests.cloud.container_kills CLOUD [KILLS] [SEED]

Launches are killed, and what resumes them is killed again, until KILLS processes were: before or
after a call of the API or a write of an event, which a seed draws. Meanwhile other renters outbid
some of the machines, also while no launcher lives. Each life then goes on to its end. No machine
may be bought twice, none may be left, the log must know every machine, and the report may not count
less than the server's books. It needs root.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from spotctl.clouds.order_ledger import OrderLabel
from spotctl.home.installation import RUN_TAG
from spotctl.log.state import RunState
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from tests.cloud import test_runpod, test_vast
from tests.cloud.renting import Bought, RentingLaptop
from tests.spotctl.dying import killed_at

CALLS = {
    "vast": "spotctl.clouds.vast.calls:VastCalls._sent",
    "runpod": "spotctl.clouds.runpod.calls:RunPodCalls._sent",
}
WRITE = "spotctl.log.store:EventLog.append_if"
HOSTS, MAX_OUTBIDS, MAX_DEATHS = 8, 2, 6
RUN = '"touch /tmp/working; until [ -e /tmp/go ]; do sleep 0.2; done; echo finished"'
_LOOK_SECONDS = 0.2


@dataclass
class OtherRenters:
    """They outbid this many machines that work; the next one that works may finish."""

    laptop: RentingLaptop
    outbids: int
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def bidding(self) -> Iterator[None]:
        thread = threading.Thread(target=self._bid, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self.laptop.withdraw()

    def _bid(self) -> None:
        outbid = set[Any]()
        while not self._over.wait(_LOOK_SECONDS):
            for one in self.laptop.market.alive():
                if one.id in outbid or not self.laptop.containers.has(one, "/tmp/working"):
                    continue
                if len(outbid) < self.outbids:
                    outbid.add(one.id)
                    self.laptop.outbid(one)
                else:
                    self.laptop.containers.touch(one, "/tmp/go")


@dataclass
class Books:
    """Purchases and their cost, by the server and by the report."""

    machines: int = 0
    outbid: int = 0
    billed: float = 0.0
    reported: float = 0.0


@dataclass
class Kills:
    """Lives on one computer, until enough processes were killed; `points` are the calls and writes
    of a whole life.
    """

    laptop: RentingLaptop
    draw: random.Random
    points: dict[str, int] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)
    books: Books = field(default_factory=Books)

    def undisturbed(self) -> None:
        """Counts the points of a launch without kills."""
        before = len(self.laptop.server.requests)
        with OtherRenters(self.laptop, 0).bidding():
            self.laptop.spotctl("launch", self.laptop.job("undisturbed", RUN), "--yes")
        with EventLog(self.laptop.home / "log.sqlite") as log:
            writes = sum(1 for _ in log.of_run(self._ended("undisturbed").run))
        self.points = {
            CALLS[self.laptop.cloud]: len(self.laptop.server.requests) - before,
            WRITE: writes,
        }
        self.check("undisturbed")

    def life(self, name: str, most: int) -> None:
        """A job whose launcher dies at most this often."""
        self.laptop.job(name, RUN)
        with OtherRenters(self.laptop, self.draw.randint(0, MAX_OUTBIDS)).bidding():
            for _ in range(self.draw.randint(1, min(most, MAX_DEATHS))):
                if (command := self._next(name)) is None or not self._killed(*command):
                    break
            if (command := self._next(name)) is not None:
                self.laptop.spotctl(*command)
        self.check(name)

    def _killed(self, *command: str) -> bool:
        point, when = self.draw.choice([*self.points]), self.draw.choice(["before", "after"])
        at = self.draw.randrange(self.points[point])
        with patch.dict(os.environ, self.laptop.environment):
            killed = killed_at(f"{when}={point}", at, *command)
        self.met[f"{when} a {'write' if point == WRITE else 'call'}"] += killed
        return killed

    def _next(self, name: str) -> tuple[str, ...] | None:
        """The next command of a user; None if the run has ended."""
        path = self.laptop.home / "log.sqlite"
        with EventLog(path) as log:
            run = latest_run(log, name)
        if run is None:
            return "launch", str(self.laptop.home / "jobs" / f"{name}.yaml"), "--yes"
        return None if run.ended is not None else ("resume", name)

    def _ended(self, name: str) -> RunState:
        with EventLog(self.laptop.home / "log.sqlite") as log:
            run = latest_run(log, name)
        assert run is not None
        assert run.ended is not None
        return run

    def check(self, name: str) -> None:
        """AssertionError: something is left, twice, forgotten, or cheaper than it was."""
        run, market = self._ended(name), self.laptop.market
        assert run.ended is not None
        assert run.ended.outcome == "done", run.ended
        assert not market.alive(), "left"
        ours = list[tuple[Bought, OrderLabel]]()
        for one in self.laptop.bought():
            label = OrderLabel.parse(one.label)
            assert label is not None
            if label.tags[RUN_TAG] == run.run:
                ours.append((one, label))
        assert len({(label.order, label.index) for _, label in ours}) == len(ours), "bought twice"
        assert run.machines.keys() == {one.machine for one, _ in ours}, "unknown to the log"
        for intent, order in run.orders.items():
            assert (
                sum(held.allocation == intent for held in run.machines.values()) <= order.machines
            ), "bought twice"
        cost = json.loads(self.laptop.spotctl("report", "cost", "--job", name, "--json"))
        billed = sum(one.usd for one, _ in ours)
        assert cost["total_usd"] >= billed, (
            f"${cost['total_usd']} in the report, ${billed} in the books"
        )
        self.books.machines += len(ours)
        self.books.outbid += cost["evictions"]
        self.books.billed += billed
        self.books.reported += cost["total_usd"]


def main(cloud: str, kills: int, seed: int) -> None:
    """AssertionError: a violation, in the last life that was named."""
    with home(cloud) as made:
        lives = Kills(made, random.Random(seed))
        lives.undisturbed()
    number = 0
    while (done := lives.met.total()) < kills:
        number += 1
        say(f"life {number}: {done} killed so far")
        # A home learns from the machines that it has lost, until a plan would exceed the budget.
        with home(cloud) as lives.laptop:
            lives.life(f"life{number}", kills - done)
            left = json.loads(lives.laptop.spotctl("gc", "--json"))["resources"]
            assert left == [], left
    books = lives.books
    say(
        f"{lives.met.total()} killed in {number} lives: "
        f"{', '.join(f'{n} {what}' for what, n in lives.met.items())}"
    )
    say(
        f"{books.machines} machines ({books.outbid} outbid): none bought twice, none left, all in "
        "the log"
    )
    say(f"books ${books.billed:.6f}, reports ${books.reported:.6f}")


@contextmanager
def home(cloud: str) -> Iterator[RentingLaptop]:
    laptop = {"vast": test_vast.laptop, "runpod": test_runpod.laptop}[cloud]
    with tempfile.TemporaryDirectory() as folder, laptop(Path(folder), HOSTS) as made:
        yield made


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], *(int(word) for word in [*sys.argv[2:], *("40", "1")[len(sys.argv) - 2 :]]))
