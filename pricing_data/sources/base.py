"""The contract between a source of market data and the fetch that drives it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol

from pricing_data.errors import CloudError
from pricing_data.fetched_rows import FetchedRows
from pricing_data.units import Span

NO_REGION = "-"
"""The region of a task that belongs to none, such as a global price file or a sign-in that failed."""


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """The rows to fetch: empty `regions` means every region the account may use, empty `types` every type.

    `types` are globs (`c6i.*`), `systems` operating systems as markets name them; empty means all. The history to fetch
    runs from `since` to `until` (microseconds UTC); `covered` says which spans the store already has.
    """

    since: int
    until: int
    regions: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    covered: Mapping[str, Span] = field(default_factory=dict)

    def wants_type(self, name: str) -> bool:
        return not self.types or any(fnmatchcase(name, glob) for glob in self.types)

    def wants_system(self, os: str) -> bool:
        """Whether an operating system is requested; VPC is a network, not a system."""
        return not self.systems or os.removesuffix("-vpc") in self.systems

    def history(self, cloud: str, region: str) -> str:
        """The key of a region's history in `covered`; a history of some types or systems has a key of its own."""
        systems = (f"os={','.join(sorted(self.systems))}",) if self.systems else ()
        return " ".join((f"{cloud}/{region}", *systems, *sorted(self.types)))

    def start_of(self, history: str) -> int:
        """Where fetching a history begins: at `since`, or at the end of an earlier fetch that began no later."""
        covered = self.covered.get(history)
        return max(covered.end, self.since) if covered and covered.start <= self.since else self.since


@dataclass(frozen=True, slots=True)
class FetchTask:
    """One part of a fetch that succeeds or fails by itself: a region's history, a price list.

    `spot_prices` marks a task that brings prices of spot markets, which change all the time. `optional` marks a task
    without which all current prices still come.

    `pull` runs in its own thread and yields rows as they arrive; rows yielded before a failure are kept. It raises
    `CloudError` and nothing else.
    """

    cloud: str
    region: str
    what: str
    pull: Callable[[], Iterator[FetchedRows]]
    spot_prices: bool = False
    optional: bool = False

    @classmethod
    def failed(cls, cloud: str, what: str, error: CloudError, *, optional: bool = False) -> "FetchTask":
        """A task of no region that reports an error which stopped a whole source."""

        def pull() -> Iterator[FetchedRows]:
            raise error

        return cls(cloud, NO_REGION, what, pull, optional=optional)


class Source(Protocol):
    """One cloud. Constructing it contacts nothing and imports no SDK."""

    cloud: str

    def tasks(self, request: FetchRequest) -> list[FetchTask]:
        """The parts of a fetch. May ask the cloud for its regions, and raises as `FetchTask.pull` does."""
