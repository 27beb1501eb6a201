"""PSLD in small: the time of a clock with slow servers, against partitions that stay and a split
that knows speeds.
"""

from __future__ import annotations

from statistics import median

from agileml.core.events import Iteration
from agileml.engines.sim.network import Network
from agileml.iteration_log import straggler_fields
from spotctl.lab.papers.stragglers import PARTITIONS, RATE, SETTLED, served, settled

SERVERS = 4

RECOVERS, AFTERWARDS = 10.0, 60
"""Seconds after which a slow server is as fast as the others, and clocks of that job; the last
SETTLED count."""


def played(
    stragglers: str, slow: int, clocks: int, jitter: float = 0.0, until: float | None = None
) -> list[Iteration]:
    """A job with half as many servers as workers, some of them at a tenth of their bandwidth, until
    a second.
    """
    ends = "" if until is None else f" until {until:g}s"
    network = Network(bytes_per_second=RATE, jitter=jitter)
    return served(
        stragglers,
        f"slow server {slow} to 10%{ends}" if slow else "",
        clocks,
        f"{SERVERS}+{SERVERS}",
        network,
    )


def run(clocks: int) -> str:
    """The table of one, two and half of the servers slow, and of none."""
    clocks = max(clocks, SETTLED + 5)
    lines = ["## Slow servers: the time of a clock", ""]
    lines.append(
        f"{SERVERS} servers and {2 * SERVERS} workers, {PARTITIONS} partitions, cards of "
        f"{RATE / 1e6:g} MB/s; slow"
        f" servers have a tenth. Median from clock {SETTLED + 1} on, virtual time. The "
        "proportional split is computed:"
        " the time without slow servers, divided by the bandwidth that is left. Under way: from "
        "the decision until the"
        " last partition had arrived, while training goes on. Pause: by how much more a clock in "
        "which partitions moved"
        " took than the clock before it and the same clock of the job in which they stay, at most; "
        "and the same of the other clocks, which is noise."
    )
    lines += [
        "",
        "| slow servers | stay | PSLD | stay / PSLD | proportional / PSLD | moved | under way | "
        "pause | no moves |",
        "| --- |" + " ---: |" * 8,
    ]
    even = settled(played("", 0, clocks))
    for slow, jitter in ((0, 0.0), (1, 0.0), (SERVERS // 2, 0.0), (1, 0.002)):
        unmoved = played("", slow, clocks, jitter)
        stay = settled(unmoved)
        log = played("balance", slow, clocks, jitter)
        balanced = settled(log)
        known = even * SERVERS / (SERVERS - 0.9 * slow)
        fields = straggler_fields(log)
        pauses = (
            f"{_pause(log, unmoved, moving=True):.3f} s | {_pause(log, unmoved, moving=False):.3f} "
            "s"
        )
        moved = (
            f"{fields['moved_bytes'] / 1e6:.2f} MB | {fields['suspended_seconds']:.2f} s | {pauses}"
        )
        name = f"{slow}{', noisy network' if jitter else ''}"
        times = f"{stay:.3f} s | {balanced:.3f} s | {stay / balanced:.2f} | {known / balanced:.2f}"
        lines.append(f"| {name} | {times} | {moved} |")
    recovered, kept = recovery(even)
    lines.append(
        f"\nAfter the one slow server has recovered, a clock takes {recovered:.3f} s; with the "
        "split that was"
    )
    lines.append(f"right for its former speed, {kept:.3f} s.")
    return "\n".join(lines) + "\n"


def recovery(even: float) -> tuple[float, float]:
    """The time of a clock after the slow server has recovered: PSLD's, and that of the split for
    its former speed.
    """
    log = played("balance", 1, AFTERWARDS, until=RECOVERS)
    return median(iteration.seconds for iteration in log[-SETTLED:]), even * SERVERS / (
        SERVERS - 0.9
    )


def _pause(log: list[Iteration], unmoved: list[Iteration], *, moving: bool) -> float:
    """The second clock is longer than the first one in any job: workers begin with the values of
    the model.
    """
    clocks = zip(log, log[1:], unmoved[1:], strict=False)
    rises = [
        iteration.seconds - max(before.seconds, other.seconds)
        for before, iteration, other in clocks
        if bool(iteration.sums.moved_bytes) == moving
    ]
    return max(0.0, *rises, 0.0)
