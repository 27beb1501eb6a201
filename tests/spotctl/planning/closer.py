"""How far plans are from what happens, night by night, as runs teach how a job works.

    python -m tests.spotctl.planning.closer [--seeds 3] [--nights 3]

plays the nights of `tests.spotctl.log.ledger.histories` with made-up truths that no plan knows, for
every kind of job, and prints by how much expected hours and dollars missed, on the mean over seeds.
Where the length of a job is unknown, its first plan says so, and states the figures of an hour.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from pricing_data.library import Library
from pricing_data.store import PriceStore
from pricing_data.units import HOUR, NANO_SECONDS_PER_DOLLAR
from spotctl.files.job.spec import JobSpec
from spotctl.home.config import Settings
from spotctl.log.folding import fold
from spotctl.log.ledger_reader import read
from spotctl.planning.values import JobPlan
from spotctl.run.start.earlier_runs import learn_from_runs
from tests.spotctl.log.ledger.histories import JOB, Truth, nights, plan_of

COMMAND = """\
name: nightly-command
kind: command
run: "true"
checkpoint: {path: checkpoints}
resources:
  clouds: [local]
  types: [c4.2xlarge, c4.xlarge]
strategy: proteus
"""
KINDS: Mapping[str, str] = {
    "training, clocks": JOB,
    "training, clocks, old speed": f"{JOB}throughputs: {{c4.2xlarge: 4, c4.xlarge: 2}}\n",
    "training, minutes": JOB.replace("clocks: 250", "minutes: 300"),
    "training, loss": JOB.replace("clocks: 250", "loss: 0.06"),
    "command": COMMAND,
    "command, old hours": f"{COMMAND}hours: 1h\n",
}


def missed(
    home: Path, count: int, seed: int, truth: Truth, job: str = JOB
) -> list[tuple[float, float]]:
    """By night, by which share expected hours and dollars were too low or too high."""
    settings, known = Settings(home=home), Library(PriceStore(home / "prices"))

    def plan(spec: JobSpec, moment: int) -> JobPlan:
        begun = [fold(run.events).began for run in read(settings)]
        wall = max(one.wall_us for one in begun if one is not None)
        return plan_of(spec, known, moment, learn_from_runs(settings, known, (spec,), wall))

    nights(home, count, seed=seed, job=job, truth=truth, plan=plan)
    found = []
    for run in read(settings):
        state = fold(run.events)
        assert state.planned is not None
        hours, usd = (state.at - state.started) / HOUR, run.ledger.amount / NANO_SECONDS_PER_DOLLAR
        found.append((abs(state.planned.hours - hours) / hours, abs(state.planned.usd - usd) / usd))
    return found


def truth_of(seed: int) -> Truth:
    """A job that works in its own way."""
    rng = np.random.default_rng(seed)
    speed = float(rng.uniform(3, 15))
    return Truth(
        {"c4.xlarge": speed, "c4.2xlarge": speed * float(rng.uniform(1.6, 2.2)), "m3.medium": 0.0},
        doubling=float(rng.uniform(0.88, 1.0)),
        loading=float(rng.uniform(3, 15)),
        lost=float(rng.uniform(1, 30)),
    )


def main() -> int:
    """The table; the exit code is 1 if a later plan was further off than the first one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--nights", type=int, default=3)
    asked = parser.parse_args()
    sys.stdout.write(f"{'job':28}  night  runs before  hours missed by  dollars missed by\n")
    worse = 0
    for kind, job in KINDS.items():
        every = []
        for seed in range(asked.seeds):
            with TemporaryDirectory() as folder:
                every.append(missed(Path(folder), asked.nights, seed, truth_of(seed), job))
        means = np.mean(every, axis=0)
        worse += bool(np.any(means[1:] > means[0]))
        for night, (hours, usd) in enumerate(means):
            sys.stdout.write(f"{kind:28}  {night + 1:5}  {night:11}  {hours:15.0%}  {usd:17.0%}\n")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
