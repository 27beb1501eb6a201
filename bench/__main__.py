"""`python -m bench [NAME...]`: runs benchmarks; without names all, and writes docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from bench import (
    agileml_elastic,
    agileml_sim,
    agileml_sparse,
    agileml_transport,
    bidbrain,
    gavel,
    gavel_simulator,
    plan,
    prices,
    startup,
)

BENCHMARKS = {
    "startup": startup.run,
    "prices": prices.run,
    "bidbrain": bidbrain.run,
    "plan": plan.run,
    "gavel": gavel.run,
    "gavel_simulator": gavel_simulator.run,
    "agileml_transport": agileml_transport.run,
    "agileml_sim": agileml_sim.run,
    "agileml_sparse": agileml_sparse.run,
    "agileml_elastic": agileml_elastic.run,
}

_HEAD = """# Benchmarks

Made by `make bench`; every figure below was printed by that command. Machines are noisy: trust the ratios, which are
of one run. This one: {cores} cores, Python {python}, {system}.
"""


def main(names: list[str]) -> None:
    """Runs the named benchmarks, or all."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"benchmark {unknown[0]!r} is none of {', '.join(BENCHMARKS)}")
    sections = []
    for name in names or BENCHMARKS:
        print(f"running {name} ...", file=sys.stderr)
        sections.append(BENCHMARKS[name]())
        print(sections[-1])
    if not names:
        head = _HEAD.format(cores=os.cpu_count(), python=platform.python_version(), system=platform.system())
        Path("docs/benchmarks.md").write_text("\n".join([head, *sections]))


if __name__ == "__main__":
    main(sys.argv[1:])
