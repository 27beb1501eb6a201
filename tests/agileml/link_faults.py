"""Random schedules in virtual time in which single connections break or carry nothing for a while.

`python -m tests.agileml.link_faults 0 1000` runs 1,000 schedules. In each, links between nodes, and
between nodes and the controller, break at random moments, with a random part of what is in flight;
others are held up. Some schedules kill or evict nodes besides. Each model must be that of the
undisturbed run, bit for bit.
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from agileml.engines.sim.fleet import Simulation
from agileml.protocol.actions import CONTROLLER
from tests.agileml.schedules import Schedule
from tests.agileml.watch import Trigger

MAX_FAULTS = 4
"""Links of a schedule that break or are held up, at most."""

LONGEST_DELAY = 0.2
"""Virtual seconds for which a link carries nothing; a clock of these schedules takes about a tenth
of that."""

LATEST = 900
"""Deliveries after which a link breaks at the latest: most schedules have more."""


@dataclass
class LinkSchedule(Schedule):
    """A schedule whose links break. `done` counts what happened to them."""

    done: Counter[str] = field(default_factory=Counter)

    def _disturb(self, simulation: Simulation) -> None:
        chance = self._chance
        if chance.random() < 0.3:
            super()._disturb(simulation)
        for _ in range(chance.randint(1, MAX_FAULTS)):
            self.watch.triggers.append(Trigger(self._break, chance.randrange(1, LATEST)))

    def _break(self, simulation: Simulation, _: str) -> bool:
        """Something happens to a link of two processes that are there; False without them."""
        chance = self._chance
        names = sorted(name for name, node in simulation.nodes.items() if node.epoch)
        if not names or simulation.away:
            return False
        one = chance.choice(names)
        other = chance.choice([CONTROLLER, *(name for name in names if name != one)])
        if chance.random() < 0.3:
            self.done["held up"] += 1
            # What is sent from now on, both ways, arrives no earlier.
            until = simulation.time.now + chance.uniform(0, LONGEST_DELAY)
            last = simulation.messages._wire._last
            for link in ((one, other), (other, one)):
                last[link] = max(last.get(link, 0.0), until)
            return True
        self.done["to the controller" if other == CONTROLLER else "between nodes"] += 1
        simulation.cut_link((one, other), lambda _: chance.random() < 0.5)
        # As a fleet does: a node is given up, and another one takes its place.
        for name in {one, other} - {CONTROLLER}:
            _replace(simulation, name, simulation.time.now + 30)
        return True


def _replace(simulation: Simulation, name: str, until: float) -> None:
    """Starts a machine in place of a node once that is gone, if it goes soon."""
    if name not in simulation.nodes:
        simulation.join(reliable=name.startswith("r"))
    elif simulation.time.now < until:
        simulation.time.at(simulation.time.now + 0.05, lambda: _replace(simulation, name, until))


def played(seed: int) -> tuple[str, Counter[str]]:
    """Why a schedule failed, or nothing; and what happened in it."""
    schedule = LinkSchedule(seed)
    try:
        _, result = schedule.run()
    except Exception as error:  # noqa: BLE001 - every exception is a finding
        return f"seed {seed}, {schedule.target}: {type(error).__name__}: {error}"[
            :400
        ], schedule.done
    schedule.done["nodes lost"] += result.failures
    return "", schedule.done


def main(first: int, last: int) -> int:
    """Runs the schedules of these seeds; prints what happened in them and which failed."""
    happened, failed = Counter[str](), []
    with ProcessPoolExecutor() as pool:
        for why, done in pool.map(played, range(first, last), chunksize=10):
            happened += done
            failed += [why] if why else []
    lines = [
        *failed,
        f"seeds {first} to {last - 1}: {last - first - len(failed)} schedules ended with the "
        "undisturbed model",
        ", ".join(f"{what}: {number}" for what, number in sorted(happened.items())),
    ]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
