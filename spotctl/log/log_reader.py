"""Reads the runs of a log from where an earlier reading ended, and makes sure that no row is missing or was changed.

Rows that are new are read in the order in which they were written: they have checksums, and are numbered without gaps.
Earlier rows of a run are read again only if the run is needed, and then known by the digest of the run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import NoReturn

from spotctl.log.errors import BrokenLog
from spotctl.log.log_row import StoredRow
from spotctl.log.store import EventLog


class OtherRows(BrokenLog):
    """A run has other rows than an earlier reading, or the index, says."""


@dataclass(frozen=True, slots=True)
class LogDigests:
    """A digest of the events of each run, whatever their positions in the log, and how far they were read in which
    file."""

    of_run: Mapping[str, str] = field(default_factory=dict)
    place: tuple[int, int, int] = (0, 0, 0)
    """See `EventLog.place`."""
    last: int = 0
    end: str = ""
    """A digest of the last row."""


class LogReader:
    """Reads a log within a snapshot. What an earlier reading found counts if its last row is where it was: triggers
    keep rows as they are, and a log from elsewhere is another file, has dropped the triggers, or has another row there.
    """

    def __init__(self, log: EventLog, before: LogDigests | None = None) -> None:
        self._log = log
        self.goes_on = before is not None and before == digests_at(log, before.last, before.of_run)
        """Whether the log goes on where it ended before."""
        self._before = before if before is not None and self.goes_on else LogDigests()
        self._of_run, self._last = dict(self._before.of_run), self._before.last

    def changed(self) -> Iterator[tuple[str, list[StoredRow]]]:
        """The runs with rows that are new, each with all its rows. Marks of loss that belong to no run are those of a
        run without a name. OtherRows: a run has earlier rows without a digest."""
        ends, growing = self._log.last_of_runs(self._last), dict[str, list[StoredRow]]()
        for portion in self._log.stored_rows(self._last):
            for run, rows in groupby(portion, itemgetter(1)):
                growing.setdefault(run, []).extend(rows)
                self._last = growing[run][-1][0]
                if ends.get(run) == self._last:
                    yield run, self._whole(run, growing.pop(run))
                elif self._last > ends.get(run, self._last):
                    self._differs(run)
        for run, rest in growing.items():
            yield run, self._whole(run, rest)

    def rows_of(self, run: str) -> list[StoredRow]:
        """The rows of a run that was read now or earlier."""
        rows = self._log.stored_rows_of(run, self._last)
        if digest_of(rows) != self._of_run[run]:
            self._differs(run)
        return rows

    def digest(self, run: str) -> str:
        return self._of_run[run]

    def digests(self) -> LogDigests:
        """How far the log is read."""
        return digests_at(self._log, self._last, self._of_run)

    def _whole(self, run: str, new: list[StoredRow]) -> list[StoredRow]:
        rows = new
        if run in self._before.of_run:
            earlier = self._log.stored_rows_of(run, self._before.last)
            if digest_of(earlier) != self._before.of_run[run]:
                self._differs(run)
            rows = [*earlier, *new]
        elif run and self._before.last and new[0][3] != "RunBegan":
            self._differs(run)
        self._of_run[run] = digest_of(rows)
        return rows

    def _differs(self, run: str) -> NoReturn:
        raise OtherRows(self._log.damaged(f"run {run} has other rows than before"))


def digests_at(log: EventLog, last: int, of_run: Mapping[str, str]) -> LogDigests:
    """The digests of runs up to a row of a log."""
    row = log.stored_row(last)
    return LogDigests(of_run, log.place(), last, "" if row is None else f"{row[1]} {digest_of([row])}")


def digest_of(rows: Sequence[StoredRow]) -> str:
    """A digest of what rows say."""
    digest = blake2b(digest_size=16)
    for part in (_AT, _KIND, _BODY):
        # In a damaged file, a text can have become a number.
        digest.update("\n".join(map(str, map(part, rows))).encode(errors="replace") + b"\0")
    return digest.hexdigest()


_AT, _KIND, _BODY = itemgetter(2), itemgetter(3), itemgetter(4)
