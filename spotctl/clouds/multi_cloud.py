"""`SeveralClouds`: several clouds as one provider. Markets, and the ids of machines and resources, name their cloud."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from pricing_data.market import Market
from spotctl.clouds.api_calls import each
from spotctl.clouds.base import CloudProvider, Machine, MachineLink, MachineRequest, Resource
from spotctl.clouds.capabilities import (
    AdmitsSsh,
    BillsHoldings,
    Closes,
    Holdings,
    Invocation,
    MachineSupplies,
    Prepares,
    TakesCommands,
)
from spotctl.clouds.errors import NotFound, NotPermitted, PartlyListed, ProviderError
from spotctl.home.wall_clock import WallClock

if TYPE_CHECKING:
    from pricing_data.series import PriceSeries


T = TypeVar("T")


class SeveralClouds(WallClock):
    """Passes each call to the cloud that it concerns; lists combine the answers of all clouds that answer."""

    def __init__(self, clouds: Mapping[str, CloudProvider]) -> None:
        self._clouds = clouds
        self._refusing: dict[str, set[str]] = {}
        self.name = "+".join(clouds)

    def offers(self) -> tuple[Market, ...]:
        return tuple(chain.from_iterable(cloud.offers() for cloud in self._clouds.values()))

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        return self._named(market.cloud).prices(market, start, end)

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        """See `CloudProvider`. NotPermitted: every cloud refuses; if some do, the run continues with the others."""
        cloud = self._named(request.market.cloud)
        return self._permitted("create", request.market.cloud, partial(cloud.create, request))

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        return tuple(self._listed({name: partial(cloud.list, tags) for name, cloud in self._clouds.items()}))

    def terminate(self, ids: Sequence[str]) -> None:
        """See `CloudProvider`. Asks all clouds, even if one fails; then raises the first failure."""
        own = _by_cloud((id_, id_) for id_ in ids)
        calls = {cloud: partial(self._clouds[cloud].terminate, part) for cloud, part in own if cloud in self._clouds}
        each([partial(self._permitted, "terminate", cloud, call) for cloud, call in calls.items()])

    def link(self, machine: str) -> MachineLink:
        return self._of(machine).link(machine)

    def prepare(self, machine: Machine, supplies: MachineSupplies) -> None:
        cloud = self._of(machine.id)
        if isinstance(cloud, Prepares):
            cloud.prepare(machine, supplies)

    def invocation(self, machine: str, command: Sequence[str]) -> Invocation:
        cloud = self._of(machine)
        if not isinstance(cloud, TakesCommands):
            raise NotFound(f"{machine}: its cloud cannot run commands with a terminal", (machine,))
        return cloud.invocation(machine, command)

    def admit_ssh(self, tags: Mapping[str, str], ssh_from: Sequence[str]) -> tuple[str, ...]:
        """See `AdmitsSsh`."""
        clouds = [cloud for cloud in self._clouds.values() if isinstance(cloud, AdmitsSsh)]
        return tuple(chain.from_iterable(cloud.admit_ssh(tags, ssh_from) for cloud in clouds))

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        return tuple(self._listed({name: partial(cloud.resources, tags) for name, cloud in self._clouds.items()}))

    def remove(self, resources: Sequence[Resource]) -> None:
        """See `CloudProvider`. Asks all clouds, even if one fails; then raises the first failure."""
        own = _by_cloud((resource.id, resource) for resource in resources)
        each([partial(self._clouds[cloud].remove, part) for cloud, part in own if cloud in self._clouds])

    def holdings(self, market: Market, *, spot: bool, disk_gib: int | None) -> Holdings:
        """See `BillsHoldings`."""
        cloud = self._named(market.cloud)
        return cloud.holdings(market, spot=spot, disk_gib=disk_gib) if isinstance(cloud, BillsHoldings) else Holdings()

    def close(self) -> None:
        """See `Closes`."""
        for cloud in self._clouds.values():
            if isinstance(cloud, Closes):
                cloud.close()

    def _listed(self, calls: Mapping[str, Callable[[], Sequence[T]]]) -> Sequence[T]:
        """The lists of all clouds, joined. PartlyListed: some did not answer, or only in part."""
        items, failures, parts = list[T](), list[ProviderError](), list[str]()
        for cloud, call in calls.items():
            try:
                items += call()
            except PartlyListed as error:
                items += error.listed
                failures.append(error)
                parts += error.parts
            except ProviderError as error:
                failures.append(error)
                parts.append(f"{cloud}:")
        if not failures:
            return items
        if parts == [f"{cloud}:" for cloud in self._clouds]:
            raise failures[0]
        raise PartlyListed(failures[0], items, parts) from failures[0]

    def _permitted(self, kind: str, cloud: str, call: Callable[[], T]) -> T:
        """The answer of a cloud to a kind of call. NotPermitted: no cloud allows it."""
        refusing = self._refusing.setdefault(kind, set())
        try:
            answer = call()
        except NotPermitted as error:
            refusing.add(cloud)
            if refusing >= self._clouds.keys():
                raise
            raise ProviderError(f"{error}; the run continues with the other clouds") from error
        refusing.discard(cloud)
        return answer

    def _of(self, machine: str) -> CloudProvider:
        return self._named(_cloud_of(machine))

    def _named(self, cloud: str) -> CloudProvider:
        if cloud not in self._clouds:
            raise NotFound(f"{cloud!r} is not one of {', '.join(self._clouds)}")
        return self._clouds[cloud]


def _by_cloud(named: Iterable[tuple[str, T]]) -> Iterable[tuple[str, list[T]]]:
    """The items of each cloud; the ids name the clouds."""
    groups: dict[str, list[T]] = defaultdict(list)
    for id_, item in named:
        groups[_cloud_of(id_)].append(item)
    return groups.items()


def _cloud_of(id_: str) -> str:
    return id_.partition(":")[0]
