"""Placement groups of a simulated account, which moto lacks.

Codes are those of the EC2 API Reference (Error codes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.models.instance_types import INSTANCE_TYPES

from tests.cloud.aws_books import Lease
from tests.cloud.aws_orders import Order, refuse

_STRATEGIES = ("cluster", "partition", "spread")


@dataclass
class PlacementGroup:
    """A group, and the machines that were bought in it."""

    name: str
    strategy: str
    tags: Mapping[str, str]
    members: list[Lease] = field(default_factory=list)

    @property
    def present(self) -> list[Lease]:
        return [lease for lease in self.members if lease.instance.state != "terminated"]


class PlacementGroups:
    """The groups of an account by region and name."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], PlacementGroup] = {}

    def all(self) -> Iterator[PlacementGroup]:
        yield from self._groups.values()

    def create(self, response: Any) -> ActionResult:  # noqa: ANN401  # moto's
        name, strategy = response._get_param("GroupName"), response._get_param("Strategy")
        tags = response._parse_tag_specification()
        if strategy not in _STRATEGIES or set(tags) - {"placement-group"}:
            raise refuse(
                "InvalidParameterValue", f"Value ({strategy}) for parameter strategy is invalid."
            )
        response.error_on_dryrun()
        key = response.region, name
        if key in self._groups:
            raise refuse(
                "InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists."
            )
        self._groups[key] = PlacementGroup(name, strategy, tags.get("placement-group", {}))
        response.ec2_backend.tags[name] = dict(self._groups[key].tags)
        return ActionResult({"PlacementGroup": _row(self._groups[key])})

    def describe(self, response: Any) -> ActionResult:  # noqa: ANN401
        filters = response._filters_from_querystring()
        groups = [one for (region, _), one in self._groups.items() if region == response.region]
        return ActionResult(
            {"PlacementGroups": [_row(one) for one in groups if _passes(one, filters)]}
        )

    def delete(self, response: Any) -> ActionResult:  # noqa: ANN401
        name = response._get_param("GroupName")
        group = self._known(response.region, name)
        if group.present:
            raise refuse(
                "InvalidPlacementGroup.InUse",
                f"The placement group {name} is in use and may not be deleted.",
            )
        del self._groups[response.region, name]
        return EmptyResult()

    def check(self, region: str, order: Order) -> None:
        """Refuses an order for machines in a group as EC2 does."""
        if not order.placement_group:
            return
        group = self._known(region, order.placement_group)
        supported = (
            INSTANCE_TYPES[order.type]
            .get("PlacementGroupInfo", {})
            .get("SupportedStrategies", _STRATEGIES)
        )
        if group.strategy not in supported:
            raise refuse(
                "InvalidParameterCombination",
                f"{group.strategy.title()} placement groups are not supported by the "
                f"'{order.type}' instance type.",
            )
        if group.strategy == "cluster" and {lease.zone for lease in group.present} - {order.zone}:
            raise refuse(
                "InvalidParameterValue",
                f"Placement Group '{group.name}' is in another Availability Zone.",
            )

    def join(self, region: str, name: str, leases: list[Lease]) -> None:
        if name:
            self._known(region, name).members += leases

    def _known(self, region: str, name: str) -> PlacementGroup:
        if (group := self._groups.get((region, name))) is None:
            raise refuse(
                "InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown."
            )
        return group


def _row(group: PlacementGroup) -> dict[str, Any]:
    tags = [{"Key": name, "Value": value} for name, value in group.tags.items()]
    return {"GroupName": group.name, "State": "available", "Strategy": group.strategy, "Tags": tags}


def _passes(group: PlacementGroup, filters: Mapping[str, list[str]]) -> bool:
    known: dict[str, list[str]] = {
        "state": ["available"],
        "group-name": [group.name],
        "tag-key": [*group.tags],
    }
    known |= {f"tag:{name}": [value] for name, value in group.tags.items()}
    return all(set(known.get(name, ())) & set(wanted) for name, wanted in filters.items())
