"""A short cell of the benchmark of goodput, for tests: `python -m tests.bench.goodput_cell SYSTEM
SCHEDULE SEED`.

Prints the step of the loss that the system reports afterwards, this loss, that of an undisturbed
training after as many steps, and how many processes are left: one that is ending has no command
line any more.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from bench.goodput.schedule import drawn, first_nodes
from bench.goodput.supervisor import Supervisor
from bench.goodput.systems import SYSTEMS, Cell
from bench.goodput.workload import undisturbed

SIZE, SECONDS = "19k", 18.0
"""Long enough for two kills."""


def main(name: str, kind: str, seed: int) -> None:
    """Plays a schedule, and waits until the system reports its loss."""
    events, first = drawn(kind, SECONDS, seed), first_nodes(kind)
    with tempfile.TemporaryDirectory(prefix="goodput") as folder:
        supervisor = Supervisor(SYSTEMS[name], Cell(SIZE, Path(folder), len(first)))
        final = supervisor.play(first, events, SECONDS, final_seconds=300.0).final
    children = [
        child
        for task in Path("/proc/self/task").glob("*/children")
        for child in task.read_text().split()
    ]
    left = [child for child in children if Path(f"/proc/{child}/cmdline").read_bytes()]
    expected = undisturbed(SIZE, [final.step])[0] if final else 0.0
    json.dump(
        [final.step if final else 0, final.loss if final else 0.0, expected, len(left)], sys.stdout
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
