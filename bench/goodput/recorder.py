"""The work of a system, from the commits that reach a socket outside of it: useful samples, pauses,
vain work.

The kernel stamps each datagram when it arrives, so that nothing here or in a system delays or
counts a pause twice.
"""

from __future__ import annotations

import json
import socket
import statistics
import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SO_TIMESTAMPNS = 35
_TIME = struct.Struct("@ll")
_BUFFER = 4 << 20


@dataclass(frozen=True)
class Commit:
    """A step became a part of the model, with samples of one part of the job; `redone` were
    computed in vain. `again` of them were in steps that had been committed, were lost, and have
    been made again before this one.
    """

    at: float
    part: str
    step: int
    samples: int
    redone: int = 0
    again: int = 0


@dataclass(frozen=True)
class Final:
    """The loss of the model that a system ends with."""

    step: int
    loss: float


@dataclass(frozen=True)
class Goodput:
    """The work of a system from one moment to another. A pause is counted without the time of a
    usual step.
    """

    useful: int
    redone: int
    step_seconds: float
    pauses: tuple[float, ...]
    """The longest after each fault, apart from faults that came in the pause of an earlier one."""


class Recorder:
    """Receives commits."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._socket.bind(("127.0.0.1", 0))
        self.commits: list[Commit] = []
        self.final: Final | None = None

    @property
    def address(self) -> str:
        """Where systems send their commits."""
        host, port = self._socket.getsockname()
        return f"{host}:{port}"

    def receive(self, seconds: float) -> None:
        """Notes what arrives, until nothing has for so long."""
        self._socket.settimeout(seconds)
        while True:
            try:
                content, stamps, _, _ = self._socket.recvmsg(1024, 64)
            except (TimeoutError, BlockingIOError):
                return
            self._socket.settimeout(0.0)
            whole, nanoseconds = _TIME.unpack(stamps[0][2])
            self._note(json.loads(content), whole + nanoseconds / 1e9)

    def _note(self, fields: dict[str, object], at: float) -> None:
        if "loss" in fields:
            self.final = self.final or Final(**fields)  # type: ignore[arg-type]
        else:
            self.commits.append(Commit(at, **fields))  # type: ignore[arg-type]

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


def measured(
    commits: Sequence[Commit], faults: Sequence[float], begin: float, end: float
) -> Goodput:
    """The goodput between two moments, with faults at these times."""
    useful_before, redone_before = _counted([commit for commit in commits if commit.at < begin])
    useful, redone = _counted([commit for commit in commits if commit.at <= end])
    # What was not made again by the end is not a part of the model.
    useful -= next((commit.again for commit in commits if commit.at > end), 0)
    moments = _progress(commits, begin, end)
    usual = statistics.median(
        [after - before for before, after in pairwise(moments)] or [end - begin]
    )
    pauses = _pauses([*moments, end] if end - moments[-1] > usual else moments, faults, usual)
    return Goodput(useful - useful_before, redone - redone_before, usual, pauses)


def _counted(commits: Sequence[Commit]) -> tuple[int, int]:
    """The samples in the model, and those in vain: a part that commits a step again has lost it and
    all later ones.
    """
    kept = defaultdict[str, dict[int, int]](dict)
    redone = 0
    for commit in commits:
        steps = kept[commit.part]
        if commit.step in steps and commit.samples:
            redone += sum(
                steps.pop(step) for step in [step for step in steps if step >= commit.step]
            )
        if commit.samples:
            steps[commit.step] = commit.samples
        redone += commit.redone
    return sum(sum(steps.values()) for steps in kept.values()), redone


def _progress(commits: Sequence[Commit], begin: float, end: float) -> list[float]:
    """The moments at which the job got further than ever before, from the beginning on."""
    moments, furthest = [begin], -1
    for commit in commits:
        if commit.samples and commit.step > furthest and commit.at <= end:
            furthest = commit.step
            if commit.at > begin:
                moments.append(commit.at)
    return moments


def _pauses(moments: Sequence[float], faults: Sequence[float], usual: float) -> tuple[float, ...]:
    """The longest pause after each fault and up to the one that follows the next fault, each gap
    counted once.

    A gap with several faults belongs to the first, and the others have no pause. The first may be
    one from just before the gap: a step that was about to end when a machine was lost still does.
    """
    longest, covered = dict[float, float](), set[float]()
    for before, after in pairwise(moments):
        causes = [fault for fault in faults if fault < after]
        if not causes:
            continue
        first = next(
            (number for number, fault in enumerate(causes) if fault >= before - usual),
            len(causes) - 1,
        )
        covered |= set(causes[first + 1 :])
        longest[causes[first]] = max(longest.get(causes[first], 0.0), after - before - usual)
    return tuple(pause for fault, pause in longest.items() if fault not in covered)
