"""`python -m tests.agileml.engines.slow_hosts`: partitions that leave servers whose bandwidth is
really limited.

Four hosts made of network namespaces send at a limited rate, and some of them at a tenth of it.
Each serves and works. A worker updates its own rows only and reads all, so that servers send far
more than workers. Prints the median time of a clock if partitions stay and if they move, and what
the slow hosts send before and after they have recovered. Run it as root. Times are of the wall
clock, but are those of the limits, as long as the computer has time for four processes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from agileml.transport import TcpAddress
from tests.agileml.engines.attached_jobs import SECRET, AttachedTraining
from tests.agileml.engines.hosts import Host, hosts

HOSTS, PARTITIONS, ROWS, COLUMNS = 4, 40, 1600, 256
FAST, SLOW = "40mbit", "4mbit"
BEFORE, AFTER = 14, 22
"""Clocks with slow hosts, and clocks after they have recovered."""

SETTLED = 6
"""Clocks of each part that do not count: servers are measured, and partitions move."""

TRAINER = f"""
import numpy as np

class Wide:
    name = "wide"
    chunk = 4

    def init(self, rng):
        return {{"w": rng.standard_normal(({ROWS}, {COLUMNS})).astype(np.float32)}}

    def shards(self):
        return [range(4 * number, 4 * number + 4) for number in range({HOSTS})]

    def step(self, shard, lo, hi, params, clock, rng):
        rows = np.arange(shard[0] // 4, {ROWS}, {HOSTS})
        params.update("w", rows, np.float32(1e-3) * (params.read("w")[rows] + np.float32(clock)))

    def loss(self, params, sample):
        return 1.0
"""


@dataclass(frozen=True)
class Played:
    """Seconds and events by clock, what each host sent with slow hosts and afterwards, and the
    digest of the model.
    """

    seconds: tuple[float, ...]
    events: tuple[str, ...]
    answer: dict[str, object] = field(default_factory=dict)
    sent: tuple[tuple[int, ...], ...] = ()

    @property
    def limited(self) -> float:
        """The median time of a clock while hosts were slow."""
        return median(self.seconds[SETTLED:BEFORE])

    @property
    def recovered(self) -> float:
        """The same after they had recovered."""
        return median(self.seconds[BEFORE + SETTLED :])

    def share(self, part: int, slow: int) -> float:
        """What the slow hosts sent, as a share of all, in one of the two parts."""
        return sum(self.sent[part][:slow]) / sum(self.sent[part])


@contextmanager
def training(folder: Path, *options: str) -> Iterator[tuple[AttachedTraining, list[Host]]]:
    """A training whose command runs on the last of the hosts, without nodes."""
    with (
        tempfile.TemporaryDirectory(prefix="h-", dir="/tmp") as name,
        hosts(HOSTS, here := Path(name)) as started,
    ):
        for host in started:
            host.write("job.secret", SECRET)
            host.limit(FAST)
        started[-1].write("wide.py", TRAINER)
        at, prefix = TcpAddress(started[-1].address, 7000), started[-1].command()
        words = [
            "--nodes",
            f"{HOSTS}+0",
            "--stage",
            "1",
            "--partitions",
            str(PARTITIONS),
            "--checkpoint-every",
            "0",
        ]
        secret, trainer = here / "job.secret", str(here / "wide.py")
        with closing(
            AttachedTraining(folder, at, trainer, *words, *options, secret=secret, prefix=prefix)
        ) as one:
            yield one, started


def played(folder: Path, slow: int, stragglers: str) -> Played:
    """A job in which the first hosts are slow for a number of clocks, and then as fast as the
    others.
    """
    words = ("--stragglers", stragglers) if stragglers else ()
    with training(folder, "--clocks", str(BEFORE + AFTER), *words) as (job, started):
        for host in started[:slow]:
            host.limit(SLOW)
        for number, host in enumerate(started):
            job.join(f"r{number}", "--reliable", prefix=host.command())
        marks = []
        for clock in (SETTLED, BEFORE, BEFORE + SETTLED):
            job.until_clock(clock)
            marks.append([host.sent_bytes for host in started])
            if clock == BEFORE:
                for host in started[:slow]:
                    host.limit(FAST)
        answer = job.ended()
        marks.append([host.sent_bytes for host in started])
        lines = [line for line in job.lines if "clock" in line]
        sent = [tuple(b - a for a, b in zip(marks[i], marks[i + 1], strict=True)) for i in (0, 2)]
        return Played(
            tuple(line["seconds"] for line in lines), tuple(job.events), answer, tuple(sent)
        )


def main(counts: Sequence[int]) -> None:
    """Prints a row for each number of slow hosts."""
    print(
        f"{HOSTS} hosts at {FAST}, slow ones at {SLOW}; seconds of a clock, and the share that the "
        "slow hosts send"
    )
    print(
        "\n| slow | stay | move | stay / move | their share | recovered: stay | move | their share "
        "|"
    )
    print("| --- |" + " ---: |" * 7)
    for slow in counts:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            stay, move = played(Path(one), slow, ""), played(Path(two), slow, "balance")
        cells = (
            f"{stay.limited:.2f}", f"{move.limited:.2f}", f"{stay.limited / move.limited:.2f}",
            f"{move.share(0, slow):.1%}",
            f"{stay.recovered:.2f}", f"{move.recovered:.2f}", f"{move.share(1, slow):.1%}",
        )  # fmt: skip
        print(f"| {slow} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [0, 1, 2])
