"""The steps of a full trial in their order; one that fails does not keep the others from being carried out."""

import platform
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version

from pricing_data.errors import PricingDataError
from pricing_data.units import counted
from spotctl.clouds.capabilities import AllowsTrials
from spotctl.clouds.tags import RUN_TAG
from spotctl.home.cloud import cloud_of
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.run.kit import journeys, orders
from spotctl.run.kit.account import Kit, StepSkipped, TrialFailed
from spotctl.run.kit.machines import BareMachines
from spotctl.run.kit.record import FAILED, PASSED, SKIPPED, StepResult, TrialRecord
from spotctl.run.start.trial import left_under

KitStep = Callable[[], Iterator[StepResult]]

STEPS = "account orders machines token lease launcher eviction training runner left".split()
"""The names of the steps; the eviction also reports on the checkpoint."""

_NEEDED = {"token": "machines", "lease": "machines"}
"""Steps that use what another has rented."""


def conduct(kit: Kit, chosen: Collection[str], report: Callable[[StepResult], None]) -> TrialRecord:
    """Carries out the chosen steps, or all, and reports each result as soon as it is there."""
    if unknown := [name for name in chosen if name not in STEPS]:
        raise BadRequest(f"step {unknown[0]!r} is not one of {', '.join(STEPS)}")
    wanted = {*chosen, *(_NEEDED[name] for name in chosen if name in _NEEDED), "left"} if chosen else set(STEPS)
    machines, results = BareMachines(kit), list[StepResult]()
    try:
        for name, step in _steps(kit, machines).items():
            if name not in wanted:
                continue
            if name == "launcher":
                _end(machines)
            for result in _carried_out(kit, name, step):
                results.append(result)
                report(result)
    finally:
        _end(machines)
    return _record(kit, results)


def _steps(kit: Kit, machines: BareMachines) -> Mapping[str, KitStep]:
    steps: tuple[KitStep, ...] = (
        lambda: orders.check_account(kit),
        lambda: orders.check_orders(kit),
        machines.boot,
        machines.repeat_token,
        machines.let_lease_end,
        lambda: journeys.kill_launcher(kit),
        lambda: journeys.evict(kit),
        lambda: journeys.train(kit),
        lambda: journeys.move_runner(kit),
        lambda: _find_left(kit, machines),
    )
    return dict(zip(STEPS, steps, strict=True))


def _carried_out(kit: Kit, name: str, step: KitStep) -> Iterator[StepResult]:
    began = time.monotonic()
    try:
        if name != "left":
            kit.check_budget()
        for result in step():
            now = time.monotonic()
            yield replace(result, seconds=now - began)
            began = now
    except StepSkipped as why:
        yield StepResult(name, SKIPPED, str(why))
    except (TrialFailed, SpotctlError, PricingDataError) as error:
        yield StepResult(name, FAILED, " ".join(str(error).split()), time.monotonic() - began)


def _end(machines: BareMachines) -> None:
    """Returns the machines without a job; what is left of them, the last step finds."""
    with suppress(TrialFailed, SpotctlError):
        machines.end()


def _find_left(kit: Kit, machines: BareMachines) -> Iterator[StepResult]:
    """Everything that the cloud still lists under the tags of the trial's runs."""
    _end(machines)
    runs = [kit.bare_run, *kit.runs]
    left = [resource for run in runs for resource in left_under(kit.provider, {**kit.tags, RUN_TAG: run})]
    if left:
        names = ", ".join(f"{resource.kind} {resource.id}" for resource in left)
        raise TrialFailed(f"left: {names} (spotctl gc removes it)")
    yield StepResult("left", PASSED, f"nothing is left of {counted(len(runs), 'run')}", figures={"runs": len(runs)})


def _record(kit: Kit, results: list[StepResult]) -> TrialRecord:
    assert isinstance(kit.provider, AllowsTrials)
    packages = ("spotctl", *cloud_of(kit.cloud).packages.needed)
    return TrialRecord(
        cloud=kit.cloud,
        region=kit.region,
        endpoint=kit.provider.endpoint,
        date=datetime.now(UTC).date().isoformat(),
        versions={"python": platform.python_version(), **{name: version(name) for name in packages}},
        steps=tuple(results),
        most_usd=kit.spent_usd,
    )
