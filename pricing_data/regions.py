"""Region names that were probably mistyped."""

from collections.abc import Iterable

from pricing_data.known_clouds import cloud_names, markets_of
from pricing_data.market import api_region
from pricing_data.spelling import closest

_LEAST_SIMILARITY = 0.8


def known_regions(cloud: str) -> frozenset[str]:
    """The regions that this version knows; a cloud may have opened others since."""
    return markets_of(cloud).known_regions


def mistyped(region: str) -> str:
    """The known regions that an unknown one was probably meant to be, in words; empty if the name may be right.

    A name that differs in its number only is taken for a new region.
    """
    for cloud in cloud_names():
        known = known_regions(cloud)
        spelled = api_region(cloud, region)
        if spelled in known or _stem(spelled) in {_stem(name) for name in known}:
            return ""
    return similar(region, cloud_names())


def similar(region: str, clouds: Iterable[str]) -> str:
    """The known regions of these clouds with a similar name, in words; empty if there is none."""
    every = sorted(known for cloud in clouds for known in known_regions(cloud))
    return " or ".join(closest(region.lower(), every, 2, _LEAST_SIMILARITY))


def _stem(region: str) -> str:
    return region.rstrip("0123456789")
