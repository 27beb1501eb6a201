"""The iteration log: one JSON object per clock, and one for the whole job at its end."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from agileml.core.clocks import clocks_done_again
from agileml.core.events import Iteration
from agileml.errors import BadArgument
from agileml.job import Trained
from agileml.policies.stage import ClockSums
from agileml.reference import model_digest
from agileml.work import Accepted


def line_of(iteration: Iteration) -> dict[str, Any]:
    """A finished clock: `seconds` since the previous clock, `loss` of the model before this clock.

    `accepted` lists the chunks that make up the clock, as [shard, first chunk, one past the last
    chunk].
    """
    sums = iteration.sums
    line = {
        "clock": iteration.clock,
        "seconds": iteration.seconds,
        "stage": iteration.stage,
        "nodes": {"reliable": iteration.reliable, "transient": iteration.transient},
        "bytes": {"push": sums.pushed, "pull": sums.pulled, "backup": sums.backup},
        "loss": iteration.loss,
        "redone": iteration.redone,
        "events": list(iteration.events),
        "accepted": [list(cover) for cover in iteration.accepted],
    }

    acted = sums.helped_items or sums.moved_bytes or sums.waited_for
    return line | ({"stragglers": straggler_fields([iteration])} if acted else {})


def last_line_of(trained: Trained) -> dict[str, Any]:
    """The end of a job; `loss` is the loss of its model. Updates that were sent but not applied
    count as lost.
    """
    ending: dict[str, Any] = {
        "clocks": trained.clocks,
        "updates_sent": trained.counters.sent,
        "updates_applied": trained.counters.applied,
        "updates_lost": trained.counters.lost,
        "updates_doubled": trained.counters.doubled,
        "evictions": trained.evictions,
        "failures": trained.failures,
        "model_sha256": model_digest(trained.model),
        "loss": trained.loss,
        "samples": trained.samples,
    }
    return ending | ({"interrupted": True} if trained.interrupted else {})


def redone_fields(events: Iterable[str]) -> dict[str, Any]:
    """The finished clocks that were done again, from the events of all clocks; empty if there were
    none.
    """
    spans = clocks_done_again(events)
    return {"redone_clocks": spans} if spans else {}


def spans_text(spans: Iterable[Sequence[int]]) -> str:
    """Clocks in words: `9 to 10 and 29`."""
    return " and ".join(
        f"{first}" if first == last else f"{first} to {last}" for first, last in spans
    )


def straggler_fields(iterations: Sequence[Iteration]) -> dict[str, Any]:
    """Effects of measures against slow machines: items done by others than their owners, bytes that
    moved, the times.

    In jobs with backup workers, `waited_for` has the number of workers that each clock waited for.
    """
    clocks = [iteration.sums for iteration in iterations]
    items = sum(sums.helped_items for sums in clocks)
    helped = sum(sums.helped_seconds for sums in clocks)
    moved = sum(sums.moved_bytes for sums in clocks)
    waited_for = [sums.waited_for for sums in clocks if sums.waited_for]
    dropped = sum(sums.dropped_chunks for sums in clocks)
    suspended = sum(sums.suspended_seconds for sums in clocks)
    return {
        "reassigned_items": items,
        "helped_ms": round(1000 * helped, 3),
        "moved_bytes": moved,
        "waited_for": waited_for,
        "dropped_chunks": dropped,
        "suspended_seconds": round(suspended, 6),
        **share_fields(iterations[-1:]),
    }


def share_fields(latest: Sequence[Iteration]) -> dict[str, float]:
    """How evenly the shards have counted until the latest clock; 1 in jobs that leave nothing
    out."""
    sums = latest[0].sums if latest else ClockSums()
    return {
        "least_counted": round(sums.least_counted, 4),
        "most_counted": round(sums.most_counted, 4),
    }


def read_log(path: Path) -> tuple[tuple[Accepted, ...], str | None]:
    """The decisions of a run about clocks 1, 2, ..., and the digest of its model; None if its log
    has no end.

    Clocks that follow the version with which the job ended are left out.
    """
    accepted: list[Accepted] = []
    end: Mapping[str, Any] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadArgument(f"log {path}: {getattr(error, 'strerror', None) or error}") from error

    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
            if "model_sha256" in line:
                end = {"clocks": int(line["clocks"]), "digest": str(line["model_sha256"])}
                continue
            covers = tuple(
                (int(shard), int(first), int(last)) for shard, first, last in line["accepted"]
            )
            accepted.append(Accepted(int(line["clock"]), covers))
        except (ValueError, TypeError, KeyError) as error:
            raise BadArgument(
                f"log {path}, line {number}: not a line of an iteration log ({error})"
            ) from error
        if accepted[-1].clock != len(accepted):
            raise BadArgument(
                f"log {path}, line {number}: clock {accepted[-1].clock} follows {len(accepted) - 1}"
            )

    if not accepted:
        raise BadArgument(f"log {path}: no clock in it; write one with --log FILE")
    return tuple(accepted[: end.get("clocks")]), end.get("digest")


class IterationLog(AbstractContextManager["IterationLog"]):
    """Writes a log, each line when its clock is done. A log without the line for the whole job was
    interrupted.

    An existing file is kept until the first clock is done, so that a job that fails to start does
    not overwrite it.
    """

    def __init__(self, path: Path, *, resumes: bool = False) -> None:
        """With `resumes`, the lines of an earlier process of the job stay, up to the first that is
        torn.
        """
        self._path = path
        self._resumes = resumes
        self._last = _cut(path) if resumes else 0
        self._file: TextIO | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, iteration: Iteration) -> None:
        """Appends a finished clock, unless it is there already."""
        if iteration.clock > self._last:
            self.put(line_of(iteration))

    def put(self, line: Mapping[str, Any]) -> None:
        """Appends a line, such as the last one, for the whole job."""
        if self._file is None:
            try:
                self._file = self._path.open("a" if self._resumes else "w", encoding="utf-8")
            except OSError as error:
                raise BadArgument(
                    f"log {self._path}: {error.strerror or error}; choose a file in an existing "
                    "folder"
                ) from error

        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()


def _cut(path: Path) -> int:
    """Removes the torn end of a log; returns the last clock in what is left."""
    whole = 0
    last = 0
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return 0

    for line in lines:
        try:
            content = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            content = None
        if not isinstance(content, dict) or "clock" not in content:
            break
        whole += len(line)
        last = content["clock"]

    with path.open("r+b") as file:
        file.truncate(whole)
    return last
