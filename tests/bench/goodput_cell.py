"""A short cell of the benchmark of goodput with one kill, for tests: `python -m tests.bench.goodput_cell SYSTEM NODE`.

Prints the step of the loss that the system reports afterwards, and how many processes are left: one that is ending
has no command line any more.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.goodput.schedule import RESTART_SECONDS, Event, first_nodes
from bench.goodput.supervisor import Supervisor
from bench.goodput.systems import SYSTEMS, Cell


def main(name: str, node: int) -> None:
    """Kills a node or the coordinator, and ends the cell when a process in its place has been started."""
    with tempfile.TemporaryDirectory(prefix="goodput") as folder:
        supervisor = Supervisor(SYSTEMS[name], Cell("19k", Path(folder)))
        outcome = supervisor.play(first_nodes("kills"), [Event(0.0, (node,))], RESTART_SECONDS, final_seconds=300.0)
    children = [child for task in Path("/proc/self/task").glob("*/children") for child in task.read_text().split()]
    left = [child for child in children if Path(f"/proc/{child}/cmdline").read_bytes()]
    sys.stdout.write(f"{outcome.final.step if outcome.final else 0} {len(left)}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
