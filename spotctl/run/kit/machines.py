"""Steps with machines that are rented without a job: they boot, their token is repeated, and a lease runs out."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from pricing_data.units import SECOND
from spotctl.clouds.base import Machine, MachineRequest, MachineState
from spotctl.clouds.capabilities import AllowsTrials, MachineSupplies
from spotctl.clouds.errors import NoCapacity, NotFound, Throttled, TokenTaken, Unanswered
from spotctl.clouds.remote.ssh import host_key_of
from spotctl.home.wall_clock import wall_us
from spotctl.run.kit.account import HOUR_SECONDS, Kit, TrialFailed
from spotctl.run.kit.orders import order
from spotctl.run.kit.record import PASSED, StepResult

T = TypeVar("T")

BOOT_SECONDS = 600.0
"""How long a machine may take until its agent answers."""
_LAST_LEASE_SECONDS = 60.0
_END_SECONDS = 300.0
_PAUSE_SECONDS = 2.0


@dataclass
class BootTimes:
    """Seconds from an order until the cloud has granted the machine, its console has shown the host key, and its agent
    has answered."""

    granted: float
    console: float | None = None
    agent: float | None = None


@dataclass
class _Rented:
    request: MachineRequest
    machine: Machine
    times: BootTimes
    since: float = field(default_factory=time.monotonic)


class BareMachines:
    """The two machines of the trial, which the steps share."""

    def __init__(self, kit: Kit) -> None:
        self._kit, self._rented = kit, list[_Rented]()

    def boot(self) -> Iterator[StepResult]:
        """Rents a spot machine of one kind and an on-demand machine of another, until the agents of both answer."""
        for number, kind in enumerate(self._kit.kinds):
            self._rented.append(self._rent(number, kind.name))
        _wait(self._all_answer, BOOT_SECONDS, self._late)
        for kind, rented in zip(self._kit.kinds, self._rented, strict=True):
            times, what = rented.times, "on demand" if rented.request.bid is None else "spot"
            figures = {f"{name}_seconds": round(seconds, 1) for name, seconds in vars(times).items() if seconds}
            figures["type"] = kind.name
            detail = f"{kind.name}, {what}: granted after {times.granted:.0f} s, console {times.console:.0f} s, "
            yield StepResult("machines", PASSED, f"{detail}agent {times.agent:.0f} s", figures=figures)

    def _rent(self, number: int, type_: str) -> _Rented:
        """A machine in the first market of its type that has one."""
        kit, refusal = self._kit, NoCapacity(f"{type_} is not sold in {self._kit.region}")
        for place, market in enumerate(kit.markets(type_)):
            request = replace(order(kit, type_, number, f"boot-{place}", spot=number == 0), market=market)
            began = time.monotonic()
            try:
                (machine,) = _patiently(partial(kit.provider.create, request))
            except NoCapacity as error:
                refusal = error
            else:
                return _Rented(request, machine, BootTimes(time.monotonic() - began), began)
        raise refusal

    def repeat_token(self) -> Iterator[StepResult]:
        """Sends an order again: the cloud must return the machine that it has granted, and refuse another order."""
        rented = self._first()
        again = _patiently(lambda: self._kit.provider.create(replace(rented.request, lease_until=wall_us())))
        if [machine.id for machine in again] != [rented.machine.id]:
            raise TrialFailed(f"the repeated order returned {len(again)} machines, not the one that it had bought")
        try:
            bought = self._kit.provider.create(replace(rented.request, count=2))
        except TokenTaken:
            yield StepResult("token", PASSED, "a repeated order buys nothing; its token is refused for another order")
            return
        raise TrialFailed(f"another order with the token of the first returned {len(bought)} machines")

    def let_lease_end(self) -> Iterator[StepResult]:
        """Shortens the lease of a machine to a minute, and then leaves it alone: it must end itself."""
        rented, provider = self._first(), self._kit.provider
        end = provider.now() + round(_LAST_LEASE_SECONDS * SECOND)
        _patiently(lambda: provider.link(rented.machine.id).renew(end))
        _wait(lambda: self._is_gone(rented.machine), _LAST_LEASE_SECONDS + _END_SECONDS, lambda: "it still runs")
        late = (provider.now() - end) / SECOND
        yield StepResult(
            "lease",
            PASSED,
            f"the machine was gone {late:.0f} s after its lease",
            figures={"late_seconds": round(late, 1)},
        )

    def end(self) -> None:
        """Returns both machines and what belongs to them."""
        provider = self._kit.provider
        _patiently(lambda: provider.terminate([rented.machine.id for rented in self._rented]))
        _wait(
            lambda: all(self._is_gone(rented.machine) for rented in self._rented), _END_SECONDS, lambda: "still listed"
        )
        for kind, rented in zip(self._kit.kinds, self._rented, strict=False):
            hours = (time.monotonic() - rented.since) / HOUR_SECONDS
            self._kit.charge(self._kit.usd_per_hour(kind.name) * hours)
        _patiently(lambda: provider.remove(provider.resources(self._kit.tags)))
        self._rented.clear()

    def _first(self) -> _Rented:
        if not self._rented:
            raise TrialFailed("there is no machine: see the step machines")
        return self._rented[0]

    def _all_answer(self) -> bool:
        for rented in self._rented:
            self._look(rented)
        return all(rented.times.agent is not None for rented in self._rented)

    def _look(self, rented: _Rented) -> None:
        provider, times = self._kit.provider, rented.times
        assert isinstance(provider, AllowsTrials)
        if self._is_gone(rented.machine):
            raise TrialFailed(f"the {rented.request.market.instance_type} ended before its agent answered")
        with suppress(Throttled, Unanswered, NotFound):
            if times.console is None and host_key_of(provider.console(rented.machine.id)) is not None:
                times.console = time.monotonic() - rented.since
            provider.prepare(rented.machine, MachineSupplies())
            if times.agent is None:
                provider.link(rented.machine.id).status()
                times.agent = time.monotonic() - rented.since
                times.console = times.console or times.agent

    def _late(self) -> str:
        silent = [rented for rented in self._rented if rented.times.agent is None]
        try:
            self._kit.provider.link(silent[0].machine.id).status()
        except Unanswered as error:
            return f"the agent of the {silent[0].request.market.instance_type} does not answer: {error}"
        return "an agent answered too late"

    def _is_gone(self, machine: Machine) -> bool:
        listed = {known.id: known for known in self._kit.provider.list(self._kit.tags)}
        if (known := listed.get(machine.id)) is not None:
            return known.state is MachineState.GONE
        try:
            self._kit.provider.link(machine.id).status()
        except NotFound:
            return True
        except (Throttled, Unanswered):
            pass
        return False


def _patiently(call: Callable[[], T], seconds: float = 120.0) -> T:
    """Makes a call again as long as the cloud is slow or throttles; a run's loop does the same."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            return call()
        except (Throttled, Unanswered):
            if time.monotonic() >= give_up:
                raise
            time.sleep(_PAUSE_SECONDS)


def _wait(happened: Callable[[], bool], seconds: float, why_not: Callable[[], str]) -> None:
    """TrialFailed: it has not happened in time."""
    give_up = time.monotonic() + seconds
    while not happened():
        if time.monotonic() >= give_up:
            raise TrialFailed(f"after {seconds:.0f} s: {why_not()}")
        time.sleep(_PAUSE_SECONDS)
