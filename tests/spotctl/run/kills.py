"""The kill matrix: a run with two evictions is killed at every log write and around every request,
and resumed.

python -m tests.spotctl.run.kills            every point, and 100 runs that die twice or more
python -m tests.spotctl.run.kills --real 20  20 points of real launches, whose processes are really killed
python -m tests.spotctl.run.kills --moments 100  that many SIGKILLs at random moments of real launches (root)
python -m tests.spotctl.run.kills --jumps 20  real launches whose clock jumps, also at daylight saving (cc)
python -m tests.spotctl.run.kills --standstills 8  real launches that stand still for three minutes, every process
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.spotctl.run.worlds import MARKETS, Death, Killed, Life, life

TAKEN = {8: (MARKETS[0], True), 24: (MARKETS[1], False)}
DOUBLE = 100


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


def deaths_of(seed: int) -> list[int]:
    """Points at which a run and the processes that resume it die."""
    draw = random.Random(seed)
    return [
        draw.randrange(len(points())),
        *(draw.randrange(40) for _ in range(draw.randint(1, 12))),
    ]


def survive(folder: Path, deaths: Sequence[int]) -> None:
    """Runs with these deaths, one process after the other, and compares with the undisturbed
    run."""
    one, expected = life(folder, TAKEN), _undisturbed()[0]
    for at in deaths:
        try:
            one.run(Death(at))
        except Killed:
            continue
    ended = one.run()
    state, machines = one.state(), one.cloud.everything
    assert ended.outcome == "done"
    assert not one.world.running, "machines are left"
    assert state.machines.keys() == {machine.id for machine in machines}, (
        "machines missing from the log"
    )
    assert all(held.ended is not None for held in state.machines.values())
    bought = [(machine.market, machine.bid) for machine in machines]
    assert bought == [(machine.market, machine.bid) for machine in expected.cloud.everything], (
        "bought twice"
    )
    assert ended.facts["model"] == expected.work.model, "another model"


def main() -> None:
    """Prints the number of points and the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=int, default=0, metavar="POINTS")
    parser.add_argument("--moments", type=int, default=0, metavar="KILLS")
    parser.add_argument("--jumps", type=int, default=0, metavar="LAUNCHES")
    parser.add_argument("--standstills", type=int, default=0, metavar="LAUNCHES")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if number := given.moments or given.jumps or given.standstills:
        from tests.spotctl.run.random_kills import JUMP, STANDSTILL, lives

        trouble = "" if given.moments else JUMP if given.jumps else STANDSTILL
        sys.exit(lives(number, given.seed, given.workers, trouble) > 0)
    if given.real:
        from tests.spotctl.run.real_kills import survive_really

        sys.stdout.write(survive_really(given.real, given.seed) + "\n")
        return
    deaths_of_lives = [[at] for at in range(len(points()))] + [
        deaths_of(given.seed + seed) for seed in range(DOUBLE)
    ]
    for deaths in deaths_of_lives:
        with tempfile.TemporaryDirectory() as folder:
            try:
                survive(Path(folder), deaths)
            except AssertionError as error:
                sys.stdout.write(f"killed at {deaths}, first {points()[deaths[0]]}: {error}\n")
                raise
    sys.stdout.write(
        f"{len(points())} points, killed at each and resumed, and {DOUBLE} runs killed again while "
        "they resumed: no machine bought twice, none left, the same model\n"
    )


if __name__ == "__main__":
    main()
