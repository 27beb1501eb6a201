"""Random fault schedules on real processes, which are really killed; each depends on its seed, but
for its timing.

`python -m tests.agileml.local_faults 0 200` runs 200 jobs, as many at a time as there are
processors, and compares each model with the undisturbed one, bit for bit.
"""

from __future__ import annotations

import random
import signal
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.chaos import Chaos, FaultSchedule
from agileml.engines.local import LocalEngine
from agileml.job import Stopping, Trained, TrainingJob
from agileml.policies.stage import Thresholds
from agileml.reference import model_digest, run
from agileml.roles.node import JobSettings

CLOCKS = 12
LENGTHS = (4,) * 16
SOURCE = TrainerSource("tests.agileml.toys:Paced", {"lengths": LENGTHS, "chunk": 2})
STUCK_SECONDS = 600
"""A job that takes longer does not end."""

DEEDS = (
    "evict 1 warn {warning}",
    "evict half warn {warning}",
    "evict all warn {warning}",
    "evict 1 reliable warn {warning}",
    "kill 1",
    "kill half",
    "kill all",
    "kill 1 reliable",
    "kill all reliable",
    "kill controller",
    "join 2",
    "join 1 reliable",
)


@dataclass(frozen=True)
class LocalSchedule:
    """One seed: a footprint, settings, and faults. Half of the faults of some seeds come before the
    first clock.

    The model must be that of the reference run, by its digest.
    """

    seed: int
    source: TrainerSource = SOURCE
    expected: str = ""

    @property
    def chaos(self) -> str:
        """The faults."""
        chance = random.Random(self.seed)
        early = chance.random() < 0.4
        rules = []
        for _ in range(chance.randint(1, 5)):
            start_up = early and chance.random() < 0.5
            when = (
                f"{chance.randint(1, 800)}ms"
                if start_up
                else f"clock {chance.randint(1, CLOCKS - 2)}"
            )
            deed = chance.choice(DEEDS).format(warning=chance.choice(["0s", "50ms", "1s", "30s"]))
            rules.append(f"at {when} {deed}")
        return "; ".join([*rules, "every 4 clocks join 1"])

    @property
    def job(self) -> TrainingJob:
        """The job."""
        chance = random.Random(-1 - self.seed)
        reliable, transient = chance.choice([(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (1, 4)])
        settings = JobSettings(
            partitions=8, deterministic=True, loss_sample=0, keeps=chance.choice([1, 8])
        )
        return TrainingJob(
            self.source,
            reliable,
            transient,
            Stopping(clocks=CLOCKS),
            settings,
            Thresholds(1, chance.choice([3, 15])),
            # A killed process is noticed by its broken connections; heartbeats may be late on a
            # busy computer.
            heartbeat_timeout=20.0,
            checkpoint_every=chance.choice([0, 1, 1, 2]),
        )

    def run(self) -> list[Iteration]:
        """Runs the job to its end and compares its model with the reference."""
        log: list[Iteration] = []
        trained = LocalEngine().run(
            self.job, FaultSchedule(Chaos.parse(self.chaos, self.seed)), log.append, lambda _: None
        )
        check(trained, log, self.expected or undisturbed())
        return log


def check(trained: Trained, log: list[Iteration], expected: str) -> None:
    """Raises AssertionError unless every clock was reported once, and nothing lost."""
    assert [one.clock for one in log] == list(range(1, CLOCKS + 1)), (
        "a clock is missing or reported twice"
    )
    assert model_digest(trained.model) == expected, "the model is not that of the undisturbed run"
    counters = trained.counters
    assert (counters.lost, counters.doubled, counters.applied) == (0, 0, counters.sent), counters


@cache
def undisturbed() -> str:
    """The digest of the reference run's model."""
    return digest_after(
        TrainerSource("tests.agileml.toys:Decades", {"lengths": LENGTHS, "chunk": 2})
    )


def digest_after(source: TrainerSource) -> str:
    """The digest of a trainer's model in the reference run, after as many clocks as a schedule
    has."""
    return model_digest(run(source.load(), CLOCKS, seed=0, deterministic=True))


def outcome(seed: int) -> tuple[int, str, Counter[str]]:
    """The seed, why its schedule failed (or nothing), and what happened in it."""
    signal.alarm(STUCK_SECONDS)
    schedule, happened = LocalSchedule(seed), Counter[str]()
    try:
        log = schedule.run()
    except Exception as error:  # noqa: BLE001 - every exception is a finding
        return (
            seed,
            f"{schedule.chaos!r} with {schedule.job}: {type(error).__name__}: {error}",
            happened,
        )
    finally:
        signal.alarm(0)
    for event in (event for one in log for event in one.events):
        happened.update(
            word
            for word in ("ready", "warned", "left", "lost", "from version", "restarted")
            if word in event
        )
    happened["redone"] += sum(one.redone for one in log)
    return seed, "", happened


def _stuck(*_: object) -> None:
    raise TimeoutError(f"the job has not ended after {STUCK_SECONDS} s")


def main(first: int, last: int, jobs: int | None = None) -> int:
    """Runs the schedules of these seeds; prints those that failed."""
    signal.signal(signal.SIGALRM, _stuck)
    failed, happened = 0, Counter[str]()
    with ProcessPoolExecutor(jobs) as pool:
        for seed, why, events in pool.map(outcome, range(first, last)):
            happened += events
            failed += bool(why)
            if why:
                _print(f"seed {seed}: {why}")
    _print(", ".join(f"{name} {number}" for name, number in sorted(happened.items())))
    _print(f"seeds {first} to {last - 1}: {last - first - failed} ended with the undisturbed model")
    return 1 if failed else 0


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
