"""`VastProvider`: instances of Vast.ai, which are containers on machines of hosts, rented by bid or
on demand.

Which offers an order takes is decided when it is sent: the cheapest of its market that the bid
exceeds. A renter pays the bid. Who is outbid is stopped, not ended: such a machine is PAUSED, its
disk costs money, and it is returned.

The script that starts a machine may have 4096 characters, and a variable 256, so the start-up
script of all clouds is cut into variables, which a short script puts together. Another has the
machine's ssh host key: the launcher made it, so it knows whom it talks to. Vast.ai and the host can
read both; they can read the machine's memory as well.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bidbrain.outbid.record import HostRecord
from pricing_data.market import Market
from pricing_data.sources.base import Rejects
from pricing_data.units import DAY, MINUTE, NANOS_PER_DOLLAR, bid_usd
from spotctl.clouds.errors import Answers, ApiRecord, NotFound, UnknownRefusal, in_contract
from spotctl.clouds.labelled import Listed, Purchase
from spotctl.clouds.order_ledger import Number, OrderLabel, OrderLedger
from spotctl.clouds.provider import SAME_BID, Holdings, MachineRequest, MachineState
from spotctl.clouds.remote.agents import RemoteAgents
from spotctl.clouds.remote.containers import ContainerProvider
from spotctl.clouds.remote.prices import holdings_of
from spotctl.clouds.vast import offers
from spotctl.clouds.vast.calls import VastCalls, of_call
from spotctl.clouds.vast.cloud import CLOUD_NAME, VastSettings, address
from spotctl.clouds.vast.offers import HostOffer, folder_of, keep_snapshot
from spotctl.clouds.vast.prices import STORAGE
from spotctl.clouds.vast.states import message_of, state_of
from spotctl.home.errors import BadRequest
from spotctl.home.installation import RUN_TAG

if TYPE_CHECKING:
    from spotctl.clouds.remote.prices import PriceBook
    from spotctl.home.config import Settings

_LONGEST_LABEL, _LONGEST_VALUE, _LONGEST_ENVIRONMENT = 256, 256, 32_768
_SCRIPT, _HOST_KEY = "SPOTCTL_START_", "SPOTCTL_HOST_KEY_"
_ON_START = f"""#!/bin/sh
pieces() {{ i=0; while eval "part=\\${{$1$i-}}" && [ -n "$part" ]; do printf %s "$part"; i=$((i + 1)); done; }}
umask 022
mkdir -p /etc/ssh /opt/spotctl
key=/etc/ssh/ssh_host_ed25519_key
(umask 077; pieces {_HOST_KEY} | base64 -d >$key.new) && mv $key.new $key && ssh-keygen -y -f $key >$key.pub
env | grep -E '^(PUBLIC_IPADDR|VAST_TCP_PORT_[0-9]+)=' >>/etc/environment
pieces {_SCRIPT} | base64 -d | gzip -d >/opt/spotctl/start_up
exec sh /opt/spotctl/start_up
"""
"""Installs the host key before the start-up script has sshd read it, lets programs see where others
reach the machine, and runs the start-up script."""


class VastProvider(ContainerProvider):
    """See the module's text and `CloudProvider`."""

    name = CLOUD_NAME

    def __init__(
        self,
        calls: VastCalls,
        settings: VastSettings,
        ledger: OrderLedger,
        agents: RemoteAgents,
        prices: PriceBook,
        snapshots: Path,
    ) -> None:
        super().__init__(calls, ledger, agents, prices)
        self._calls, self._settings, self._snapshots = calls, settings, snapshots

    def on_offer(self, request: MachineRequest) -> Iterator[Purchase]:
        market = request.market
        most = self._prices.on_demand(market) if request.bid is None else request.bid
        kind = "ondemand" if request.bid is None else "bid"
        image = request.image or self._settings.image
        offered = self._search(kind, market, image, request.disk_gib, len(request.ports))
        fitting = sorted(
            (offer for offer in offered if offer.price <= most), key=attrgetter("price")
        )

        now = self.now()
        orders = self._ledger.orders(now)
        ours = [(order, placed) for order in orders for placed in order.machines]
        # A host that has failed is avoided for a day, and by the run where it was silent for good.
        avoided = {
            placed.host
            for _, placed in ours
            if (placed.failure and now - (placed.paused or now) < DAY)
            or (placed.number is not None and self.machine_id(placed.number) in request.silent)
        }
        # Many routers do not lead from one of their machines to another: machines that reach each
        # other are behind different ones.
        taken = set[str]()
        for order, placed in ours if request.ports else ():
            is_of_run = order.tags.get(RUN_TAG) == request.tags[RUN_TAG]
            if is_of_run and placed.ended is None and placed.number is not None:
                known = self.known(placed.number)
                if known is not None:
                    taken.add(offers.address_of(known[1]))

        for offer in fitting:
            if offer.machine in avoided:
                continue
            if request.ports:
                if offer.address in taken:
                    continue
                taken.add(offer.address)
            yield offer.machine, partial(self._buy, request, offer.ask)

    def _buy(self, request: MachineRequest, ask: int, label: OrderLabel) -> int:
        """Orders an instance. A bid that is too low is refused, rather than kept as an instance
        that does not run.
        """
        private, _ = self._agents.host_key(label.machine)
        start_up = self._agents.start_up(request, CLOUD_NAME)
        packed = gzip.compress(start_up.encode(), 9, mtime=0)
        variables = _pieces(_SCRIPT, packed) | _pieces(_HOST_KEY, private)
        for port in request.ports:
            # Docker's option, in the place of a variable, asks for a port.
            variables[f"-p {port}:{port}"] = "1"

        length = sum(len(name) + len(value) for name, value in variables.items())
        if length > _LONGEST_ENVIRONMENT:
            problem = (
                f"the start-up script of a machine would take {length} characters, but the limit "
                f"is {_LONGEST_ENVIRONMENT}: make the job's setup or environment shorter, for "
                "example by a script in the job's folder"
            )
            raise BadRequest(problem)

        order: dict[str, Any] = {
            "image": request.image or self._settings.image,
            "label": label.text(_LONGEST_LABEL),
            "disk": float(request.disk_gib or self._settings.disk_gib),
            "runtype": "ssh_direc ssh_proxy",
            "target_state": "running",
            "cancel_unavail": True,
            "env": variables,
            "onstart": _ON_START,
        }

        # A price that is missing or null would buy on demand.
        if label.bid is not None:
            order["price"] = label.bid / NANOS_PER_DOLLAR
        return self._calls.order(ask, order)

    def read_back(self, number: Number, bid: int | None) -> None:
        """See `LabelledProvider`. Without a price, Vast.ai sells on demand."""
        row = self._calls.instance(number)
        if bid is not None and row is not None and row.get("is_bid") is not True:
            machine = self.machine_id(number)
            self.terminate([machine])
            problem = f"{machine}: ordered with a bid, but sold on demand, so it was destroyed"
            raise UnknownRefusal(problem, "no bid")

    def _search(
        self, kind: str, market: Market, image: str, disk_gib: int | None, ports: int = 0
    ) -> list[HostOffer]:
        """The offers of a market that can run an image, with room for a disk, and with ports that
        others reach."""
        disk = disk_gib or self._settings.disk_gib
        filters = offers.wanted(self._settings, image, ports)
        count = int(market.instance_type.partition("x")[0])
        filters["num_gpus"] = {"eq": count}
        filters["disk_space"] = {"gte": disk}

        with in_contract(of_call):
            rows = self._calls.search(kind, filters, disk)
        readable = Rejects("offers").good(offers.offer_of, rows)
        return [offer for offer in readable if offer.market == market and not offer.unfit]

    @property
    def look_at_hosts_every(self) -> int | None:
        return round(self._settings.look_minutes * MINUTE) or None

    def hosts(self, market: Market, *, disk_gib: int | None) -> HostRecord:
        """See `CloudProvider`. The snapshot is kept with those of fetches; it has no prices on
        demand.
        """
        on_offer = self._search("bid", market, self._settings.image, disk_gib)
        now = self.now()
        keep_snapshot(self._snapshots, now, on_offer)
        return HostRecord.of([(now, offer.machine, offer.price, 0) for offer in on_offer])

    def raise_bid(self, machine: str, bid: int) -> int:
        """See `CloudProvider`. It is read back: what bids more than that is destroyed."""
        if (number := self.number_of(machine)) is None:
            raise NotFound(f"{machine}: never existed", (machine,))

        self._calls.change_bid(number, bid / NANOS_PER_DOLLAR)
        if (row := self._calls.instance(number)) is None:
            raise NotFound(f"{machine}: gone", (machine,))

        actual = _bid_of(row) or bid
        if actual > bid * (1 + SAME_BID):
            self.terminate([machine])
            wrong = (
                f"{machine}: a bid of {bid_usd(bid)} was taken as one of {bid_usd(actual)}, so it "
                "was destroyed"
            )
            raise UnknownRefusal(wrong, "other bid")

        return bid if actual > bid * (1 - SAME_BID) else actual

    def shown(self, row: ApiRecord) -> Listed | None:
        if (label := OrderLabel.parse(row.get("label"))) is None:
            return None

        seconds, (state, failure) = row.get("start_date"), state_of(row)
        started = round(seconds * 1e6) if isinstance(seconds, int | float) else None
        # The address and port of its host, or else those of Vast.ai's proxy.
        mapped = (row.get("ports") or {}).get("22/tcp") or ()
        ssh = None
        if mapped and row.get("public_ipaddr"):
            ssh = str(row["public_ipaddr"]).strip(), int(mapped[0]["HostPort"])
        elif row.get("ssh_host") and row.get("ssh_port"):
            ssh = str(row["ssh_host"]), int(row["ssh_port"])
        # Dollars for a GB.
        costs = [float(row.get(f"inet_{way}_cost") or 0.0) for way in ("down", "up")]
        down, up = (round(cost * NANOS_PER_DOLLAR * 2**30 / 1e9) for cost in costs)
        sign = message_of(row)
        return Listed(label, state, started, _bid_of(row), failure, ssh, sign, (down, up))

    # Its image has no size of its own there.
    def holdings(
        self,
        market: Market,
        *,
        spot: bool,
        disk_gib: int | None,
        image: str | None = None,  # noqa: ARG002
    ) -> Holdings:
        gib = disk_gib or self._settings.disk_gib
        return holdings_of(market, self._prices.lists(), STORAGE, gib, spot=spot, public_ip=False)

    def check_order(self, request: MachineRequest) -> str:
        """See `CloudProvider`. Vast.ai checks no order, but says which hosts take it."""
        if next(self.on_offer(request), None) is None:
            raise NotFound(f"{request.market}: no host takes this order now")
        return request.image or self._settings.image

    def simulate_eviction(self, machine: str) -> None:
        """See `CloudProvider`. Who is stopped looks like who was outbid, and is not warned."""
        if (number := self.number_of(machine)) is None:
            raise NotFound(f"{machine}: never existed", (machine,))
        self._calls.stop(number)


