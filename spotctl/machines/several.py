"""`SeveralClouds`: several clouds as one provider. Markets, and the ids of machines and resources, name their cloud."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from pricing_data.market import Market
from spotctl.machines.base import (
    CloudProvider,
    Invocation,
    Machine,
    MachineLink,
    MachineRequest,
    MachineSupplies,
    NotFound,
    Prepares,
    Resource,
    TakesCommands,
)
from spotctl.machines.requests import each
from spotctl.wall_clock import WallClock

if TYPE_CHECKING:
    from pricing_data.series import PriceSeries

T = TypeVar("T")


class SeveralClouds(WallClock):
    """Passes each call to the cloud that it concerns; lists combine the answers of all clouds."""

    def __init__(self, clouds: Mapping[str, CloudProvider]) -> None:
        self._clouds = clouds
        self.name = "+".join(clouds)

    def offers(self) -> tuple[Market, ...]:
        return tuple(chain.from_iterable(cloud.offers() for cloud in self._clouds.values()))

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        return self._named(market.cloud).prices(market, start, end)

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        return self._named(request.market.cloud).create(request)

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        return tuple(chain.from_iterable(cloud.list(tags) for cloud in self._clouds.values()))

    def terminate(self, ids: Sequence[str]) -> None:
        """See `CloudProvider`. All clouds are asked, even if one fails; the first failure is raised then."""
        own = _by_cloud((one, one) for one in ids)
        each([partial(self._clouds[cloud].terminate, part) for cloud, part in own if cloud in self._clouds])

    def link(self, machine: str) -> MachineLink:
        return self._of(machine).link(machine)

    def prepare(self, machine: Machine, supplies: MachineSupplies) -> None:
        cloud = self._of(machine.id)
        if isinstance(cloud, Prepares):
            cloud.prepare(machine, supplies)

    def invocation(self, machine: str, command: Sequence[str]) -> Invocation:
        cloud = self._of(machine)
        if not isinstance(cloud, TakesCommands):
            raise NotFound(f"{machine}: its cloud runs no commands with a terminal", (machine,))
        return cloud.invocation(machine, command)

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        return tuple(chain.from_iterable(cloud.resources(tags) for cloud in self._clouds.values()))

    def remove(self, resources: Sequence[Resource]) -> None:
        """See `CloudProvider`. All clouds are asked, even if one fails; the first failure is raised then."""
        own = _by_cloud((one.id, one) for one in resources)
        each([partial(self._clouds[cloud].remove, part) for cloud, part in own if cloud in self._clouds])

    def _of(self, machine: str) -> CloudProvider:
        return self._named(_cloud_of(machine))

    def _named(self, cloud: str) -> CloudProvider:
        if cloud not in self._clouds:
            raise NotFound(f"{cloud!r} is not one of {', '.join(self._clouds)}")
        return self._clouds[cloud]


def _by_cloud(named: Iterable[tuple[str, T]]) -> Iterable[tuple[str, list[T]]]:
    """What each cloud has, by the ids."""
    groups: dict[str, list[T]] = defaultdict(list)
    for id_, one in named:
        groups[_cloud_of(id_)].append(one)
    return groups.items()


def _cloud_of(id_: str) -> str:
    return id_.partition(":")[0]
