"""How many on-demand machines quotas allow in each market of a job, besides its reliable machines. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bidbrain.decision.limits import CommonQuota
from bidbrain.strategies.base import Offer, Rent
from bidbrain.strategies.names import ON_DEMAND, REGIONS
from pricing_data.catalog import Catalog
from pricing_data.market import Market
from spotctl.files.job.spec import JobSpec
from spotctl.home.quotas import Quota
from spotctl.planning.errors import NotInTime
from spotctl.planning.market_history import RentableFleet
from spotctl.planning.quota_use import most_machines, used


def on_demand_limits(
    offers: Iterable[Offer], reliable: Rent | None, quotas: Sequence[Quota], catalog: Catalog
) -> Mapping[Market, int]:
    """The most on-demand machines of each market that a quota limits."""
    limits = {offer.market: [most for most, _ in _holding(quotas, offer.market, reliable, catalog)] for offer in offers}
    return {market: min(most) for market, most in limits.items() if most}


def shared_quotas(
    offers: Iterable[Offer], reliable: Rent | None, quotas: Sequence[Quota], catalog: Catalog
) -> tuple[CommonQuota, ...]:
    """The rest of each quota that machines of several markets count against, without the reliable machines."""
    held = _held(reliable)
    return tuple(
        CommonQuota(max(quota.amount - used(quota, held, catalog), 0), by_market)
        for quota, by_market in _uses(offers, quotas, catalog).items()
        if len(by_market) > 1
    )


def spot_quotas(offers: Iterable[Offer], parts: Sequence[Quota], catalog: Catalog) -> tuple[CommonQuota, ...]:
    """A job's parts of the quotas of spot machines that its markets count against."""
    return tuple(CommonQuota(part.amount, by_market) for part, by_market in _uses(offers, parts, catalog).items())


def _uses(offers: Iterable[Offer], quotas: Sequence[Quota], catalog: Catalog) -> dict[Quota, dict[Market, int]]:
    """The part of each quota that one machine of each market takes."""
    uses: dict[Quota, dict[Market, int]] = {}
    for market in (offer.market for offer in offers):
        for quota in (quota.within(market.region) for quota in quotas):
            if each := used(quota, {market: 1}, catalog):
                uses.setdefault(quota, {})[market] = each
    return uses


def tightest(quotas: Sequence[Quota], market: Market, reliable: Rent | None, catalog: Catalog) -> tuple[int, Quota]:
    """The quota that holds the fewest machines of a market, and how many."""
    return min(_holding(quotas, market, reliable, catalog), key=lambda pair: pair[0])


def check_on_demand(
    spec: JobSpec, rentable: Rent, fleet: RentableFleet, quotas: Sequence[Quota], catalog: Catalog
) -> None:
    """Raises NotInTime if a strategy that needs on-demand machines gets too few."""
    if spec.strategy not in (ON_DEMAND, REGIONS) or rentable.machines:
        return
    market = rentable.offer.market
    most, quota = tightest(quotas, market, fleet.reliable, catalog)
    raise NotInTime(
        f"{spec.name}: strategy {spec.strategy} needs at least {spec.resources.machines.least} on-demand machines"
        f" ({market.instance_type}), and quota {quota.name} has room for {most}; raise it ('spotctl doctor' says how),"
        " or choose fewer or smaller machines, or another region"
    )


def _holding(
    quotas: Sequence[Quota], market: Market, reliable: Rent | None, catalog: Catalog
) -> Iterator[tuple[int, Quota]]:
    held = _held(reliable)
    for quota in quotas:
        if (most := most_machines(quota, market, held, catalog)) is not None:
            yield most, quota


def _held(reliable: Rent | None) -> dict[Market, int]:
    return {} if reliable is None else {reliable.offer.market: reliable.machines}
