"""`python -m bench.stragglers [NAME...] [--clocks N] [--workers N] [--modes MODE...] [--plots DIR]
[--traces FILE...]`.

Prints the time of a clock of simulated jobs: with workers slowed as in FlexRR's paper (`workers`),
with servers slowed as in PSLD's (`servers`), with recorded times of production jobs (`traces`); the
time to a loss with backup workers as in DBW's (`backups`); how often each shard counts next to a
worker that is always slow (`shares`); and what all measures cost where no worker is slow
(`overhead`). Time is virtual, so the figures depend on the seed alone, but for the processor time
of `overhead`, and for `workers --engine local`, which starts processes that sleep.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.stragglers import backups, overhead, servers, shares, workers
from spotctl.lab.papers.stragglers import MODES

TABLES = ("workers", "servers", "traces", "backups", "shares", "overhead")


def main() -> None:
    """Prints the tables that were asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench.stragglers", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"tables to print: {', '.join(TABLES)}"
    )
    parser.add_argument("--clocks", type=int, default=20, help="clocks of each job")
    parser.add_argument("--workers", type=int, default=16, help="workers of each job")
    parser.add_argument(
        "--modes", nargs="*", default=[*MODES], choices=workers.TRACED, help="of `workers`"
    )
    parser.add_argument("--engine", default="sim", choices=workers.ENGINES, help="of `workers`")
    parser.add_argument("--plots", type=Path, help="folder for workers.svg and backups.svg")
    parser.add_argument(
        "--traces", type=Path, nargs="*", default=[], help="files with recorded times"
    )
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in TABLES]
    if unknown:
        sys.exit(f"unknown table {unknown[0]!r}: choose from {', '.join(TABLES)}")
    names = chosen.names or TABLES
    if chosen.plots is not None:
        chosen.plots.mkdir(parents=True, exist_ok=True)
    if "workers" in names:
        print(workers.run(chosen.workers, chosen.clocks, chosen.modes, chosen.plots, chosen.engine))
    if "servers" in names:
        print(servers.run(chosen.clocks))
    if "traces" in names:
        print(workers.run_traces(chosen.traces, chosen.workers, chosen.clocks))
    if "backups" in names:
        print(backups.run(chosen.workers, chosen.plots))
    if "shares" in names:
        print(shares.run())
    if "overhead" in names:
        print(overhead.run(chosen.workers, chosen.clocks))


if __name__ == "__main__":
    main()
