"""The queue of the jobs that share quotas: who joined, who left, and what each round gave to whom.

A home has one queue for its local market and one for its clouds; their clocks differ. The rows of a
queue are numbered from 1, and a row is written only if no other has its number: who decides from
rows that are not the last ones writes nothing, and reads again. Times are seconds on the queue's
clock.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from zlib import crc32

import msgspec

from bidbrain.queue.values import JobQueue, QueueJob, QueueQuota, QueueRound, QueueTerms, merged

LOCAL, CLOUDS = "local", "clouds"


@dataclass(frozen=True, slots=True)
class JobJoined:
    """A job is in the queue from now on.

    `quotas` are those that its machines count against, with the expected prices of their types and
    the terms of the queue. `on_demand` are its parts of the quotas for on-demand machines, by name.
    The share of its work that is done is that of `clocks`, or of a time: `span` after the first
    clock of a training, or `lasts` of a command, in microseconds on all of its nodes.
    """

    job: QueueJob
    quotas: tuple[QueueQuota, ...]
    on_demand: Mapping[str, int] = field(default_factory=dict)
    clocks: int | None = None
    span: int | None = None
    lasts: float | None = None
    usd_per_hour: Mapping[str, float] = field(default_factory=dict)
    terms: QueueTerms = field(default_factory=QueueTerms)


@dataclass(frozen=True, slots=True)
class JobLeft:
    """A job is not in the queue any more."""

    name: str


QueueRow = JobJoined | JobLeft | QueueRound
_KINDS: Mapping[str, type[QueueRow]] = {
    kind.__name__: kind for kind in (JobJoined, JobLeft, QueueRound)
}


@dataclass(frozen=True, slots=True)
class JobsQueued:
    """The queue as its rows tell it: the number of the last row, the jobs that are in it, the last
    round as it was decided, and whether jobs have joined or left since."""

    rows: int = 0
    joined: Mapping[str, JobJoined] = field(default_factory=dict)
    last: QueueRound | None = None
    changed: bool = False

    def after(self, row: QueueRow) -> "JobsQueued":
        """The queue after one more row."""
        joined = dict(self.joined)
        last = self.last
        match row:
            case JobJoined(job):
                joined[job.name] = row
                if last is not None:
                    # A job that comes again has received nothing yet.
                    others = tuple(each for each in last.queue.jobs if each.name != job.name)
                    last = replace(last, queue=replace(last.queue, jobs=others))
            case JobLeft(name):
                # The last round keeps it: the next one must know what that was decided from.
                joined.pop(name, None)
            case QueueRound():
                last = row

        return JobsQueued(self.rows + 1, joined, last, changed=not isinstance(row, QueueRound))

    def queue_of(
        self, jobs: Sequence[QueueJob], now: float, quotas: tuple[QueueQuota, ...]
    ) -> JobQueue:
        """The queue of some of its jobs, as these are now; the terms are those of all."""
        joined = [self.joined[job.name] for job in jobs]
        prices = {kind: usd for each in joined for kind, usd in each.usd_per_hour.items()}
        return JobQueue(
            now, quotas, tuple(jobs), joined[-1].terms if joined else QueueTerms(), prices
        )

    def quotas_of(self, jobs: Sequence[str]) -> tuple[QueueQuota, ...]:
        """The quotas of some jobs; those that joined last know the amounts best."""
        return merged(quota for name in jobs for quota in self.joined[name].quotas)

    def job(self, name: str, now: float) -> QueueJob:
        """A job of the queue with what it holds since when, and what it has received until now."""
        job = self.joined[name].job
        last = self.last
        if last is None:
            return job
        before = next((old for old in last.queue.jobs if old.name == name), None)
        if before is None:
            return job

        held = last.machines.get(name, {})
        lasting = max(now - last.queue.now, 0.0)
        received = dict(before.received)
        for kind, machines in held.items():
            received[kind] = received.get(kind, 0.0) + machines * lasting
        since = before.since if bool(held) == bool(before.holds()) else last.queue.now

        return replace(job, arrival=before.arrival, since=since, received=received, held=held)


def read_rows(db: sqlite3.Connection, queue: str, known: JobsQueued) -> JobsQueued:
    """The queue with the rows that were added since. ValueError: a row was changed, or one is
    missing.
    """
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'queues'").fetchone() is None:
        return known

    rows = db.execute(
        "SELECT number, kind, body, checksum FROM queues WHERE queue = ? AND number > ? ORDER BY "
        "number",
        (queue, known.rows),
    )
    new = rows.fetchall()
    last = max((number for number, kind, *_ in new if kind == QueueRound.__name__), default=0)

    for number, kind, body, expected in new:
        if number != known.rows + 1 or expected != _digest(queue, number, kind, body):
            raise ValueError(f"row {known.rows + 1} of queue {queue} is missing or was changed")
        if kind == QueueRound.__name__ and number < last:
            # Only the last round counts, and it is large.
            known = replace(known, rows=number)
        else:
            known = known.after(msgspec.json.decode(body, type=_KINDS[kind]))

    return known


def write_rows(db: sqlite3.Cursor, queue: str, after: int, rows: Sequence[QueueRow]) -> bool:
    """Adds rows after row number `after`; False if other rows are there by now."""
    db.execute(
        "CREATE TABLE IF NOT EXISTS queues (queue TEXT NOT NULL, number INTEGER NOT NULL, kind "
        "TEXT NOT NULL,"
        " body TEXT NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (queue, number)) WITHOUT ROWID"
    )
    (last,) = db.execute(
        "SELECT coalesce(max(number), 0) FROM queues WHERE queue = ?", (queue,)
    ).fetchone()
    if last != after:
        return False

    for number, row in enumerate(rows, after + 1):
        kind = type(row).__name__
        body = msgspec.json.encode(row).decode()
        db.execute(
            "INSERT INTO queues VALUES (?, ?, ?, ?, ?)",
            (queue, number, kind, body, _digest(queue, number, kind, body)),
        )

    return True


def _digest(queue: str, number: int, kind: str, body: str) -> int:
    return crc32(f"{queue}\0{number}\0{kind}\0{body}".encode())
