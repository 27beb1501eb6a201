"""Where a node may run, for the resources and labels that a Ray cluster gives to its machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MARKET_LABEL = "ray.io/market-type"
"""Ray's own label: the autoscaler and KubeRay set it to `spot` or `on-demand`."""

MARK_SHARE = 0.001
"""A node's share of the resource that marks a machine: the mark tells kinds of machines apart and limits no numbers."""


@dataclass(frozen=True, slots=True)
class RayMachine:
    """A machine of the cluster, as Ray describes it."""

    resources: Mapping[str, float]
    labels: Mapping[str, str]


def placement_options(machines: Sequence[RayMachine], *, reliable: bool) -> dict[str, Any]:
    """Ray's options for a node of this kind. Without marks in the cluster, it may run anywhere.

    >>> marked = RayMachine({"CPU": 4.0, "reliable": 1.0}, {})
    >>> placement_options([marked], reliable=True)
    {'resources': {'reliable': 0.001}}
    >>> placement_options([marked], reliable=False)
    {}
    """
    mark = "reliable" if reliable else "transient"
    if any(mark in machine.resources for machine in machines):
        return {"resources": {mark: MARK_SHARE}}
    markets = {machine.labels.get(MARKET_LABEL) for machine in machines}
    if reliable and "spot" in markets:
        return {"label_selector": {MARKET_LABEL: "!spot"}}
    if not reliable and "spot" in markets:
        return {"label_selector": {MARKET_LABEL: "spot"}}
    return {}