def _pieces(name: str, content: bytes) -> dict[str, str]:
    text = base64.b64encode(content).decode()
    pieces = (text[at : at + _LONGEST_VALUE] for at in range(0, len(text), _LONGEST_VALUE))
    return {f"{name}{number}": piece for number, piece in enumerate(pieces)}


def _bid_of(row: Mapping[str, Any]) -> int | None:
    """The bid of an instance that runs, which is its price; None if it is paused, or was rented on
    demand.
    """
    costs = row.get("dph_base")
    if (
        row.get("is_bid") is not True
        or state_of(row)[0] is MachineState.PAUSED
        or not isinstance(costs, int | float)
    ):
        return None
    return round(costs * NANOS_PER_DOLLAR)


def provider(
    settings: Settings,
    # The account's instances are listed in all countries at once.
    regions: tuple[str, ...],  # noqa: ARG001
    agents: RemoteAgents,
    prices: PriceBook,
    answers: Answers,  # noqa: ARG001 - it checks no orders
) -> VastProvider:
    """See `ProviderPart`."""
    calls = VastCalls(address(settings.text("vast_url")))
    ledger = OrderLedger(settings.home / CLOUD_NAME / "orders")
    own = settings.table(CLOUD_NAME, VastSettings)
    return VastProvider(calls, own, ledger, agents, prices, folder_of(settings))
