"""`FencedProvider`: the provider of a runner that lives on one of the machines that it manages.

The provider buys only while the runner's claim holds and after the log has been copied, so a process that takes over
knows every order that was placed. The runner's own machine is returned last: once the run has returned all machines, it
counts as gone from the moment at which the run looks, seconds before it ends. A runner's machine without work goes on
until then, and is paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pricing_data.market import Market
from pricing_data.units import MINUTE
from spotctl.clouds.base import EndReason, Machine, MachineLink, MachineRequest, MachineState, Resource
from spotctl.clouds.capabilities import Invocation, MachineSupplies, RentingProvider
from spotctl.clouds.errors import NotSent, ProviderError, Unanswered

_RENEW_EVERY = MINUTE

if TYPE_CHECKING:
    from pricing_data.series import PriceSeries


class Guard(Protocol):
    """See `fence.Fence`."""

    def check(self) -> None: ...

    def hold(self) -> None: ...


class FencedProvider:
    """See `CloudProvider`; `own` is the machine of this process, `copy_log` copies the event log, and `stops` says
    whether the run is to end. Without work, the own machine is leased for `lease` at a time.

    Every call that reads or changes the run's machines may raise Superseded.
    """

    def __init__(
        self,
        provider: RentingProvider,
        guard: Guard,
        copy_log: Callable[[], None],
        own: str,
        stops: Callable[[], bool],
        lease: int,
    ) -> None:
        self._provider, self._guard, self._copy_log = provider, guard, copy_log
        self._own, self._stops, self._lease = own, stops, lease
        self._is_returned = False
        self._renewed = 0
        self.name = provider.name

    @property
    def speed(self) -> float:
        """Seconds of the provider's clock per second."""
        return self._provider.speed

    def now(self) -> int:
        return self._provider.now()

    def offers(self) -> tuple[Market, ...]:
        return self._provider.offers()

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        return self._provider.prices(market, start, end)

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        """See `CloudProvider`. Unanswered: the object store did not answer, and nothing was bought. NotSent: meanwhile
        the run was asked to stop."""
        try:
            self._copy_log()
            self._guard.hold()
        except OSError as error:
            raise Unanswered(f"{request.market}: nothing is bought while the object store fails: {error}") from None
        if self._stops():
            raise NotSent("the run ends")
        return self._provider.create(request)

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        self._guard.check()
        if self._is_returned and not self._stops():
            self._stay()
        return tuple(map(self._seen, self._provider.list(tags)))

    def terminate(self, ids: Sequence[str]) -> None:
        """See `CloudProvider`. The own machine goes on until `return_own`."""
        self._guard.check()
        self._is_returned |= self._own in ids
        if others := [machine for machine in ids if machine != self._own]:
            self._provider.terminate(others)

    def return_own(self) -> None:
        """Ends the machine of this process, and with it this process."""
        self._provider.terminate([self._own])

    def link(self, machine: str) -> MachineLink:
        return self._provider.link(machine)

    def prepare(self, machine: Machine, supplies: MachineSupplies) -> None:
        self._provider.prepare(machine, supplies)

    def invocation(self, machine: str, command: Sequence[str]) -> Invocation:
        return self._provider.invocation(machine, command)

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        """See `CloudProvider`. Resources that the own machine uses outlive it, so a launcher removes them."""
        return () if self._stops() else self._provider.resources(tags)

    def remove(self, resources: Sequence[Resource]) -> None:
        self._guard.check()
        self._provider.remove(resources)

    def _stay(self) -> None:
        """Renews the lease of the own machine, which the run no longer renews."""
        now = self.now()
        if now - self._renewed >= _RENEW_EVERY:
            with suppress(ProviderError):
                self._provider.link(self._own).renew(now + self._lease)
                self._renewed = now

    def _seen(self, machine: Machine) -> Machine:
        if machine.id != self._own or not self._is_returned or not self._stops():
            return machine
        # What the run still does on it, such as storing the model, is paid for.
        return replace(machine, state=MachineState.GONE, ended=self.now(), end_reason=EndReason.RETURNED)
