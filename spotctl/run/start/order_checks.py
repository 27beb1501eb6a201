"""The orders that plans begin with, checked by their clouds before anything is rented."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from pricing_data.market import Market
from spotctl.clouds.doctor import Finding, Level, all_found
from spotctl.clouds.errors import Answers, NotPermitted, ProviderError
from spotctl.clouds.provider import MachineRequest
from spotctl.clouds.wiring import cloud_provider
from spotctl.home.config import Settings
from spotctl.home.installation import INSTALLATION_TAG, installation_id
from spotctl.log.state import covers
from spotctl.planning.values import JobPlan


@dataclass(frozen=True, slots=True)
class CheckedOrders:
    """The findings about a plan's orders, each once. If no order of the plan can succeed, why the
    first one fails.
    """

    findings: tuple[Finding, ...]
    obstacles: tuple[Finding, ...]

    def refuse(self) -> None:
        """Raises the first reason why no order of the plan can succeed. NotPermitted: permissions
        are missing.
        """
        if self.obstacles:
            kind = (
                NotPermitted
                if any(finding.level is Level.NO_ACCESS for finding in self.obstacles)
                else ProviderError
            )
            # What nobody but an administrator can change comes first.
            raise kind(
                str(max(self.obstacles, key=lambda finding: finding.level is Level.NO_ACCESS))
            )


def checked(plan: JobPlan, settings: Settings) -> CheckedOrders:
    """Asks the clouds of a plan about the orders that it begins with, all at the same time. A zone
    without a network is no reason against orders in others."""
    findings, failing = dict[tuple[str, str, str], Finding](), list[tuple[Market, list[Finding]]]()
    requests = _requests(plan, installation_id(settings.home))
    for cloud in dict.fromkeys(request.market.cloud for request in requests):
        with closing(cloud_provider(settings, (cloud,), answers=Answers())) as provider:
            own = [request for request in requests if request.market.cloud == cloud]
            each = [provider.checks(request) for request in own]
            answers = iter(all_found(cloud, [check for checks in each for check in checks]))
            for request, checks in zip(own, each, strict=True):
                of_order = [next(answers) for _ in checks]
                failing.append(
                    (request.market, [finding for finding in of_order if finding.is_bad])
                )
                findings |= {
                    (finding.about, finding.what, finding.detail): finding for finding in of_order
                }

    return CheckedOrders(tuple(findings.values()), _obstacles(plan, failing))


def _obstacles(
    plan: JobPlan, failing: Sequence[tuple[Market, Sequence[Finding]]]
) -> tuple[Finding, ...]:
    """The problems of the first order, if all orders fail, and for reasons that reach all markets
    of the plan.
    """
    barred = [(finding.scope.value, market) for market, problems in failing for finding in problems]
    markets = {market for market, _ in failing} | {offer.market for offer in plan.decider.offers}
    fail = all(problems for _, problems in failing)
    fail = fail and all(
        any(covers(scope, refused, market) for scope, refused in barred) for market in markets
    )
    return tuple(failing[0][1]) if failing and fail else ()


def _requests(plan: JobPlan, installation: str) -> Sequence[MachineRequest]:
    """The orders of a plan's first machines, and of those on demand in their place."""
    spec = plan.job.spec
    if spec.is_local or spec.on_ray:
        return ()

    rents = [
        *(choice.rent for choice in plan.cost.choice),
        plan.decider.reliable,
        plan.decider.baseline,
    ]

    orders = {(rent.offer.market, rent.spot): rent for rent in rents if rent is not None}
    return [
        MachineRequest(
            "check",
            market,
            rent.machines,
            rent.bid,
            0,
            {**spec.tags, INSTALLATION_TAG: installation},
            image=spec.image.of(market.cloud),
            identity=spec.identity.get(market.cloud),
            disk_gib=spec.image.disk_gib,
            reservation=market.reservation,
        )
        for (market, _), rent in orders.items()
    ]
