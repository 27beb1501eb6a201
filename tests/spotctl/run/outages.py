"""Outages: from a call of a run on, its cloud or its store fails for two minutes of the market's
clock.

python -m tests.spotctl.run.outages: every position of a run on the cloud in memory.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

from pricing_data.units import MINUTE
from spotctl.agent.errors import TransferFailed
from spotctl.clouds.errors import Throttled, Unanswered
from spotctl.log.outcomes import DONE
from tests.spotctl.clouds.fake import Fault, LostAnswer, LostRequest, Refusal
from tests.spotctl.run.faults import clean, provider_prices
from tests.spotctl.run.worlds import MARKETS, MemoryLog, Toil, life

LASTS = 2 * MINUTE
EVICTED = {8: (MARKETS[0], True), 24: (MARKETS[1], False)}
FAULTS: dict[str, Fault] = {
    "no answer": Refusal(Unanswered("no route to the cloud")),
    "throttled": Refusal(Throttled("slow down")),
    "lost request": LostRequest(),
    "lost answer": LostAnswer(),
}
STORE = "store"


@dataclass
class Outage:
    """Begins with call number `begin`, from 0, and lasts for two minutes. Counts all calls."""

    begin: int = -1
    calls: int = 0
    began_at: int | None = None
    met: list[str] = field(default_factory=list)

    def strikes(self, name: str, now: int) -> bool:
        if self.calls == self.begin:
            self.began_at = now
        self.calls += 1
        strikes = self.began_at is not None and now < self.began_at + LASTS
        if strikes:
            self.met.append(name)
        return strikes


@dataclass
class StoredWork(Toil):
    """Work whose result goes to a store, which may have an outage."""

    outage: Outage = field(default_factory=Outage)
    stored: str = ""

    def store(self, outcome: str) -> None:
        assert outcome == DONE
        assert not self.world.running, "machines wait for the store"
        if self.outage.strikes(STORE, self.world.cloud.now()):
            raise TransferFailed("the store answers 503")
        self.stored = self.model


def outlived(outage: Outage, fault: Fault) -> None:
    """A run in memory through an outage: its job is done, its result is there, and nothing runs."""
    log, one = MemoryLog(), replace(life(Path(), EVICTED), opened=MemoryLog)
    one.opened = lambda: log
    work = one.work = StoredWork(one.world, outage=outage)
    provider_prices(one)
    one.cloud.weather = lambda call: fault if outage.strikes(call.name, call.at) else None
    with patch("time.sleep", lambda seconds: one.cloud.advance(seconds * one.cloud.speed)):
        ended = one.run()
    assert (ended.outcome, ended.message) == (DONE, ""), (outage, ended)
    assert work.stored == work.model != "", outage
    clean(one)


def positions() -> int:
    """The number of calls of a run without an outage."""
    undisturbed = Outage()
    outlived(undisturbed, FAULTS["no answer"])
    return undisturbed.calls


def main() -> None:
    """Every position, with each fault."""
    count = positions()
    for fault in FAULTS.values():
        for begin in range(count):
            outlived(Outage(begin), fault)
    sys.stdout.write(
        f"{count} positions, each with {len(FAULTS)} faults: every job is done, and nothing runs\n"
    )


if __name__ == "__main__":
    main()
