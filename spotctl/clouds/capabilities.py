"""Abilities that only some providers have in addition to `CloudProvider`; a caller checks with `isinstance`.

To be added with the clouds that have them: placement scores, fleets, serial consoles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pricing_data.market import Market
from spotctl.clouds.base import CloudProvider, Machine, MachineRequest

if TYPE_CHECKING:
    from spotctl.clouds.errors import ProviderError
    from spotctl.home.quotas import Quota


@runtime_checkable
class KeepsOutput(Protocol):
    """A provider that keeps what payloads printed after their machine is gone."""

    def output(self, machine: str, after: int = 0) -> bytes:
        """The output of a machine from this byte offset on. NotFound: nothing is kept of this machine."""
        ...

    def output_times(self, machine: str, after: int = 0) -> bytes:
        """The times of that output; see `MachineLink`."""
        ...


@dataclass(frozen=True, slots=True)
class Holdings:
    """Nano-dollars per hour that a machine's disk and public address add to the machine's price."""

    disk: int = 0
    address: int = 0


@runtime_checkable
class BillsHoldings(Protocol):
    """A provider whose cloud bills a machine's disk and address separately."""

    def holdings(self, market: Market, *, spot: bool, disk_gib: int | None) -> Holdings:
        """The prices of a machine's disk and address. `disk_gib` None: a disk of the provider's choice."""
        ...


@runtime_checkable
class Closes(Protocol):
    """A provider that holds connections, to its cloud or to machines."""

    def close(self) -> None:
        """Ends the connections. The machines and their agents go on."""
        ...


def _reached(_: int) -> None:
    """A machine without a connection that could break."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command of this computer that runs another on a machine. Never print it: its environment may hold secrets.

    `lost` explains an exit code: why the machine was not reached, or the connection broke. None: the code is that of
    the command on the machine.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    folder: str
    lost: Callable[[int], ProviderError | None] = field(default=_reached, repr=False, compare=False)


@runtime_checkable
class TakesCommands(Protocol):
    """A provider on whose machines a person can run commands with a terminal, next to the payload."""

    def invocation(self, machine: str, command: Sequence[str]) -> Invocation:
        """Runs a command on a machine, in the folder and environment of its payload, until the machine's end at most.

        NotFound: the machine is gone, or never was.
        """
        ...


@runtime_checkable
class AdmitsSsh(Protocol):
    """A provider that makes rules which admit ssh to the machines of a run."""

    def admit_ssh(self, tags: Mapping[str, str], ssh_from: Sequence[str]) -> tuple[str, ...]:
        """Admits ssh to machines with these tags from these address ranges, and from no others any more.

        Returns the names of the changed rules; empty if the rules of these machines are not spotctl's.
        """
        ...


@dataclass(frozen=True, slots=True)
class ReverseTunnel:
    """A port of the launcher that machines reach at a port of their own loopback interface."""

    port: int
    host: str
    host_port: int


@dataclass(frozen=True, slots=True)
class MachineSupplies:
    """Secrets, files and packages that a launcher copies to a booted machine; the cloud sees none of them.

    `secrets` become environment variables of payloads and are never written. `folder` is copied to the machine, where
    payloads find it as their working directory. `packages` are installed distributions of the launcher that payloads
    import; their requirements are copied, too.
    """

    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: Path | None = None
    reach: tuple[ReverseTunnel, ...] = ()
    packages: tuple[str, ...] = ()


@runtime_checkable
class Prepares(Protocol):
    """A provider whose machines boot without the job's files and secrets: a launcher copies them."""

    def prepare(self, machine: Machine, supplies: MachineSupplies) -> None:
        """Brings a machine to the point where its agent answers. Returns at once, and works in the background.

        The call may be repeated at any time, by any process that works on the run: completed steps are skipped.
        """
        ...


@runtime_checkable
class StatesQuotas(Protocol):
    """A provider whose cloud tells how many machines the account may have at a time."""

    def quotas(self, region: str, instance_types: Collection[str]) -> tuple[Quota, ...]:
        """The quotas that machines of these types count against in a region: as spot machines, and on demand."""
        ...


@runtime_checkable
class AllowsTrials(Protocol):
    """A provider that `spotctl try --full` can test against its cloud."""

    @property
    def endpoint(self) -> str:
        """The host that its calls go to, such as management.azure.com."""
        ...

    def check_order(self, request: MachineRequest) -> str:
        """Has the cloud check an order as `create` would send it, and returns the image. Nothing is bought.

        Raises the errors of `create`.
        """
        ...

    def console(self, machine: str) -> str:
        """The console output of a machine that the cloud shows by now."""
        ...

    def simulate_eviction(self, machine: str) -> None:
        """Has the cloud's own simulator take a spot machine back, with the usual warning."""
        ...


class RentingProvider(CloudProvider, Prepares, TakesCommands, AdmitsSsh, BillsHoldings, StatesQuotas, Closes, Protocol):
    """A provider of machines that are rented from a cloud: all of them can do this."""
