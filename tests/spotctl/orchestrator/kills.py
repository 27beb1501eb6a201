"""The kill matrix: a run with two evictions is killed at every write to its log and around every call, and goes on.

python -m tests.spotctl.orchestrator.kills
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.spotctl.orchestrator.worlds import MARKETS, Death, Killed, Life, life

TAKEN = {8: (MARKETS[0], True), 24: (MARKETS[1], False)}


@cache
def points() -> tuple[str, ...]:
    """Where an undisturbed run can die."""
    return tuple(_undisturbed()[1].met)


@cache
def _undisturbed() -> tuple[Life, Death]:
    with tempfile.TemporaryDirectory() as folder:
        one, death = life(Path(folder), TAKEN), Death()
        one.run(death)
        return one, death


def survive(folder: Path, deaths: Sequence[int]) -> None:
    """Runs with these deaths, one process after the other, and compares with the run that nothing disturbed."""
    one = life(folder, TAKEN)
    for at in deaths:
        try:
            one.run(Death(at))
        except Killed:
            continue
    ended = one.run()
    state, expected = one.state(), _undisturbed()[0]
    assert ended.outcome == "done"
    assert not one.cloud.running, "machines are left"
    assert state.machines.keys() == one.cloud.all.keys(), "machines nobody knows of"
    assert all(held.ended is not None for held in state.machines.values())
    bought = [(machine.market, machine.bid) for machine in one.cloud.all.values()]
    assert bought == [(machine.market, machine.bid) for machine in expected.cloud.all.values()], "bought twice"
    assert len(one.work.done) >= one.work.rounds, "ended with work undone"


def main() -> None:
    """Prints the number of points and what became of them."""
    every = points()
    for at, where in enumerate(every):
        with tempfile.TemporaryDirectory() as folder:
            try:
                survive(Path(folder), [at])
            except AssertionError as error:
                sys.stdout.write(f"point {at}, {where}: {error}\n")
                raise
    sys.stdout.write(
        f"{len(every)} points, killed at each and resumed: no machine bought twice, none left, the work done\n"
    )


if __name__ == "__main__":
    main()
