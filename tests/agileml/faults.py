"""Random fault schedules in virtual time, and the invariants that must always hold.

`python -m tests.agileml.faults 0 5000` runs 5,000 schedules and prints which (phase, event, message
boundary) they hit. It fails if a schedule fails, or if one is missed that these seeds aim at often
enough; 5,000 seeds do so for all. A schedule depends on its seed alone: `python -m
tests.agileml.faults 17 18` repeats number 17.
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.agileml.schedules import Schedule
from tests.agileml.targets import (
    EVENTS,
    KINDS,
    NEVER_SENT,
    OUTSIDE,
    PHASES,
    Target,
    sought_by,
    targets,
)

ATTEMPTS = 20
"""How often a target is aimed at again that the schedules have missed: they are random."""


@dataclass
class Report:
    """The targets that schedules hit, and the schedules that failed."""

    met: Counter[Target] = field(default_factory=Counter)
    kinds: set[tuple[int, str]] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, seed: int, target: Target | None = None) -> Report:
        """Runs one schedule: for a target, or for that of its seed."""
        schedule, report = Schedule(seed, target=target), cls()
        try:
            schedule.run()
        except Exception as error:  # noqa: BLE001 - every exception is a finding
            report.failed.append(
                f"seed {seed}, {schedule.target}: {type(error).__name__}: {error}"[:400]
            )
        report.met.update(schedule.met)
        report.kinds |= schedule.watch.kinds
        return report

    def add(self, other: Report) -> None:
        """Adds another report."""
        self.met.update(other.met)
        self.kinds |= other.kinds
        self.failed += other.failed


def main(first: int, last: int) -> int:
    """Runs the schedules of these seeds; prints the targets they hit and those that failed."""
    total = Report()
    with ProcessPoolExecutor() as pool:
        for done, report in enumerate(
            pool.map(Report.of, range(first, last), chunksize=10), start=1
        ):
            total.add(report)
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{done} schedules, {len(total.failed)} failed")
        again = [
            target
            for target in sorted(sought_by(first, last) - total.met.keys())
            for _ in range(ATTEMPTS)
        ]
        for report in pool.map(Report.of, range(last, last + len(again)), again):
            total.add(report)
    _print_table(total.met)
    missing = _print_sums(total.met, total.kinds, sought_by(first, last))
    if again:
        print(
            f"{len(again) // ATTEMPTS} of these were missed at first, and aimed at {ATTEMPTS} "
            "times again"
        )
    ended = last - first + len(again) - len(total.failed)
    print(f"seeds {first} to {last - 1}: {ended} schedules ended with the undisturbed model")
    for line in total.failed:
        print(line)
    return 1 if total.failed or missing else 0


def _print_table(met: Counter[Target]) -> None:
    print(
        "number of times that an event followed right after the delivery of a kind of message, by "
        "phase"
    )
    heads = [
        event.replace("kill ", "k.").replace("warn ", "w.").replace("reliable", "rel.")
        for event in EVENTS
    ]
    for stage, name in PHASES.items():
        print(f"\n{name:<18}" + "".join(f"{head:>13}" for head in heads))
        for kind in OUTSIDE.get(stage, KINDS):
            print(
                f"{kind:<18}"
                + "".join(f"{met[Target(stage, event, kind)]:>13}" for event in EVENTS)
            )


def _print_sums(met: Counter[Target], kinds: set[tuple[int, str]], sought: set[Target]) -> int:
    missing = sorted(sought - met.keys())
    print(
        f"\n{len(met.keys() & set(targets()))} of {len(targets())} (phase, event, boundary) that "
        "can occur were met;"
    )
    print(f"{len(sought) - len(missing)} of the {len(sought)} that this many seeds must meet")
    for kind, reason in NEVER_SENT.items():
        print(f"cannot occur: {kind}: {reason}")
    for target in missing:
        delivered = (
            "" if (target.stage, target.kind) in kinds else " (no such message in this phase)"
        )
        print(f"missing: {target.event} after {target.kind} in {PHASES[target.stage]}{delivered}")
    return len(missing)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
