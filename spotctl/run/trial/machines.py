"""Steps without a job: checks of the account, orders that buy nothing, and the course of a
machine."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TypeVar

from pricing_data.catalog import InstanceType
from pricing_data.errors import CloudError, PricingDataError
from pricing_data.units import MINUTE, SECOND, counted
from spotctl.clouds.doctor import Level, all_found
from spotctl.clouds.errors import Answers, NoCapacity, NotFound, Throttled, TokenTaken, Unanswered
from spotctl.clouds.link import MachineSupplies
from spotctl.clouds.provider import Machine, MachineRequest, MachineState
from spotctl.clouds.remote.ssh import host_key_of
from spotctl.clouds.wiring import doctor_of
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.home.installation import INTENT_TAG
from spotctl.home.wall_clock import wall_us
from spotctl.run.trial.record import HOUR_SECONDS, PASSED, Kit, StepResult, StepSkipped, TrialFailed

T = TypeVar("T")

BOOT_SECONDS = 600.0
"""How long a machine may take until its agent answers."""

_LAST_LEASE_SECONDS = 60.0
_END_SECONDS = 300.0
_PAUSE_SECONDS = 2.0
LEASE = 15 * MINUTE
MAX_FAMILIES = 60
"""The most families that are checked: clouds limit calls, and a trial should take minutes."""

_MAX_NAMED = 3
_SIZE = re.compile(r"(?<=[A-Z])\d+(-\d+)?")
"""The number of vCPUs in the name of one of Azure's sizes, such as the 4 of Standard_D4s_v5."""


@dataclass
class _Rented:
    """A machine that was ordered at `since`, and the seconds from then until the cloud had granted
    it, its console had shown the host key, and its agent had answered."""

    request: MachineRequest
    machine: Machine
    since: float
    granted: float
    console: float | None = None
    agent: float | None = None


class BareMachines:
    """The machines of the trial, which the steps share."""

    def __init__(self, kit: Kit) -> None:
        self._kit, self._rented = kit, list[_Rented]()

    def boot(self) -> Iterator[StepResult]:
        """Rents a spot machine, and one on demand of the other kind if there is one, until their
        agents answer.
        """
        for number, kind in enumerate(self._kit.kinds):
            self._rented.append(self._rent(number, kind.name))
        _wait(self._all_answer, BOOT_SECONDS, self._late)
        for kind, rented in zip(self._kit.kinds, self._rented, strict=True):
            what = "on demand" if rented.request.bid is None else "spot"
            seconds = {"granted": rented.granted, "console": rented.console, "agent": rented.agent}
            figures: dict[str, float | int | str] = {"type": kind.name}
            figures |= {
                f"{name}_seconds": round(taken, 1) for name, taken in seconds.items() if taken
            }
            detail = (
                f"{kind.name}, {what}: granted after {rented.granted:.0f} s, console "
                f"{rented.console:.0f} s, "
            )
            yield StepResult(
                "machines", PASSED, f"{detail}agent {rented.agent:.0f} s", figures=figures
            )

    def _rent(self, number: int, type_: str) -> _Rented:
        """A machine in the first market of its type that has one."""
        kit, refusal = self._kit, NoCapacity(f"{type_} is not sold in {self._kit.region}")
        for place, market in enumerate(kit.markets(type_)):
            request = replace(
                order(kit, type_, number, f"boot-{place}", spot=number == 0), market=market
            )
            began = time.monotonic()
            try:
                (machine,) = _patiently(partial(kit.provider.create, request))
            except NoCapacity as error:
                refusal = error
            else:
                return _Rented(request, machine, began, time.monotonic() - began)

        raise refusal

    def repeat_token(self) -> Iterator[StepResult]:
        """Sends an order again: the cloud must return the machine that it has granted, and refuse
        another order.
        """
        rented = self._first()
        again = _patiently(
            lambda: self._kit.provider.create(replace(rented.request, lease_until=wall_us()))
        )

        if [machine.id for machine in again] != [rented.machine.id]:
            raise TrialFailed(
                f"the repeated order returned {len(again)} machines, not the one that it had bought"
            )

        try:
            bought = self._kit.provider.create(replace(rented.request, count=2))
        except TokenTaken:
            yield StepResult(
                "token",
                PASSED,
                "a repeated order buys nothing; its token is refused for another order",
            )
            return

        raise TrialFailed(
            f"another order with the token of the first returned {len(bought)} machines"
        )

    def let_lease_end(self) -> Iterator[StepResult]:
        """Shortens the lease of a machine to a minute, and then leaves it alone: it must end
        itself.
        """
        rented, provider = self._first(), self._kit.provider
        end = provider.now() + round(_LAST_LEASE_SECONDS * SECOND)
        _patiently(lambda: provider.link(rented.machine.id).renew(end))
        _wait(
            lambda: self._is_gone(rented.machine),
            _LAST_LEASE_SECONDS + _END_SECONDS,
            "it still runs",
        )

        late = (provider.now() - end) / SECOND
        yield StepResult(
            "lease",
            PASSED,
            f"the machine was gone {late:.0f} s after its lease",
            figures={"late_seconds": round(late, 1)},
        )

    def end(self) -> None:
        """Returns the machines and what belongs to them."""
        provider = self._kit.provider
        _patiently(lambda: provider.terminate([rented.machine.id for rented in self._rented]))
        _wait(
            lambda: all(self._is_gone(rented.machine) for rented in self._rented),
            _END_SECONDS,
            "still listed",
        )

        for kind, rented in zip(self._kit.kinds, self._rented, strict=False):
            hours = (time.monotonic() - rented.since) / HOUR_SECONDS
            self._kit.spent_usd += self._kit.usd_per_hour(kind.name) * hours

        _patiently(lambda: provider.remove(provider.resources(self._kit.tags)))
        self._rented.clear()

    def _first(self) -> _Rented:
        if not self._rented:
            raise TrialFailed("there is no machine: see the step machines")
        return self._rented[0]

    def _all_answer(self) -> bool:
        for rented in self._rented:
            provider = self._kit.provider
            if self._is_gone(rented.machine):
                raise TrialFailed(
                    f"the {rented.request.market.instance_type} ended before its agent answered"
                )
            with suppress(Throttled, Unanswered, NotFound):
                if (
                    rented.console is None
                    and host_key_of(provider.console(rented.machine.id)) is not None
                ):
                    rented.console = time.monotonic() - rented.since
                provider.prepare(rented.machine, MachineSupplies())
                if rented.agent is None:
                    provider.link(rented.machine.id).status()
                    rented.agent = time.monotonic() - rented.since
                    rented.console = rented.console or rented.agent
        return all(rented.agent is not None for rented in self._rented)

    def _late(self) -> str:
        silent = [rented for rented in self._rented if rented.agent is None]
        try:
            self._kit.provider.link(silent[0].machine.id).status()
        except Unanswered as error:
            return (
                f"the agent of the {silent[0].request.market.instance_type} does not answer: "
                f"{error}"
            )
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


