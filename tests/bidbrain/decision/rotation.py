"""When equal jobs end if machines that cannot be divided equally stay, are handed on, or rotate.

`python -m tests.bidbrain.decision.rotation` prints a row for each number of jobs and machines.
"""

from __future__ import annotations

from fractions import Fraction

from bidbrain.decision.mixture_solver import SharedQuota
from bidbrain.decision.whole_machines import MachineClaim, fairest

Ends = list[Fraction]


def divided(jobs: int, machines: int, most: int) -> list[int]:
    """The machines of equal jobs that run together."""
    held = fairest((MachineClaim((1.0,), 1, most, ((0,),)),) * jobs, (SharedQuota((1.0,), float(machines)),))
    assert held is not None
    return [int(count) for count in held[:, 0]]


def kept(jobs: int, machines: int, most: int) -> Ends:
    """The ends of jobs of an hour of one machine, if each keeps its part until it ends: commands."""
    return sorted(Fraction(1, count) for count in divided(jobs, machines, most))


def handed_on(jobs: int, machines: int, most: int) -> Ends:
    """The ends if the machines of a job that ends are divided among the others: trainings."""
    left, now, ends = [Fraction(1)] * jobs, Fraction(0), Ends()
    while left:
        held = divided(len(left), machines, most)
        step = min(work / count for work, count in zip(left, held, strict=True))
        now += step
        left = [work - step * count for work, count in zip(left, held, strict=True)]
        ends += [now] * left.count(Fraction(0))
        # The job that is behind is named first, so that it gets the machine that remains.
        left = sorted((work for work in left if work), reverse=True)
    return ends


def rotated(jobs: int, machines: int, most: int) -> Ends:
    """The ends if remaining machines rotate all the time, and moves cost nothing: all jobs progress equally."""
    return [Fraction(jobs, min(machines, jobs * most))] * jobs


def main() -> None:
    """Prints the ends, and how much later the last job ends than with rotation."""
    print("jobs machines: ends if parts are kept; if they are handed on; if they rotate")
    latest = [Fraction(1), Fraction(1)]
    for jobs in range(2, 7):
        for machines in range(jobs + 1, 13):
            even = rotated(jobs, machines, machines)[-1]
            every = [way(jobs, machines, machines) for way in (kept, handed_on)]
            latest = [max(most, ends[-1] / even) for most, ends in zip(latest, every, strict=True)]
            words = [" ".join(f"{float(end):.3f}" for end in ends) for ends in every]
            print(f"{jobs} {machines}: {'; '.join(words)}; {float(even):.3f}")
    print(
        f"the last job ends at most {float(latest[0]):.2f} times as late as with rotation if parts are kept,"
        f" {float(latest[1]):.2f} times if they are handed on"
    )


if __name__ == "__main__":
    main()
