"""Steps without a job: checks of the account, orders that buy nothing, and the course of a
machine."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import ParamSpec, TypeVar

from pricing_data.catalog import InstanceType
from pricing_data.errors import CloudError, PricingDataError
from pricing_data.units import MINUTE, NANOS_PER_DOLLAR, SECOND, counted
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

P = ParamSpec("P")
T = TypeVar("T")

BOOT_SECONDS = 600.0
"""How long a machine may take until its agent answers."""

_LAST_LEASE_SECONDS = 60.0
_END_SECONDS = 300.0
_PAUSE_SECONDS, _PATIENCE_SECONDS = 2.0, 120.0
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
        kit = self._kit
        for number, kind in enumerate(kit.kinds):
            # In the first market of its type that has one.
            refusal = NoCapacity(f"{kind.name} is not sold in {kit.region}")
            for place, market in enumerate(kit.markets(kind.name)):
                request = order(kit, kind.name, number, f"boot-{place}", spot=number == 0)
                request = replace(request, market=market)
                began = time.monotonic()
                try:
                    (machine,) = _patiently(kit.provider.create, request)
                except NoCapacity as error:
                    refusal = error
                else:
                    granted_after = time.monotonic() - began
                    self._rented.append(_Rented(request, machine, began, granted_after))
                    break
            else:
                raise refusal

        _wait(self._all_answer, BOOT_SECONDS, self._late)

        for kind, rented in zip(self._kit.kinds, self._rented, strict=True):
            what = "on demand" if rented.request.bid is None else "spot"
            seconds = {"granted": rented.granted, "console": rented.console, "agent": rented.agent}
            figures: dict[str, float | int | str] = {"type": kind.name}
            for name, taken in seconds.items():
                if taken:
                    figures[f"{name}_seconds"] = round(taken, 1)
            granted = f"{kind.name}, {what}: granted after {rented.granted:.0f} s"
            answers = f"console {rented.console:.0f} s, agent {rented.agent:.0f} s"
            yield StepResult("machines", PASSED, f"{granted}, {answers}", figures=figures)

    def repeat_token(self) -> Iterator[StepResult]:
        """Sends an order again: the cloud must return the machine that it has granted, and refuse
        another order.
        """
        rented = self._first()
        repeated = replace(rented.request, lease_until=wall_us())
        again = _patiently(self._kit.provider.create, repeated)
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
        patience = _LAST_LEASE_SECONDS + _END_SECONDS
        _wait(self._are_gone, patience, "it still runs", rented)

        late = (provider.now() - end) / SECOND
        figures = {"late_seconds": round(late, 1)}
        detail = f"the machine was gone {late:.0f} s after its lease"
        yield StepResult("lease", PASSED, detail, figures=figures)

    def end(self) -> None:
        """Returns the machines and what belongs to them."""
        provider = self._kit.provider
        _patiently(provider.terminate, [rented.machine.id for rented in self._rented])
        _wait(self._are_gone, _END_SECONDS, "still listed", *self._rented)

        for kind, rented in zip(self._kit.kinds, self._rented, strict=False):
            hours = (time.monotonic() - rented.since) / HOUR_SECONDS
            usd_per_hour = self._kit.list_price(kind.name) / NANOS_PER_DOLLAR
            self._kit.spent_usd += usd_per_hour * hours

        # Each attempt lists the resources again: an earlier one may have removed some.
        _patiently(lambda: provider.remove(provider.resources(self._kit.tags)))
        self._rented.clear()

    def _first(self) -> _Rented:
        if not self._rented:
            raise TrialFailed("there is no machine: see the step machines")
        return self._rented[0]

    def _all_answer(self) -> bool:
        provider = self._kit.provider
        for rented in self._rented:
            machine = rented.machine
            if self._are_gone(rented):
                type_ = rented.request.market.instance_type
                raise TrialFailed(f"the {type_} ended before its agent answered")

            with suppress(Throttled, Unanswered, NotFound):
                if rented.console is None and host_key_of(provider.console(machine.id)) is not None:
                    rented.console = time.monotonic() - rented.since
                provider.prepare(machine, MachineSupplies())
                if rented.agent is None:
                    provider.link(machine.id).status()
                    rented.agent = time.monotonic() - rented.since
                    rented.console = rented.console or rented.agent
        return all(rented.agent is not None for rented in self._rented)

    def _late(self) -> str:
        silent = next(rented for rented in self._rented if rented.agent is None)
        try:
            self._kit.provider.link(silent.machine.id).status()
        except Unanswered as error:
            type_ = silent.request.market.instance_type
            return f"the agent of the {type_} does not answer: {error}"
        return "an agent answered too late"

    def _are_gone(self, *rented: _Rented) -> bool:
        """Whether the cloud has taken all of these machines."""
        for machine in (each.machine for each in rented):
            listed = {known.id: known for known in self._kit.provider.list(self._kit.tags)}
            if machine.id in listed:
                if listed[machine.id].state is not MachineState.GONE:
                    return False
                continue

            try:
                self._kit.provider.link(machine.id).status()
            except NotFound:
                continue
            except (Throttled, Unanswered):
                pass
            return False

        return True


def _patiently(call: Callable[P, T], *given: P.args, **options: P.kwargs) -> T:
    """Makes a call again as long as the cloud is slow or throttles; a run's loop does the same."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return call(*given, **options)
        except (Throttled, Unanswered):
            if time.monotonic() >= give_up:
                raise
            time.sleep(_PAUSE_SECONDS)


