"""How soon `spotctl --help` answers, beside a Typer app of two commands."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.harness import Row, shown, table

RUNS = 21
LIMIT_SECONDS, LIMIT_RATIO = 0.2, 1.8

_TWO_COMMANDS = '''
import typer

app = typer.Typer()


@app.command()
def greet(name: str) -> None:
    """Say hello."""


@app.command()
def part(name: str) -> None:
    """Say goodbye."""


app()
'''


def run() -> str:
    """Measures both in turn, so that a machine that slows down slows both."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "two.py"
        script.write_text(_TWO_COMMANDS)
        spotctl = str(Path(sys.executable).with_name("spotctl"))
        pairs = [(_wall(spotctl, "--help"), _wall(sys.executable, str(script), "--help")) for _ in range(RUNS + 1)][1:]
    ours, peer = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(one / other for one, other in pairs)
    return table(
        "Start-up",
        f"Wall time of the whole process, median of {RUNS} runs of each in turn.",
        [
            Row("`spotctl --help`", shown(ours), f"limit {shown(LIMIT_SECONDS)}"),
            Row("beside a Typer app of two commands", shown(ours), shown(peer), f"{ratio:.2f}, limit {LIMIT_RATIO}"),
        ],
    )


def _wall(*command: str) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start
