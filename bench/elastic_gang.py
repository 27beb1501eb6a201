"""The cost of an eviction to a gang of three that may shrink, next to one that may not.

`python -m bench.elastic_gang [torch] [3] [2..3]` plays the cases that are named, or both. A command
runs on three machines of the local market. One of them is killed, and setting up its replacement
takes a while. With `torch`, the command is the DDP training of `bench.gang_script`, which reads
from its peers; otherwise a small one that keeps copies in the same way.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.torch_gang import Note, lost, read_notes
from spotctl.integrations.gang_saves import SECRET_VARIABLE

SETUP_SECONDS = 20
PATIENCE_SECONDS = 600.0
NODES = 3
_HERE = Path(__file__).parent
_SMALL = f"{sys.executable} {_HERE / 'elastic_script.py'} TRACES END"
_TORCH = (
    f"TRACE=TRACES/$SPOTCTL_ATTEMPT-$SPOTCTL_NODE_RANK {sys.executable} -m "
    "spotctl.integrations.gang --last-call 5"
    f" {_HERE / 'gang_script.py'} END"
)
_JOB = """\
name: gang
kind: command
run: {run}
nodes: {nodes}
setup: {setup}
env: {{OMP_NUM_THREADS: 1, GLOO_SOCKET_IFNAME: lo, PYTHONPATH: {path}}}
secrets: [{secret}]
checkpoint: {{path: kept, every: 5m}}
strategy: on-demand
resources: {{clouds: [local], types: [c4.2xlarge]}}
local: {{speed: 60, start: 2026-01-15T00:10:00Z}}
"""


@dataclass(frozen=True)
class LaunchedGang:
    """A running job, its folder, and the process that launched it."""

    folder: Path
    launcher: subprocess.Popen[bytes]

    def notes(self) -> list[Note]:
        """The notes of all nodes, in the order of time."""
        return read_notes((self.folder / "traces").glob("*-*"))

    def trained(self, ranks: int, steps: int, since: float = 0.0) -> list[Note]:
        """Waits until a group of this size, begun after a moment, has done that many steps."""

        def met(notes: Sequence[Note]) -> bool:
            begins = [
                note.step
                for note in notes
                if note.kind == "begin" and note.ranks == ranks and note.at > since
            ]
            return bool(begins) and any(
                note.step >= begins[0] + steps and note.at > since for note in notes
            )

        until = time.monotonic() + PATIENCE_SECONDS
        while not met(notes := self.notes()):
            if time.monotonic() > until or self.launcher.poll() is not None:
                printed = (self.folder / "output").read_text()[-2000:]
                raise TimeoutError(
                    f"{ranks} ranks did not do {steps} steps: {notes[-3:]}; the launch printed: "
                    f"{printed}"
                )
            time.sleep(0.05)
        return notes

    def kill_last(self) -> float:
        """Kills the machine that was granted last, and says when."""
        folder = sorted((self.folder / "home" / "local" / "machines").glob(f"*/{NODES - 1}"))[0]
        at = time.time()
        os.kill(json.loads((folder / "state.json").read_text())["pid"], signal.SIGKILL)
        return at

    def end(self) -> int:
        """Lets the command end, and returns the exit code of the launch."""
        (self.folder / "end").touch()
        return self.launcher.wait(PATIENCE_SECONDS)


@contextmanager
def launched(
    folder: Path, nodes: str, command: str = _SMALL, setup: str = "true"
) -> Iterator[LaunchedGang]:
    """A job in a new home; whatever happens, its machines are returned."""
    (folder / "traces").mkdir()
    run = command.replace("TRACES", str(folder / "traces")).replace("END", str(folder / "end"))
    given = {
        "run": json.dumps(run),
        "nodes": nodes,
        "setup": json.dumps(setup),
        "secret": SECRET_VARIABLE,
    }
    (folder / "job.yaml").write_text(_JOB.format(**given, path=_HERE.parent))
    environment = {
        **os.environ,
        "SPOTCTL_HOME": str(folder / "home"),
        SECRET_VARIABLE: secrets.token_hex(16),
    }
    words = [sys.executable, "-c", "from spotctl.cli.app import main; main()"]
    with (folder / "output").open("wb") as output:
        launcher = subprocess.Popen(
            [*words, "launch", str(folder / "job.yaml"), "--yes"],
            env=environment,
            stdout=output,
            stderr=output,
        )
        try:
            yield LaunchedGang(folder, launcher)
        finally:
            if launcher.poll() is None:
                launcher.send_signal(signal.SIGINT)
                launcher.wait(PATIENCE_SECONDS)


def fixed(gang: LaunchedGang) -> None:
    """One machine of three is killed, and all wait for another."""
    gang.trained(NODES, 60)
    at = gang.kill_last()
    print(f"3 nodes, one killed: {lost(gang.trained(NODES, 40, at), at)}", flush=True)


def shrinking(gang: LaunchedGang) -> None:
    """One machine of three is killed, two go on, and another joins."""
    gang.trained(NODES, 60)
    at = gang.kill_last()
    print(f"2..3 nodes, one killed: {lost(gang.trained(NODES - 1, 40, at), at)}", flush=True)
    again = gang.trained(NODES, 40, at)
    grown = next(
        note.at for note in again if note.kind == "begin" and note.ranks == NODES and note.at > at
    )
    before = max(note.at for note in again if note.ranks == NODES - 1 and note.at < grown)
    print(f"2..3 nodes, the replacement joins: {lost(again, before)}", flush=True)


CASES: Mapping[str, Callable[[LaunchedGang], None]] = {"3": fixed, "2..3": shrinking}
"""The cases by the number of nodes."""


def main(words: list[str]) -> None:
    """Prints what evictions and growth cost."""
    command = _TORCH if "torch" in words else _SMALL
    chosen = [word for word in words if word != "torch"] or [*CASES]
    print(f"the setup of a machine takes {SETUP_SECONDS} s")
    for nodes in chosen:
        with (
            tempfile.TemporaryDirectory(prefix="gang-") as name,
            launched(Path(name), nodes, command, f"sleep {SETUP_SECONDS}") as gang,
        ):
            CASES[nodes](gang)
            gang.end()


if __name__ == "__main__":
    main(sys.argv[1:])
