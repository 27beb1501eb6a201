"""A command of `bench.elastic_gang`: its nodes do each step together, and each keeps a copy of the
state on its disk.

It notes its steps as `bench.gang_script` does, in a file of its own in the folder `sys.argv[1]`,
and ends when the file `sys.argv[2]` exists. It starts in a tenth of a second, where PyTorch takes
many.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TextIO

STEP_SECONDS, CHECKPOINT_STEPS = 0.05, 20
GO, LEAVE, DONE = "0", "1", "2"


def main(traces: Path, end: Path) -> int:
    """The exit code: 0 when the end was reached, or when this machine was told to leave."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    copy, kept = (
        Path(os.environ["SPOTCTL_MACHINE"], "copy"),
        Path(os.environ["SPOTCTL_CHECKPOINT_DIR"], "step"),
    )
    notices = list[int]()
    signal.signal(signal.SIGTERM, lambda number, _: notices.append(number))
    others = connected(rank, ranks)
    step = int(agreed(others, rank, max(read(copy), read(kept))))
    with Path(traces, f"{os.environ['SPOTCTL_ATTEMPT']}-{rank}").open("a", buffering=1) as notes:
        notes.write(f"begin {step} {ranks} {time.time()}\n")
        word = GO
        while word == GO:
            time.sleep(STEP_SECONDS)
            word = agreed(others, rank, LEAVE if notices else DONE if end.exists() else GO)
            step += 1
            write(copy, step)
            notes.write(f"step {step} {ranks} {time.time()}\n")
            if rank == 0 and (word != GO or step % CHECKPOINT_STEPS == 0):
                write(kept, step)
    return 0 if word == DONE or notices else 1


def connected(rank: int, ranks: int) -> list[TextIO]:
    """The first node's streams to all others, and each other's stream to the first."""
    where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        with socket.create_server(where) as server:
            return [server.accept()[0].makefile("rw", buffering=1) for _ in range(ranks - 1)]
    while True:
        try:
            return [socket.create_connection(where).makefile("rw", buffering=1)]
        except OSError:
            time.sleep(0.02)


def agreed(others: list[TextIO], rank: int, word: str) -> str:
    """The greatest of all nodes' words. Ends the process if another is gone."""
    if rank:
        others[0].write(f"{word}\n")
        return heard(others[0])
    word = max([word, *map(heard, others)])
    for other in others:
        other.write(f"{word}\n")
    return word


def heard(stream: TextIO) -> str:
    """A word of another node."""
    if not (line := stream.readline()):
        sys.exit(1)
    return line.strip()


def read(path: Path) -> str:
    """The step in a file, 0 if there is none, with as many digits as all others."""
    return (path.read_text() if path.exists() else "0").rjust(9, "0")


def write(path: Path, step: int) -> None:
    """Replaces the step in a file."""
    new = path.with_name(f".{path.name}")
    new.write_text(str(step))
    new.rename(path)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
