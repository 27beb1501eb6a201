"""`VastProvider`: instances of Vast.ai, which are containers on machines of hosts, rented by bid or on demand.

Which offers an order takes is decided when it is sent: the cheapest of its market that the bid exceeds. A renter pays
the bid. Who is outbid is stopped, not ended: such a machine is PAUSED, its disk costs money, and it is returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from bidbrain.outbid.record import HostRecord
from pricing_data.market import LINUX, Market
from pricing_data.sources.base import Rejects
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, bid_usd
from spotctl.clouds.errors import Answers, NoCapacity, NotFound, Unanswered, UnknownRefusal, each, in_contract
from spotctl.clouds.provider import Holdings, Machine, MachineRequest, MachineState, Resource
from spotctl.clouds.remote.agents import RemoteAgents, RentingProvider
from spotctl.clouds.remote.machine import RemoteMachine
from spotctl.clouds.remote.prices import holdings_of
from spotctl.clouds.vast import offers, orders
from spotctl.clouds.vast.calls import VastCalls, VastRow, of_call
from spotctl.clouds.vast.cloud import CLOUD_NAME, VastSettings, address
from spotctl.clouds.vast.hosts import folder_of, keep_snapshot
from spotctl.clouds.vast.offers import HostOffer
from spotctl.clouds.vast.orders import VastLabel
from spotctl.clouds.vast.placed import ListTimes, Order, Placed, VastOrders
from spotctl.clouds.vast.prices import STORAGE
from spotctl.home.errors import BadRequest, SpotctlError

if TYPE_CHECKING:
    from pricing_data.series import PriceSeries
    from spotctl.clouds.remote.prices import PriceBook
    from spotctl.home.config import Settings


_SAME_BID = 1e-3
"""Vast.ai may round bids."""


class VastProvider(RentingProvider):
    """See the module's text and `CloudProvider`."""

    name = CLOUD_NAME

    def __init__(
        self,
        calls: VastCalls,
        settings: VastSettings,
        ledger: VastOrders,
        agents: RemoteAgents,
        prices: PriceBook,
        snapshots: Path,
        times: ListTimes | None = None,
    ) -> None:
        super().__init__(agents, prices)
        self._calls, self._settings, self._ledger = calls, settings, ledger
        self._snapshots, self._times = snapshots, times or ListTimes()
        # From the last list, so that a link to a machine needs no call.
        self._rows: dict[int, tuple[VastLabel, VastRow]] = {}

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        """See `CloudProvider`. No history is published: the first price that was fetched stands for the hour before."""
        return self._prices.prices(market, start, end, assumed=HOUR)

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        _check(request)
        if request.market not in self.offers():
            raise NotFound(f"{request.market}: no price is known; fetch one (spotctl prices fetch --cloud vast)")
        with self._ledger.creating(request) as order:
            if not order.closed:
                self._fill(order, request)
        return tuple(machine for key, machine in self._machines() if key == order.key)

    def _fill(self, order: Order, request: MachineRequest) -> None:
        """Asks for the machines that an order lacks. NoCapacity: there is none."""
        chosen: Iterator[HostOffer] | None = None
        for index in range(request.count):
            placed = order.machine(index)
            if placed is not None and placed.number is None:
                placed = self._asked_before(order, placed)
            if placed is None:
                chosen = self._offers_for(request) if chosen is None else chosen
                placed = self._place(order, index, request, chosen)
            if placed is None:
                break
            self._read_back(order, placed)
        filled = self._ledger.change(order.key, _closed)
        if not filled.machines:
            bid = "on demand" if request.bid is None else f"for ${request.bid / NANOS_PER_DOLLAR:.4f} an hour"
            raise NoCapacity(f"{request.market}: no host has a machine {bid} now")

    def _asked_before(self, order: Order, placed: Placed) -> Placed | None:
        """A machine that was asked for without an answer; None if it does not exist. Unanswered: it is too early."""
        for label, row in orders.ours(self._calls.instances()):
            if (label.order, label.index) == (order.key, placed.index):
                return self._numbered(order, placed.index, int(row["id"]))
        # The answer can have been lost long after the note, which comes before all waiting of the call.
        now = self.now()
        since = now if placed.sought is None else placed.sought
        self._ledger.change_machine(order.key, placed.index, lambda placed: replace(placed, sought=since))
        if now - since < self._times.listed_within:
            raise Unanswered(f"{order.market}: an order had no answer, and the list may not show it yet; try again")
        self._ledger.change(order.key, partial(_without, placed.index))
        return None

    def _place(self, order: Order, index: int, request: MachineRequest, chosen: Iterator[HostOffer]) -> Placed | None:
        """Takes the first of these offers that is still there; None if none is."""
        label = order.label(index)
        private, _ = self._agents.host_key(label.machine)
        start_up = self._agents.start_up(request, CLOUD_NAME)
        body = orders.body(request, label, self._settings, start_up, private)
        for offer in chosen:
            self._ledger.change(order.key, partial(_having, Placed(index, self.now(), host=offer.machine)))
            try:
                number = self._calls.order(offer.ask, body)
            except Unanswered:
                raise
            except SpotctlError as error:
                # It was refused, so nothing was made.
                self._ledger.change(order.key, partial(_without, index))
                if not isinstance(error, NoCapacity):
                    raise
            else:
                return self._numbered(order, index, number)
        return None

    def _numbered(self, order: Order, index: int, number: int) -> Placed:
        now = self.now()
        return self._ledger.change_machine(order.key, index, lambda placed: replace(placed, number=number, sought=now))

    def _read_back(self, order: Order, placed: Placed) -> None:
        """Destroys an instance that was sold on demand although a bid was sent."""
        if placed.is_checked or placed.number is None:
            return
        row = self._calls.instance(placed.number)
        if order.bid is not None and row is not None and row.get("is_bid") is not True:
            machine = orders.machine_id(placed.number)
            self.terminate([machine])
            raise UnknownRefusal(f"{machine}: ordered with a bid, but sold on demand, so it was destroyed", "no bid")
        self._ledger.change_machine(order.key, placed.index, lambda placed: replace(placed, is_checked=True))

    def _offers_for(self, request: MachineRequest) -> Iterator[HostOffer]:
        """The offers of a market that a request may take, the cheapest first."""
        market = request.market
        most = self._prices.on_demand(market) if request.bid is None else request.bid
        chosen = self._on_offer("ondemand" if request.bid is None else "bid", market, request.disk_gib)
        return iter(sorted((offer for offer in chosen if offer.price <= most), key=attrgetter("price")))

    def _on_offer(self, kind: str, market: Market, disk_gib: int | None) -> list[HostOffer]:
        """The offers of a market with room for a disk."""
        disk, count = disk_gib or self._settings.disk_gib, int(market.instance_type.partition("x")[0])
        filters = {**offers.wanted(self._settings), "num_gpus": {"eq": count}, "disk_space": {"gte": disk}}
        with in_contract(of_call):
            rows = self._calls.search(kind, filters, disk)
        return [offer for offer in Rejects("offers").good(offers.offer_of, rows) if offer.market == market]

    @property
    def look_at_hosts_every(self) -> int | None:
        return round(self._settings.look_minutes * MINUTE) or None

    def hosts(self, market: Market, *, disk_gib: int | None) -> HostRecord:
        """See `CloudProvider`. The snapshot is kept with those of fetches; it has no prices on demand."""
        on_offer, now = self._on_offer("bid", market, disk_gib), self.now()
        keep_snapshot(self._snapshots, now, on_offer)
        return HostRecord.of([(now, offer.machine, offer.price, 0) for offer in on_offer])

    def raise_bid(self, machine: str, bid: int) -> int:
        """See `CloudProvider`. It is read back: what bids more than that is destroyed."""
        if (number := orders.contract_of(machine)) is None:
            raise NotFound(f"{machine}: never existed", (machine,))
        self._calls.change_bid(number, bid / NANOS_PER_DOLLAR)
        if (row := self._calls.instance(number)) is None:
            raise NotFound(f"{machine}: gone", (machine,))
        actual = orders.bid_of(row) or bid
        if actual > bid * (1 + _SAME_BID):
            self.terminate([machine])
            wrong = f"{machine}: a bid of {bid_usd(bid)} was taken as one of {bid_usd(actual)}, so it was destroyed"
            raise UnknownRefusal(wrong, "other bid")
        return bid if actual > bid * (1 - _SAME_BID) else actual

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """See `CloudProvider`. What is missing from Vast.ai's list is known from the orders of this home."""
        return tuple(machine for _, machine in self._machines() if tags.items() <= machine.tags.items())

    def _machines(self) -> Sequence[tuple[str, Machine]]:
        """All machines with the keys of their orders."""
        self._rows = {int(row["id"]): (label, row) for label, row in orders.ours(self._calls.instances())}
        now, machines = self.now(), dict[int, tuple[str, Machine]]()
        for order in self._ledger.orders(now):
            for placed in order.machines:
                if placed.number is not None:
                    machines[placed.number] = order.key, self._ordered(order, placed, placed.number, now)
        for number, (label, row) in self._rows.items():
            if number not in machines:
                started = orders.started_at(row) or now
                machines[number] = label.order, _machine(label, number, orders.state_of(row), started)
        self._agents.forget([machine.id for _, machine in machines.values() if machine.state is MachineState.GONE])
        return sorted(machines.values(), key=lambda own: (own[1].started, own[1].id))

    def _ordered(self, order: Order, placed: Placed, number: int, now: int) -> Machine:
        """A machine of an order; what the list says of it is noted there."""
        _, row = self._rows.get(number, (None, None))
        if row is None:
            change = partial(Placed.unlisted, now=now, times=self._times)
        else:
            state = orders.state_of(row)
            change = partial(Placed.listed, now=now, is_paused=state is MachineState.PAUSED)
        if change(placed) != placed:
            placed = self._ledger.change_machine(order.key, placed.index, change)
        if row is None:
            state = MachineState.STARTING if placed.missing is None else MachineState.LEAVING
            state = state if placed.ended is None else MachineState.GONE
        elif placed.ended is not None:
            state = MachineState.LEAVING
        machine = _machine(order.label(placed.index), number, state, placed.asked, placed)
        bid = None if row is None else orders.bid_of(row)
        return machine if bid is None else replace(machine, bid=bid)

    def terminate(self, ids: Sequence[str]) -> None:
        """See `CloudProvider`. Tries all, even if one fails; then raises the first failure."""
        numbers = [number for machine in ids if (number := orders.contract_of(machine)) is not None]
        each(partial(self._terminate, number) for number in dict.fromkeys(numbers))

    def _terminate(self, number: int) -> None:
        """Notes first that the machine is to end, so that who repeats the call knows who has ended it."""
        own = self._ledger.order_with(number, self.now())
        if own is None:
            self._calls.destroy(number)
            return
        order, before = own
        self._ledger.change_machine(order.key, before.index, lambda placed: replace(placed, returning=True))
        by_itself = not self._calls.destroy(number) and not before.returning
        change = partial(Placed.over, at=self.now(), by_itself=by_itself)
        self._ledger.change_machine(order.key, before.index, change)
        self._rows.pop(number, None)

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        machines = (machine for machine in self.list(tags) if machine.state is not MachineState.GONE)
        return tuple(Resource("machine", machine.id, machine.tags, machine.state.value) for machine in machines)

    def remove(self, resources: Sequence[Resource]) -> None:
        self.terminate([resource.id for resource in resources])

    def holdings(self, market: Market, *, spot: bool, disk_gib: int | None) -> Holdings:
        gib = disk_gib or self._settings.disk_gib
        return holdings_of(market, self._prices.lists(), STORAGE, gib, spot=spot, public_ip=False)

    def remote(self, machine: str) -> RemoteMachine:
        number = orders.contract_of(machine)
        label, row = self._known(number) if number is not None else (None, None)
        if number is None or label is None or row is None:
            raise NotFound(f"{machine}: gone, or never existed", (machine,))
        if orders.state_of(row) is MachineState.PAUSED:
            raise Unanswered(f"{machine}: paused, because it was outbid or rented on demand")
        if (at := orders.ssh_of(row)) is None:
            raise Unanswered(f"{machine}: it has no address yet; try again")
        _, public = self._agents.host_key(label.machine)
        shown = f"spotctl: host key {public}\n"
        return RemoteMachine(machine, label.index, *at, lambda: shown, lambda: self._calls.instance(number) is None)

    def _known(self, number: int) -> tuple[VastLabel, VastRow] | tuple[None, None]:
        """An instance of ours as the last list showed it, or as it is now; None if it is gone."""
        if number not in self._rows:
            row = self._calls.instance(number)
            label = None if row is None else VastLabel.parse(row.get("label"))
            if row is None or label is None:
                return None, None
            self._rows[number] = label, row
        return self._rows[number]

    def close(self) -> None:
        super().close()
        self._calls.close()


