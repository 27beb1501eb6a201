"""`python -m bench.stragglers [--clocks N] [--workers N] [--plot FILE] [--traces FILE...] [NAME...]`.

Prints the time of a clock of simulated jobs: with workers slowed as in FlexRR's paper (`workers`), with servers slowed
as in PSLD's (`servers`), and with recorded times of production jobs (`traces`). Time is virtual, so the figures depend
on the seed alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.stragglers import servers, workers

TABLES = ("workers", "servers", "traces")


def main() -> None:
    """Prints the tables that were asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench.stragglers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"tables to print: {', '.join(TABLES)}")
    parser.add_argument("--clocks", type=int, default=20, help="clocks of each job")
    parser.add_argument("--workers", type=int, default=16, help="workers of each job")
    parser.add_argument("--plot", type=Path, help="draw the time of a clock by delay into this file (.svg, .png)")
    parser.add_argument("--traces", type=Path, nargs="*", default=[], help="files with recorded times")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in TABLES]
    if unknown:
        sys.exit(f"unknown table {unknown[0]!r}: choose from {', '.join(TABLES)}")
    names = chosen.names or TABLES
    if "workers" in names:
        print(workers.run(chosen.workers, chosen.clocks, chosen.plot))
    if "servers" in names:
        print(servers.run(chosen.clocks))
    if "traces" in names:
        print(workers.run_traces(chosen.traces, chosen.workers, chosen.clocks))


if __name__ == "__main__":
    main()
