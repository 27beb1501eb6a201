"""Steps and seconds that a DDP gang of three machines loses: `python -m bench.torch_gang [CASE...]`
prints the table.

Machines are groups of processes of this computer, each with an address of its own. They are warned,
or killed. Next to it: the same gang starts again from the checkpoint in the job's blob store, as
without peers.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.gang_script import EVERY, STEP_SECONDS
from spotctl.agent.checkpoints.local import CHECKPOINT_VARIABLE, PLAN_VARIABLE
from spotctl.agent.checkpoints.stored import CheckpointRecord, StoredCheckpoints
from spotctl.agent.container.processes import MARK, kill_marked
from spotctl.agent.files import replace_json
from spotctl.agent.layout import LEASE_VARIABLE
from spotctl.agent.lease.lease_files import LeaseGrantor
from spotctl.integrations.gang_saves import SECRET_VARIABLE

HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
CHECKPOINT_SECONDS = 10.0
PATIENCE_SECONDS = 300.0
LEASE_SECONDS = 3600.0
_SCRIPT = Path(__file__).with_name("gang_script.py")


@dataclass(frozen=True)
class EventCost:
    """The cost of an event: steps that were done again, and seconds until the gang had caught
    up."""

    steps: int
    seconds: float
    ranks: int

    def __str__(self) -> str:
        return f"{self.steps} steps and {self.seconds:.1f} s lost; {self.ranks} ranks go on"


@dataclass(frozen=True)
class Note:
    """A line of a machine's trace."""

    kind: str
    step: int
    ranks: int
    at: float


def read_notes(traces: Iterable[Path]) -> list[Note]:
    """The complete notes in these files, in the order of time."""
    lines = [line.split() for path in traces for line in path.read_text().splitlines()]
    whole = [
        Note(line[0], int(line[1]), int(line[2]), float(line[3]))
        for line in lines
        if len(line) == 4
    ]
    return sorted(whole, key=lambda note: note.at)


class GangOfThree:
    """Three machines in folders of their own; those that are lost are not replaced."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self._port, self._secret = folder, port, secrets.token_hex(16)
        self._wrappers: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, machine: int) -> None:
        """Starts a machine; what it printed is in its folder."""
        home = self._home(machine)
        (home / "checkpoint").mkdir(parents=True, exist_ok=True)
        plan = {"every": CHECKPOINT_SECONDS, "cost": 0.1}
        replace_json(home / "plan.json", plan)
        LeaseGrantor(home / "lease").begin(LEASE_SECONDS)
        words = [
            "--machines",
            ",".join(HOSTS),
            "--machine",
            str(machine),
            "--port",
            str(self._port),
        ]
        command = [
            sys.executable,
            "-m",
            "spotctl.integrations.gang",
            *words,
            str(_SCRIPT),
            str(self.folder / "end"),
        ]
        with (home / "output").open("ab") as output:
            self._wrappers[machine] = subprocess.Popen(
                command, env={**os.environ, **self._variables(home)}, stdout=output, stderr=output
            )

    def _variables(self, home: Path) -> Mapping[str, str]:
        return {
            MARK: str(home),
            LEASE_VARIABLE: str(home / "lease"),
            PLAN_VARIABLE: str(home / "plan.json"),
            CHECKPOINT_VARIABLE: str(home / "checkpoint"),
            SECRET_VARIABLE: self._secret,
            "TRACE": str(home / "trace"),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONPATH": str(Path.cwd()),
        }

    def _home(self, machine: int) -> Path:
        return self.folder / f"m{machine}"

    def warn(self, machine: int) -> None:
        """A notice, as an agent writes it: this machine will be evicted in two minutes."""
        LeaseGrantor(self._home(machine) / "lease").notify("evict", 120.0, "bench")

    def kill(self, *machines: int) -> None:
        """All processes of the machines, at once."""
        for machine in machines:
            kill_marked(self._home(machine))
            self._wrappers[machine].wait()

    def notes(self) -> list[Note]:
        """The notes of all machines, in the order of time."""
        return read_notes(self.folder.glob("m*/trace"))

    def until(self, met: Callable[[list[Note]], bool], what: str) -> list[Note]:
        """Waits for something in the notes."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not met(notes := self.notes()):
            if time.monotonic() > until:
                printed = "\n".join(
                    path.read_text()[-2000:] for path in self.folder.glob("m*/output")
                )
                raise TimeoutError(f"{what}: {notes[-3:]}\n{printed}")
            time.sleep(0.1)
        return notes

    def trained(self, ranks: int, more: int) -> list[Note]:
        """Waits until a group of this size has done that many steps since it began."""

        def met(notes: list[Note]) -> bool:
            begins = [note.step for note in notes if note.kind == "begin" and note.ranks == ranks]
            return bool(begins) and notes[-1].ranks == ranks and notes[-1].step >= begins[-1] + more

        return self.until(met, f"{more} steps of {ranks} ranks")

    def checkpointed(self) -> Path:
        """Waits for a checkpoint on the first machine."""
        kept = self._home(0) / "checkpoint"
        self.until(lambda _: bool([*kept.glob("gang-*")]), "a checkpoint")
        return kept

    def end(self) -> None:
        """Ends all machines."""
        (self.folder / "end").touch()
        until = time.monotonic() + 60
        while (
            any(wrapper.poll() is None for wrapper in self._wrappers.values())
            and time.monotonic() < until
        ):
            time.sleep(0.1)
        self.kill(*self._wrappers)