def _check(request: MachineRequest) -> None:
    """Refuses what Vast.ai does not have."""
    if request.market.cloud != CLOUD_NAME or request.market.os != LINUX:
        raise NotFound(f"{request.market}: not a market of Linux machines on Vast.ai")
    asked = {
        "an identity": request.identity,
        "a network": request.network,
        "a reservation": request.reservation,
        "containers of their own": request.containers,
        "a place close together": request.close,
    }
    if given := [what for what, value in asked.items() if value]:
        raise BadRequest(f"{request.market}: machines of Vast.ai are containers, and have not {given[0]}; leave it out")


def _machine(label: VastLabel, number: int, state: MachineState, started: int, placed: Placed | None = None) -> Machine:
    ended = reason = None
    if placed is not None and state is MachineState.PAUSED:
        ended = placed.paused
    elif placed is not None and state is MachineState.GONE:
        ended, reason = placed.ended, placed.reason
    return Machine(
        orders.machine_id(number),
        label.market,
        label.bid,
        state,
        started,
        label.tags,
        ended=ended,
        end_reason=reason,
        host=None if placed is None else placed.host,
    )


def _having(machine: Placed, order: Order | None) -> Order:
    assert order is not None
    return order.having(machine)


def _without(index: int, order: Order | None) -> Order:
    assert order is not None
    return order.without(index)


def _closed(order: Order | None) -> Order:
    """No more machines are asked for; an order without any may be repeated."""
    assert order is not None
    return replace(order, closed=bool(order.machines))


def provider(
    settings: Settings,
    regions: tuple[str, ...],  # noqa: ARG001 - the account's instances are listed in all countries at once
    agents: RemoteAgents,
    prices: PriceBook,
    answers: Answers,  # noqa: ARG001 - it checks no orders
) -> VastProvider:
    """See `ProviderPart`."""
    calls = VastCalls(address(settings.text("vast_url")))
    ledger = VastOrders(settings.home / CLOUD_NAME / "orders")
    own = settings.table(CLOUD_NAME, VastSettings)
    return VastProvider(calls, own, ledger, agents, prices, folder_of(settings))
