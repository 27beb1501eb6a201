"""`python -m bench [--compare] [NAME...]`: runs the named benchmarks, or all.

A run of all writes build/benchmarks.md and adds its ratios to bench/history.csv. With `--compare`
nothing is written, and the exit code is 1 if a ratio is clearly worse than in the history.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from pathlib import Path

from bench import (
    agileml_checkpoints,
    agileml_elastic,
    agileml_heartbeat,
    agileml_sim,
    agileml_sparse,
    agileml_throughput,
    agileml_transport,
    agileml_wire,
    bidbrain,
    gavel,
    gavel_scale,
    gavel_simulator,
    history,
    object_stores,
    plan,
    prices,
    report,
    startup,
)

BENCHMARKS = {
    "startup": startup.run,
    "prices": prices.run,
    "report": report.run,
    "bidbrain": bidbrain.run,
    "plan": plan.run,
    "gavel": gavel.run,
    "gavel_scale": gavel_scale.run,
    "gavel_simulator": gavel_simulator.run,
    "object_stores": object_stores.run,
    "agileml_transport": agileml_transport.run,
    "agileml_sim": agileml_sim.run,
    "agileml_sparse": agileml_sparse.run,
    "agileml_wire": agileml_wire.run,
    "agileml_throughput": agileml_throughput.run,
    "agileml_elastic": agileml_elastic.run,
    "agileml_heartbeat": agileml_heartbeat.run,
    "agileml_checkpoints": agileml_checkpoints.run,
}

PAGE = Path("build/benchmarks.md")
_HEAD = """# Benchmarks

Written by `make bench`, which printed every figure below. Computers are noisy: trust the ratios, which compare two
measurements of the same run. `make compare` checks them against bench/history.csv. This run: {cores} cores,
Python {python}, {system}.
"""


def main(words: list[str] | None = None) -> None:
    """Runs benchmarks and prints their sections."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Runs the named benchmarks, or all."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument(
        "--compare", action="store_true", help="compare with bench/history.csv; 1 if worse"
    )
    chosen = parser.parse_args(words)
    if unknown := [name for name in chosen.names if name not in BENCHMARKS]:
        parser.error(f"unknown benchmark {unknown[0]!r}: choose from {', '.join(BENCHMARKS)}")
    sections = []
    for name in chosen.names or BENCHMARKS:
        print(f"running {name} ...", file=sys.stderr)
        sections.append(BENCHMARKS[name]())
        print(sections[-1])
    ratios = history.ratios(sections)
    if chosen.compare:
        worse = history.regressions(ratios, history.earlier())
        sys.exit("\n".join(worse) or 0)
    if not chosen.names:
        head = _HEAD.format(
            cores=os.cpu_count(), python=platform.python_version(), system=platform.system()
        )
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text("\n".join([head, *sections]))
        history.append(ratios)


if __name__ == "__main__":
    main()