def _wait(
    happened: Callable[..., bool], seconds: float, why_not: str | Callable[[], str], *of: _Rented
) -> None:
    """TrialFailed: it has not happened in time."""
    give_up = time.monotonic() + seconds
    while not happened(*of):
        if time.monotonic() >= give_up:
            why = why_not if isinstance(why_not, str) else why_not()
            raise TrialFailed(f"after {seconds:.0f} s: {why}")
        time.sleep(_PAUSE_SECONDS)


def check_account(kit: Kit) -> Iterator[StepResult]:
    """The checks of `spotctl doctor` for the cloud, and of an order in this region."""
    try:
        findings = list(doctor_of(kit.cloud).findings(kit.settings, Answers()))
        first = order(kit, kit.kinds[0].name, 0, "check", spot=True)
        findings += all_found(kit.cloud, kit.provider.checks(first))
    except CloudError as error:
        raise TrialFailed(str(error)) from error

    said = [f"spotctl doctor finds no problem in {counted(len(findings), 'check')}"]
    for finding in findings:
        if finding.level in (Level.FAILS, Level.NO_ACCESS):
            raise TrialFailed(f"{finding.what}: {finding.detail} -> {finding.cure}")
        if finding.level is Level.NOTE:
            said.append(f"{finding.what}: {finding.detail}")
    yield StepResult("account", PASSED, "; ".join(said), figures={"checks": len(findings)})


def check_orders(kit: Kit) -> Iterator[StepResult]:
    """An order of the smallest type of each family, as far as the cloud checks it without
    buying."""
    accepted: dict[str, str] = {}
    absent: list[str] = []
    unusable: list[str] = []
    refused: list[str] = []

    # The smallest type of each family.
    smallest: dict[str, InstanceType] = {}
    for machine in sorted(kit.types, key=attrgetter("vcpus", "memory_gib", "name")):
        smallest.setdefault(family_of(machine.name), machine)
    if not smallest:
        raise StepSkipped(
            f"no prices are stored; run spotctl prices fetch --cloud {kit.cloud} --region "
            f"{kit.region}"
        )

    for number, machine in enumerate(list(smallest.values())[:MAX_FAMILIES]):
        name = machine.name
        try:
            asked = order(kit, name, number, "check", spot=True)
            accepted[name] = kit.provider.check_order(asked)
        except NotFound:
            absent.append(name)
        except BadRequest as error:
            unusable.append(f"{name}: {error}")
        except (SpotctlError, PricingDataError) as error:
            refused.append(f"{name}: {error}")

    passed = counted(len(accepted), "order")
    if refused or not accepted:
        first, *_ = refused or unusable or ["no type has a known price"]
        number_refused = counted(len(refused), "order")
        raise TrialFailed(f"{number_refused} refused, of {passed} more none; {first}")

    number, different = len(accepted), set(accepted.values())
    families = "family" if number == 1 else "families"
    images = counted(len(different), "image")
    detail = f"orders of {number} {families} of types pass, with {images}"
    if absent:
        more = " and more" if len(absent) > _MAX_NAMED else ""
        detail += f"; not sold here: {', '.join(absent[:_MAX_NAMED])}{more}"
    if unusable:
        more = f" and {len(unusable) - 1} more" if len(unusable) > 1 else ""
        detail += f"; cannot be used: {unusable[0]}{more}"

    figures = {"accepted": number, "absent": len(absent), "unusable": len(unusable)}
    yield StepResult("orders", PASSED, detail, figures=figures)


def order(kit: Kit, type_: str, number: int, purpose: str, *, spot: bool) -> MachineRequest:
    """An order of one machine without a job. The bid of a spot machine is the list price."""
    bid: int | None = None
    if spot:
        try:
            bid = kit.list_price(type_)
        except PricingDataError as error:
            raise BadRequest(str(error)) from error

    token, tags = f"{kit.bare_run}-{purpose}-{number}", {**kit.tags, INTENT_TAG: str(number)}
    market, lease_until = kit.markets(type_)[0], wall_us() + LEASE
    identity = kit.identity or None
    return MachineRequest(token, market, 1, bid, lease_until, tags=tags, identity=identity)


def family_of(name: str) -> str:
    """The name of a type without its size, such as m6i, n2-standard or Standard_Ds_v5."""
    if "." in name:
        return name.partition(".")[0]
    return _SIZE.sub("", name, count=1) if "_" in name else name.rpartition("-")[0]
