"""The contract between a source of market data and the fetch that drives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol

from pricing_data.fetched_rows import FetchedRows
from pricing_data.units import Span


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What is wanted: empty `regions` means every region the account may use, empty `types` every type.

    `types` are globs (`c6i.*`). History is wanted from `since` to `until` (microseconds UTC); what `covered` says is
    in the store already need not come again.
    """

    since: int
    until: int
    regions: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    covered: Mapping[str, Span] = field(default_factory=dict)

    def wants_type(self, name: str) -> bool:
        """Whether an instance type was asked for."""
        return not self.types or any(fnmatchcase(name, glob) for glob in self.types)

    def history(self, cloud: str, region: str) -> str:
        """The name under which a region's history is covered; of some types only, it is another history."""
        return " ".join((f"{cloud}/{region}", *sorted(self.types)))

    def start_of(self, history: str) -> int:
        """Where fetching a history begins: what was asked for, or where an earlier fetch of all of it ended."""
        covered = self.covered.get(history)
        return max(covered.end, self.since) if covered and covered.start <= self.since else self.since


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of a fetch that succeeds or fails by itself: a region's history, a price list.

    `pull` runs in a thread of its own and yields harvests as they come; what it yielded before it fails is kept. It
    raises `SourceError` and nothing else: `MissingCredentials` (absent or expired), `AccessDenied` (this region or
    call is forbidden), `SourceUnavailable` (throttled or broken after the SDK's own retries, or an answer that is not
    what the API promises). Each message is one line: what was asked, what came back, what to do.
    """

    cloud: str
    region: str
    what: str
    pull: Callable[[], Iterator[FetchedRows]]


class Source(Protocol):
    """One cloud. Constructing it contacts nothing and imports no SDK."""

    cloud: str

    def tasks(self, request: FetchRequest) -> list[Task]:
        """The pieces of a fetch. May ask the cloud which regions there are, and raises as `Task.pull` does."""
        ...
