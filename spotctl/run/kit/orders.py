"""Steps that buy nothing: what the account allows, and what the cloud says of an order of each family of types."""

import re
from collections.abc import Iterator

from pricing_data.catalog import InstanceType
from pricing_data.errors import CloudError, PricingDataError
from pricing_data.units import MINUTE, counted
from spotctl.clouds.base import MachineRequest
from spotctl.clouds.capabilities import AllowsTrials
from spotctl.clouds.errors import NotFound
from spotctl.clouds.findings import Level
from spotctl.clouds.parts import doctor_of
from spotctl.clouds.tags import INTENT_TAG
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.home.wall_clock import wall_us
from spotctl.run.kit.account import Kit, StepSkipped, TrialFailed
from spotctl.run.kit.record import PASSED, StepResult

LEASE = 15 * MINUTE
MOST_FAMILIES = 60
"""The most families that are checked: clouds limit calls, and a trial should take minutes."""

_MOST_NAMED = 3
_SIZE = re.compile(r"(?<=[A-Z])\d+(-\d+)?")
"""The number of vCPUs in the name of one of Azure's sizes, such as the 4 of Standard_D4s_v5."""


def check_account(kit: Kit) -> Iterator[StepResult]:
    """The checks of `spotctl doctor` for the cloud."""
    try:
        findings = list(doctor_of(kit.cloud).findings(kit.settings))
    except CloudError as error:
        raise TrialFailed(str(error)) from error
    wrong = [finding for finding in findings if finding.level in (Level.FAILS, Level.NO_ACCESS)]
    if wrong:
        raise TrialFailed(f"{wrong[0].what}: {wrong[0].detail} -> {wrong[0].cure}")
    notes = [f"{finding.what}: {finding.detail}" for finding in findings if finding.level is Level.NOTE]
    detail = f"spotctl doctor finds no problem in {counted(len(findings), 'check')}"
    yield StepResult("account", PASSED, "; ".join((detail, *notes)), figures={"checks": len(findings)})


def check_orders(kit: Kit) -> Iterator[StepResult]:
    """An order of the smallest type of each family, as far as the cloud checks it without buying."""
    assert isinstance(kit.provider, AllowsTrials)
    accepted: dict[str, str] = {}
    absent: list[str] = []
    unusable: list[str] = []
    refused: list[str] = []
    for number, machine in enumerate(_one_of_each_family(kit)):
        try:
            accepted[machine.name] = kit.provider.check_order(order(kit, machine.name, number, "check", spot=True))
        except NotFound:
            absent.append(machine.name)
        except BadRequest as error:
            unusable.append(f"{machine.name}: {error}")
        except (SpotctlError, PricingDataError) as error:
            refused.append(f"{machine.name}: {error}")
    if refused or not accepted:
        first = (refused or unusable or ["no type has a known price"])[0]
        raise TrialFailed(
            f"{counted(len(refused), 'order')} refused, of {counted(len(accepted), 'order')} more none; {first}"
        )
    detail = f"orders of {_families(len(accepted))} pass, with {counted(len(set(accepted.values())), 'image')}"
    if absent:
        detail += (
            f"; not sold here: {', '.join(absent[:_MOST_NAMED])}{' and more' if len(absent) > _MOST_NAMED else ''}"
        )
    if unusable:
        detail += f"; cannot be used: {unusable[0]}" + (f" and {len(unusable) - 1} more" if len(unusable) > 1 else "")
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


def _families(number: int) -> str:
    return f"{number} {'family' if number == 1 else 'families'} of types"


def _one_of_each_family(kit: Kit) -> list[InstanceType]:
    smallest: dict[str, InstanceType] = {}
    for machine in sorted(kit.types, key=lambda known: (known.vcpus, known.memory_gib, known.name)):
        smallest.setdefault(family_of(machine.name), machine)
    if not smallest:
        raise StepSkipped(f"no prices are stored; run spotctl prices fetch --cloud {kit.cloud} --region {kit.region}")
    return list(smallest.values())[:MOST_FAMILIES]
