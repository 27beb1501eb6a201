"""`ContainerProvider`: the base of providers that rent containers as their cloud's API lists them.

A cloud has its calls (`ContainerCalls`), says what a row of its list means, and which purchases an
order may make. The machine's ssh host key comes with the order: the launcher made it, so it knows
whom it talks to.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from pricing_data.market import LINUX, Market
from pricing_data.units import HOUR
from spotctl.clouds.errors import ApiRecord, NotFound, Unanswered
from spotctl.clouds.labelled import LabelledProvider, Listed
from spotctl.clouds.order_ledger import Number, OrderLedger
from spotctl.clouds.provider import Holdings, Machine, MachineRequest, MachineState
from spotctl.clouds.remote.agents import RemoteAgents, RentingProvider
from spotctl.clouds.remote.connections import RemoteMachine
from spotctl.clouds.remote.prices import holdings_of
from spotctl.home.cloud import cloud_of
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from spotctl.clouds.remote.prices import PriceBook


class ContainerCalls(Protocol):
    """The calls to the API at `url` that every cloud of containers has. They raise errors of the
    provider contract.
    """

    url: str

    def instances(self) -> Sequence[ApiRecord]:
        """All instances of the account, each with its number as `id`."""
        ...

    def instance(self, number: Number) -> ApiRecord | None:
        """An instance; None if there is none."""
        ...

    def destroy(self, number: Number) -> bool:
        """Ends an instance and its bill; False if there is none."""
        ...

    def close(self) -> None:
        """Ends the connection."""
        ...


class ContainerProvider(LabelledProvider, RentingProvider):
    """See the module's text and `CloudProvider`. `disks` is the kind of disk in the list prices, and
    `unsold` says that there is nothing on offer for an order. Jobs that say nothing else have the
    `usual` image and GiB of disk."""

    # No history is published: the first price that was fetched stands for the hour before.
    assumed = HOUR
    disks: str
    unsold: str

    def __init__(
        self,
        calls: ContainerCalls,
        usual: tuple[str, int],
        ledger: OrderLedger,
        agents: RemoteAgents,
        prices: PriceBook,
    ) -> None:
        super().__init__(agents, prices)
        self._cloud, self._usual, self._ledger = calls, usual, ledger

        # From the last list, so that a link to a machine needs no call.
        self._seen: dict[Number, tuple[Listed, ApiRecord]] = {}

    @abstractmethod
    def shown(self, row: ApiRecord) -> Listed | None:
        """The meaning of a row of the list; None if it is not one of ours."""

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        """See `LabelledProvider`; refuses what containers do not have."""
        title = cloud_of(self.name).words.title
        if request.market.cloud != self.name or request.market.os != LINUX:
            raise NotFound(f"{request.market}: not a market of Linux machines on {title}")

        asked = {
            "an identity": request.identity,
            "a network": request.network,
            "a reservation": request.reservation,
            "containers of their own": request.containers,
            "a place close together": request.close,
        }

        if given := [what for what, value in asked.items() if value]:
            kind = f"machines of {title} are containers"
            raise BadRequest(f"{request.market}: {kind}, and have not {given[0]}; leave it out")
        return super().create(request)

    # Its image has no size of its own there.
    def holdings(
        self,
        market: Market,
        *,
        spot: bool,
        disk_gib: int | None,
        image: str | None = None,  # noqa: ARG002
    ) -> Holdings:
        gib = disk_gib or self._usual[1]
        return holdings_of(
            market, self._prices.lists(), self.disks, gib, spot=spot, public_ip=False
        )

    def check_order(self, request: MachineRequest) -> str:
        """See `CloudProvider`. These clouds check no order, but say what is on offer."""
        if next(iter(self.on_offer(request)), None) is None:
            raise NotFound(f"{request.market}: {self.unsold}")
        return request.image or self._usual[0]

    def instances(self) -> Mapping[Number, Listed]:
        self._seen = {}
        for row in self._cloud.instances():
            if (own := self.shown(row)) is not None:
                self._seen[row["id"]] = own, row
        return {number: own for number, (own, _) in self._seen.items()}

    def _machines(self) -> Sequence[tuple[str, Machine]]:
        machines = super()._machines()
        self._agents.forget(
            [machine.id for _, machine in machines if machine.state is MachineState.GONE]
        )
        return machines

    def known(self, number: Number) -> tuple[Listed, ApiRecord] | None:
        """An instance of ours as the last list showed it, or as it is now; None if it is gone."""
        if number not in self._seen:
            row = self._cloud.instance(number)
            own = None if row is None else self.shown(row)
            if row is None or own is None:
                return None
            self._seen[number] = own, row
        return self._seen[number]

    def destroy(self, number: Number) -> bool:
        self._seen.pop(number, None)
        return self._cloud.destroy(number)

    def remote(self, machine: str) -> RemoteMachine:
        number = self.number_of(machine)
        known = None if number is None else self.known(number)
        if number is None or known is None:
            raise NotFound(f"{machine}: gone, or never existed", (machine,))
        own, _ = known
        if own.state is MachineState.PAUSED:
            why = own.failure or "paused, because it was outbid or rented on demand"
            raise Unanswered(f"{machine}: {why}")
        if own.ssh is None:
            raise Unanswered(f"{machine}: it has no address yet; try again")

        _, public = self._agents.host_key(own.label.machine)
        shown = f"spotctl: host key {public}\n"
        return RemoteMachine(
            machine,
            own.label.index,
            *own.ssh,
            lambda: shown,
            lambda: self._cloud.instance(number) is None,
        )

    @property
    def endpoint(self) -> str:
        return urlsplit(self._cloud.url).hostname or ""

    def seen_by_cloud(self, machine: str) -> str:
        """See `RentingProvider`, as the last list had it."""
        own, _ = self._seen.get(self.number_of(machine) or "", (None, {}))
        return "" if own is None else own.sign

    def close(self) -> None:
        super().close()
        self._cloud.close()
