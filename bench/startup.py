"""Processor time of short commands, compared with a Typer app of two commands."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.harness import Row, shown, table

RUNS = 3
HELP_LIMIT, COMMAND_LIMIT = 1.6, 4.0

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
    """Measures every help page, `status`, and a job file with a wrong value."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "two.py").write_text(_TWO_COMMANDS)
        (folder / "job.yaml").write_text("name: x\nkind: command\nhours: banana\n")
        peer = [sys.executable, str(folder / "two.py"), "--help"]
        spotctl = [str(Path(sys.executable).with_name("spotctl"))]
        home = ["--home", str(folder / "home")]
        rows = [
            _row(peer, [*spotctl, *words, "--help"], words, HELP_LIMIT) for words in _commands()
        ]
        others = (["status"], ["launch", str(folder / "job.yaml")])
        rows += [_row(peer, [*spotctl, *home, *words], words, COMMAND_LIMIT) for words in others]
    return table(
        "Start-up",
        f"User and system time of the whole process, median of {RUNS} runs of each command, "
        "alternating with `--help` of a Typer app of two commands.",
        rows,
    )


def _row(peer: list[str], command: list[str], words: list[str], limit: float) -> Row:
    pairs = [(processor_seconds(command), processor_seconds(peer)) for _ in range(RUNS)]
    ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(own / other for own, other in pairs)
    label = " ".join(
        [
            "spotctl",
            *(Path(word).name for word in words),
            *(["--help"] if "--help" in command else []),
        ]
    )
    return Row(f"`{label}`", shown(ours), shown(theirs), f"{ratio:.2f}, limit {limit:g}")


def processor_seconds(command: list[str]) -> float:
    """User and system time of one run of a command, including its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _commands() -> list[list[str]]:
    """The words of every command and group, of the root command first."""
    import typer

    from spotctl.cli.app import app

    pending: list[tuple[list[str], object]] = [([], typer.main.get_command(app))]
    commands = []
    while pending:
        words, command = pending.pop()
        commands.append(words)
        children: dict[str, object] = getattr(command, "commands", {})
        pending += [([*words, name], child) for name, child in reversed(children.items())]
    return commands


if __name__ == "__main__":
    print(run())
