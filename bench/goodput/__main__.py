"""`python -m bench.goodput --torchft PYTHON [--cells SIZE:SCHEDULE:SYSTEM,...]`: the table of
goodput.

Every system trains the same network on the same batches in the same three processes of one thread,
while one supervisor plays one schedule on it. PYTHON is that of an environment with torchft, which
is never a dependency of this project.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from bench.goodput import schedule
from bench.goodput.supervisor import Outcome, Supervisor
from bench.goodput.systems import SYSTEMS, TORCHFT, Cell, Times
from bench.goodput.workload import BATCH, NODES, WIDTHS

INSTALL = (
    "pip install torchft==0.2.0 opentelemetry-exporter-otlp-proto-http, with the torch of this "
    "environment"
)
QUIET_SECONDS, SECONDS = 25.0, 48.0
BUSY_SHARE = 0.05
"""If other processes take more of the processors' time, it is said beside the figures."""

RESTARTED = "torchrun,torchrun-all,ray,command"
OURS = "trainer,trainer-tls,trainer-reliable"
FULL = [
    *(
        f"{size}:none:ddp,torchft-hand-gloo,torchft-pure-gloo,trainer,trainer-tls"
        for size in WIDTHS
    ),
    f"1m:kills:{','.join(TORCHFT)},{RESTARTED},{OURS}",
    *(
        f"{size}:kills:torchft-hand-gloo,torchft-pure-gloo,{RESTARTED},{OURS}"
        for size in ("19k", "16m")
    ),
    f"1m:double:torchft-hand-gloo,{RESTARTED},trainer,trainer-tls",
    "1m:warnings:torchft-hand-gloo,torchrun-all,trainer,trainer-tls",
    "1m:joins:torchft-hand-gloo,torchrun,trainer,trainer-tls",
    *(
        f"16m:{kind}:torchft-hand-gloo,trainer,trainer-tls"
        for kind in ("double", "warnings", "joins")
    ),
    "1m:coordinator:torchft-hand-gloo,torchrun-all,command,trainer,trainer-tls",
]


@dataclass(frozen=True)
class Row:
    """A system in a cell."""

    size: str
    schedule: str
    system: str
    outcome: Outcome

    @property
    def per_second(self) -> float:
        return self.outcome.goodput.useful / self.outcome.seconds

    @property
    def per_processor_second(self) -> str:
        if not SYSTEMS[self.system].accounts:
            return "unknown"
        return f"{self.outcome.goodput.useful / max(self.outcome.processor_seconds, 1e-9):,.0f}"


def main(words: Sequence[str] | None = None) -> int:
    """Prints a line for each cell when it is done, and then the table."""
    given = _parser().parse_args(words)
    missing = missing_of(given.torchft)
    if missing:
        print(f"torchft is not measured: {missing}", file=sys.stderr)
    rows, failed = list[Row](), list[tuple[str, str, str]]()
    chosen = list(cells(given.cells or FULL, with_torchft=not missing))
    # Systems in turn, so that a computer that becomes slower is so for all of them.
    try:
        for seed, (size, kind, name) in product(
            range(given.seed, given.seed + given.repeat), chosen
        ):
            usual = QUIET_SECONDS if kind == "none" else SECONDS
            try:
                rows.append(played(size, kind, name, given.seconds or usual, seed, given))
            except TimeoutError as error:
                print(f"{size} {kind}: {error}", file=sys.stderr)
                failed.append((size, kind, name))
                continue
            print(_line(rows[-1]), flush=True)
    finally:
        print(table(rows, losses(rows), failed))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.goodput", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--torchft",
        default="",
        metavar="PYTHON",
        help="the interpreter of an environment with torchft",
    )
    parser.add_argument(
        "--cells",
        nargs="+",
        metavar="CELL",
        help=f"SIZE:SCHEDULE:SYSTEM,...; sizes {', '.join(WIDTHS)}; schedules "
        f"{', '.join(schedule.KINDS)}; systems {', '.join(SYSTEMS)}",
    )
    parser.add_argument(
        "--times",
        type=_times,
        metavar="SECONDS,HEARTBEAT,JOIN",
        help="time-outs of torchft's replicas in seconds, and of its lighthouse in ms, to tune "
        "them on another seed",
    )
    parser.add_argument("--seconds", type=float, default=0.0, help="of a cell")
    parser.add_argument("--seed", type=int, default=1, help="of the schedules")
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        help="play each cell with as many schedules, with this seed and the next ones",
    )
    return parser


def _times(text: str) -> Times:
    seconds, heartbeat, join = text.split(",")
    return Times(float(seconds), int(heartbeat), int(join))


