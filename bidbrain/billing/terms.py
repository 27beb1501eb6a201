"""How each cloud bills spot machines and takes them back, as the part `terms` of its package says."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import cast

from bidbrain.billing.rules import RULES, BillingRule, UnknownBillingRule
from pricing_data.known_clouds import cloud_names, markets_of, part_of


@dataclass(frozen=True, slots=True)
class CloudTerms:
    """A cloud's billing rule and evictions.

    `capacity_since` is the moment since which the cloud takes machines back at any bid; None: only the price evicts.
    Until `aged_until` every machine ended at an age of `longest_hours`. With `any_system`, published figures hold for
    all operating systems.
    """

    billing: BillingRule
    capacity_since: int | None = 0
    aged_until: int = 0
    longest_hours: float = inf
    any_system: bool = False

    def capacity_evicts(self, at: int) -> bool:
        """Whether the cloud takes machines back at any bid."""
        return self.capacity_since is not None and at >= self.capacity_since


@cache
def terms_of(cloud: str) -> CloudTerms:
    """A cloud's terms."""
    return cast("CloudTerms", part_of(cloud, "terms").TERMS)


def rule_of_cloud(cloud: str) -> BillingRule:
    """How a cloud bills spot machines today.

    >>> rule_of_cloud("local").name
    'hourly-refund'
    """
    return terms_of(cloud).billing


@cache
def billing_rules() -> Mapping[str, BillingRule]:
    """All known rules by name: the general ones, then those of clouds."""
    own = {rule.name: rule for rule in map(rule_of_cloud, cloud_names())}
    return {**RULES, **{name: rule for name, rule in own.items() if name not in RULES}}


def billing_rule(name: str) -> BillingRule:
    """The rule with this name.

    >>> billing_rule("gcp").name
    'gcp'
    """
    try:
        return billing_rules()[name]
    except KeyError:
        known = ", ".join(billing_rules())
        raise UnknownBillingRule(f"billing rule {name!r} is unknown (known: {known})") from None


def highest_price(cloud: str, bid: int | None, on_demand: int) -> int:
    """The most that an hour of a machine can cost: no price above a bid lets it live, except where there are no bids.

    >>> [highest_price(cloud, 30, 100) for cloud in ("aws", "gcp")]
    [30, 100]
    """
    if bid is None:
        return on_demand
    return bid if markets_of(cloud).takes_bids else max(bid, on_demand)