def lost(notes: list[Note], at: float) -> EventCost:
    """The cost of the event at this time, once the gang has passed the step that it had reached.

    Without the event, the next step would have been done one step's time after the last one.
    """
    reached = max(note.step for note in notes if note.kind == "step" and note.at <= at)
    begin = max(
        (note for note in notes if note.kind == "begin" and note.at > at), key=lambda note: note.at
    )
    back = next(note for note in notes if note.at >= begin.at and note.step > reached)
    before = max(
        (note.step for note in notes if note.kind == "step" and note.at < begin.at), default=reached
    )
    return EventCost(before - begin.step, back.at - at - STEP_SECONDS, begin.ranks)


@contextmanager
def gang(port: int) -> Iterator[GangOfThree]:
    """Three machines that have trained for a while, and saved."""
    with tempfile.TemporaryDirectory(prefix="gang-") as name:
        made = GangOfThree(Path(name), port)
        for machine in range(len(HOSTS)):
            made.start(machine)
        try:
            made.trained(len(HOSTS), 2 * EVERY + EVERY // 2)
            yield made
        finally:
            made.end()


def warned(port: int) -> EventCost:
    """The last machine is warned, saves and leaves."""
    with gang(port) as three:
        at = time.time()
        three.warn(2)
        return lost(three.trained(2, EVERY), at)


def killed(port: int, machine: int = 2) -> EventCost:
    """A machine is killed."""
    with gang(port) as three:
        at = time.time()
        three.kill(machine)
        return lost(three.trained(2, 2 * EVERY), at)


def host_killed(port: int) -> EventCost:
    """The machine with the c10d store is killed: torchrun ends on the others, and the store
    moves."""
    return killed(port, 0)


def from_blob_store(port: int) -> EventCost:
    """All processes end, and two machines start again from the checkpoint that was copied to the
    blob store.
    """
    with gang(port) as three, tempfile.TemporaryDirectory(prefix="blobs-") as place:
        kept = three.checkpointed()
        three.trained(3, 2 * EVERY)
        at = time.time()
        three.kill(0, 1, 2)
        stored = StoredCheckpoints(place, 0)
        names = [str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()]
        stored.put_files("run.1", 1, kept, names)
        stored.put_record(CheckpointRecord("run.1", 1, 0.1, 1, CHECKPOINT_SECONDS), names)
        # Machines that are new: nothing is on their disks.
        copied = time.time() - at
        for machine in (0, 1):
            for folder in ("gang", "checkpoint"):
                shutil.rmtree(three.folder / f"m{machine}" / folder)
            stored.restore(three.folder / f"m{machine}" / "checkpoint")
            three.start(machine)
        cost = lost(
            three.until(
                lambda notes: notes[-1].ranks == 2 and notes[-1].step > reached(notes, at), "back"
            ),
            at,
        )
        return replace(cost, seconds=cost.seconds - copied)


def reached(notes: list[Note], at: float) -> int:
    """The last step before a time."""
    return max(note.step for note in notes if note.at <= at)


CASES: Mapping[str, tuple[str, Callable[[int], EventCost]]] = {
    "warned": ("a machine is warned", warned),
    "killed": ("a machine is killed", killed),
    "host": ("the host of the c10d store is killed", host_killed),
    "restart": ("all restart from the blob store", from_blob_store),
}


def main(words: list[str]) -> None:
    """Prints the table."""
    print(
        f"a save every {EVERY} steps of {STEP_SECONDS} s, a checkpoint every "
        f"{CHECKPOINT_SECONDS:g} s"
    )
    for number, word in enumerate(words or CASES):
        name, case = CASES[word]
        print(f"{name}: {case(27_000 + 20 * number + os.getpid() % 900 * 4)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