def _wait(happened: Callable[[], bool], seconds: float, why_not: str | Callable[[], str]) -> None:
    """TrialFailed: it has not happened in time."""
    give_up = time.monotonic() + seconds
    while not happened():
        if time.monotonic() >= give_up:
            why = why_not if isinstance(why_not, str) else why_not()
            raise TrialFailed(f"after {seconds:.0f} s: {why}")
        time.sleep(_PAUSE_SECONDS)


def check_account(kit: Kit) -> Iterator[StepResult]:
    """The checks of `spotctl doctor` for the cloud, and of an order in this region."""
    try:
        findings = list(doctor_of(kit.cloud).findings(kit.settings, Answers()))
        findings += all_found(
            kit.cloud, kit.provider.checks(order(kit, kit.kinds[0].name, 0, "check", spot=True))
        )
    except CloudError as error:
        raise TrialFailed(str(error)) from error

    wrong = [finding for finding in findings if finding.level in (Level.FAILS, Level.NO_ACCESS)]
    if wrong:
        raise TrialFailed(f"{wrong[0].what}: {wrong[0].detail} -> {wrong[0].cure}")

    notes = [
        f"{finding.what}: {finding.detail}" for finding in findings if finding.level is Level.NOTE
    ]
    detail = f"spotctl doctor finds no problem in {counted(len(findings), 'check')}"
    yield StepResult(
        "account", PASSED, "; ".join((detail, *notes)), figures={"checks": len(findings)}
    )


def check_orders(kit: Kit) -> Iterator[StepResult]:
    """An order of the smallest type of each family, as far as the cloud checks it without
    buying."""
    accepted: dict[str, str] = {}
    absent: list[str] = []
    unusable: list[str] = []
    refused: list[str] = []

    for number, machine in enumerate(_one_of_each_family(kit)):
        try:
            accepted[machine.name] = kit.provider.check_order(
                order(kit, machine.name, number, "check", spot=True)
            )
        except NotFound:
            absent.append(machine.name)
        except BadRequest as error:
            unusable.append(f"{machine.name}: {error}")
        except (SpotctlError, PricingDataError) as error:
            refused.append(f"{machine.name}: {error}")

    if refused or not accepted:
        first = (refused or unusable or ["no type has a known price"])[0]
        raise TrialFailed(
            f"{counted(len(refused), 'order')} refused, of {counted(len(accepted), 'order')} more "
            f"none; {first}"
        )

    families = "family" if len(accepted) == 1 else "families"
    images = counted(len(set(accepted.values())), "image")
    detail = f"orders of {len(accepted)} {families} of types pass, with {images}"
    if absent:
        detail += (
            "; not sold here: "
            f"{', '.join(absent[:_MAX_NAMED])}{' and more' if len(absent) > _MAX_NAMED else ''}"
        )

    if unusable:
        detail += f"; cannot be used: {unusable[0]}" + (
            f" and {len(unusable) - 1} more" if len(unusable) > 1 else ""
        )

    figures = {"accepted": len(accepted), "absent": len(absent), "unusable": len(unusable)}
    yield StepResult("orders", PASSED, detail, figures=figures)


def order(kit: Kit, type_: str, number: int, purpose: str, *, spot: bool) -> MachineRequest:
    """An order of one machine without a job. The bid of a spot machine is the list price."""
    try:
        bid = kit.list_price(type_) if spot else None
    except PricingDataError as error:
        raise BadRequest(str(error)) from error
    return MachineRequest(
        token=f"{kit.bare_run}-{purpose}-{number}",
        market=kit.markets(type_)[0],
        count=1,
        bid=bid,
        lease_until=wall_us() + LEASE,
        tags={**kit.tags, INTENT_TAG: str(number)},
        identity=kit.identity or None,
    )


def family_of(name: str) -> str:
    """The name of a type without its size, such as m6i, n2-standard or Standard_Ds_v5."""
    if "." in name:
        return name.partition(".")[0]
    return _SIZE.sub("", name, count=1) if "_" in name else name.rpartition("-")[0]


def _one_of_each_family(kit: Kit) -> list[InstanceType]:
    smallest: dict[str, InstanceType] = {}
    for machine in sorted(kit.types, key=attrgetter("vcpus", "memory_gib", "name")):
        smallest.setdefault(family_of(machine.name), machine)
    if not smallest:
        raise StepSkipped(
            f"no prices are stored; run spotctl prices fetch --cloud {kit.cloud} --region "
            f"{kit.region}"
        )
    return list(smallest.values())[:MAX_FAMILIES]