def missing_of(python: str) -> str:
    """The reason why torchft cannot be measured; empty if it can."""
    if not python:
        return f"--torchft PYTHON is missing: the interpreter of an environment with it ({INSTALL})"
    try:
        tried = subprocess.run(
            [python, "-c", "import torchft"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        return f"--torchft {python}: {error.strerror}"
    return (
        f"--torchft {python}: {tried.stderr.strip().splitlines()[-1]} ({INSTALL})"
        if tried.returncode
        else ""
    )


def cells(texts: Sequence[str], *, with_torchft: bool) -> Iterator[tuple[str, str, str]]:
    """Size, schedule and system of each cell; exits with one line if there is no such cell."""
    for text in texts:
        size, _, rest = text.partition(":")
        kind, _, names = rest.partition(":")
        for name in names.split(","):
            if size not in WIDTHS or kind not in schedule.KINDS or name not in SYSTEMS:
                sys.exit(f"--cells {text}: there is no {size}:{kind}:{name}; see --help")
            if kind == "coordinator" and SYSTEMS[name].coordinator is None:
                sys.exit(f"--cells {text}: {name} has no coordinator")
            if kind == "joins" and SYSTEMS[name].node is None:
                sys.exit(
                    f"--cells {text}: {name} rents all nodes at once, so that none joins it later"
                )
            if with_torchft or name not in TORCHFT:
                yield size, kind, name


def played(
    size: str, kind: str, name: str, seconds: float, seed: int, given: argparse.Namespace
) -> Row:
    """Plays the schedule on the system."""
    with tempfile.TemporaryDirectory(prefix="goodput") as folder:
        events, first = schedule.drawn(kind, seconds, seed), schedule.first_nodes(kind)
        supervisor = Supervisor(
            SYSTEMS[name], Cell(size, Path(folder), len(first), given.torchft, given.times)
        )
        outcome = supervisor.play(first, events, seconds)
        return Row(size, kind, name, outcome)


def losses(rows: Sequence[Row]) -> dict[tuple[str, int], float]:
    """The loss of an undisturbed training in one process after as many steps, by network and
    steps."""
    known = dict[tuple[str, int], float]()
    for size in {row.size for row in rows}:
        steps = sorted(
            {row.outcome.final.step for row in rows if row.size == size and row.outcome.final}
        )
        command = [sys.executable, "-m", "bench.goodput.workload", size, *map(str, steps)]
        reference = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
        known |= {(size, step): loss for step, loss in zip(steps, reference, strict=True)}
    return known


def _line(row: Row) -> str:
    pauses = " ".join(f"{pause:.2f}" for pause in row.outcome.goodput.pauses)
    return (
        f"{row.size} {row.schedule} {row.system}: {row.per_second:.0f} samples/s,"
        f" {row.per_processor_second} per processor second,"
        f" a step {1000 * row.outcome.goodput.step_seconds:.1f} ms, {row.outcome.losses} lost,"
        f" {row.outcome.exits} ended by themselves, pauses {pauses or '-'}, others "
        f"{row.outcome.others_share:.1%}"
    )


_HEAD = (
    "| network | schedule | system | samples/s | per processor second | pauses: median, longest | "
    "redone | loss, undisturbed | nodes that ended |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def table(
    rows: Sequence[Row],
    undisturbed: dict[tuple[str, int], float],
    failed: Sequence[tuple[str, str, str]] = (),
) -> str:
    """All cells, and what stands beside them: also the runs that did not begin to train."""
    runs = defaultdict[tuple[str, str, str], list[Row]](list)
    for row in rows:
        runs[row.size, row.schedule, row.system].append(row)
    lines = [_HEAD, *(_cells(of_cell, undisturbed) for of_cell in runs.values())]
    lines += [f"| {' | '.join(cell)} | did not begin to train |" for cell in failed]
    remark = (
        f"Batches of {BATCH} samples, {NODES} nodes of one thread, {os.cpu_count()} cores;"
        f" {schedule.RESTART_SECONDS:g} s from a loss to the start of a process in its place."
    )
    busiest = max(
        (row.outcome.others_share for row in rows if SYSTEMS[row.system].accounts), default=0.0
    )
    if busiest > BUSY_SHARE:
        remark += f" Other processes took up to {busiest:.0%} of the processors' time."
    return "\n".join([*lines, "", remark])


def _cells(runs: Sequence[Row], undisturbed: dict[tuple[str, int], float]) -> str:
    """Of several runs, the median rate with its extremes and all pauses, and of the run in the
    middle the rest.
    """
    runs = sorted(runs, key=lambda run: run.per_second)
    row, rates = runs[(len(runs) - 1) // 2], [run.per_second for run in runs]
    final, exits = row.outcome.final, sum(run.outcome.exits for run in runs)
    rate = f"{statistics.median(rates):,.0f}"
    if len(runs) > 1:
        rate += f" ({rates[0]:,.0f} to {rates[-1]:,.0f} in {len(runs)})"
    every = [pause for run in runs for pause in run.outcome.goodput.pauses]
    pauses = f"{statistics.median(every):.2f} s, {max(every):.2f} s" if every else ""
    loss = (
        f"{final.loss:.3f}, {undisturbed[row.size, final.step]:.3f} at {final.step:,}"
        if final
        else "none"
    )
    figures = [rate, row.per_processor_second, pauses, f"{row.outcome.goodput.redone:,}", loss]
    return (
        "| " + " | ".join([row.size, row.schedule, row.system, *figures, str(exits or "")]) + " |"
    )


if __name__ == "__main__":
    sys.exit(main())
