"""`python -m bench.goodput --torchft PYTHON`: goodput of elastic training systems through the same losses of machines."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from bench.goodput import schedule
from bench.goodput.supervisor import Outcome, Supervisor
from bench.goodput.systems import SYSTEMS, Cell
from bench.goodput.workload import BATCH, NODES, WIDTHS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--torchft", default="")
    parser.add_argument("--systems", default="ddp,trainer")
    parser.add_argument("--sizes", default="1m")
    parser.add_argument("--schedules", default="none")
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    for size in args.sizes.split(","):
        for kind in args.schedules.split(","):
            for name in args.systems.split(","):
                folder = Path(tempfile.mkdtemp(prefix="gp"))
                try:
                    outcome = Supervisor(SYSTEMS[name], Cell(size, folder, args.torchft)).play(schedule.first_nodes(kind), schedule.drawn(kind, args.seconds, args.seed), args.seconds)
                except TimeoutError as e:
                    print(e); continue
                g = outcome.goodput
                print(f"{size:4} {kind:9} {name:20} {g.useful/outcome.seconds:8.0f}/s {g.useful/outcome.processor_seconds:8.0f}/cpu-s cpu {outcome.processor_seconds:5.1f} step {g.step_seconds*1000:6.1f} ms pauses {[round(p,2) for p in g.pauses]} redone {g.redone} losses {outcome.losses} exits {outcome.exits} final {outcome.final} load {os.getloadavg()[0]:.1f} {folder if args.keep else ''}", flush=True)


main()
