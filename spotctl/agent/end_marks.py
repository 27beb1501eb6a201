"""Marks of nodes whose program ended with status 0: their machines may be gone before anyone asks them.

Marks are next to the job's checkpoints, or below its first output. A job with neither has marks in its run's folder if
its machines are processes of this computer. Rented machines leave nothing behind, so such a job has to start again.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from spotctl.agent.blobs.bucket import StoreRefused
from spotctl.agent.blobs.identity import MACHINE, StoreIdentity
from spotctl.agent.blobs.locations import store_at
from spotctl.agent.errors import TransferFailed
from spotctl.agent.task import OTHER_NODE

ENDED = "ended/"
"""The prefix of the names of all marks."""


def note_ended(path: str, start: str, rank: int) -> None:
    """Marks a node's start of the program as ended with status 0."""
    with _as_transfer_failure(path):
        store_at(path).put(f"{ENDED}{start}/{OTHER_NODE.format(rank=rank)}", [b"0"])


def have_ended(path: str, start: str, nodes: int, who: StoreIdentity = MACHINE) -> bool:
    """Whether a start of the program ended with status 0 on all of its nodes."""
    with _as_transfer_failure(path):
        return len(store_at(path, who).list(f"{ENDED}{start}/")) >= nodes


def forget_ended(path: str, run: str, who: StoreIdentity = MACHINE) -> None:
    """Removes the marks of a run."""
    with _as_transfer_failure(path):
        store = store_at(path, who)
        for mark in store.list(f"{ENDED}{run}."):
            store.delete(mark)


@contextmanager
def _as_transfer_failure(path: str) -> Iterator[None]:
    try:
        yield
    except StoreRefused as error:
        raise TransferFailed(f"{path}: {error}") from error
    except OSError as error:
        raise TransferFailed(f"{error.filename or path}: {error.strerror or error}") from error
