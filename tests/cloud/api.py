"""What the API servers of the three clouds have in common, for `python -m tests.cloud` and for
assertions of tests.

A server is an object whose constructor takes a `MachineHost` (`AwsServer(host)`, `GcpServer(host)`,
`AzureServer(host)`) and starts to serve on 127.0.0.1. It keeps what was rented with exact times:
the clock of its bill.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Rented:
    """A machine in the cloud's books. Times are microseconds UTC; it is billed from `started` to
    `ended`.

    `state` and `reason` (of the end) are in the cloud's own words. `usd` is what it has cost until
    now.
    """

    id: str
    market: str
    spot: bool
    state: str
    private: str
    public: str
    started: int
    ended: int | None = None
    reason: str = ""
    usd: float = 0.0
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Left:
    """Anything that exists in the account, apart from what the cloud itself put there: machines
    that are not gone, disks, interfaces, addresses, keys, firewall rules, groups."""

    kind: str
    id: str
    tags: Mapping[str, str] = field(default_factory=dict)


class ApiServer(Protocol):
    """The API of one cloud, with the machines behind it."""

    name: str

    def environment(self) -> Mapping[str, str]:
        """The variables with which spotctl and the cloud's SDK use this server and nothing else."""
        ...

    def machines(self) -> tuple[Rented, ...]:
        """Every machine that was ever rented, in the order of their start."""
        ...

    def resources(self) -> tuple[Left, ...]:
        """What exists now and costs money or clutters the account. Empty: nothing was left
        behind."""
        ...

    def evict(self, machine: str, warning_seconds: float | None) -> None:
        """Announces an eviction in the machine's metadata and carries it out after the warning;
        None: at once.

        KeyError: no machine of this id is running. ValueError: it is not a spot machine.
        """
        ...

    def close(self) -> None:
        """Stops serving, and ends its machines. The host stays open: several clouds may share
        it."""
        ...


def now_micros() -> int:
    """The clock of bills."""
    return time.time_ns() // 1000
