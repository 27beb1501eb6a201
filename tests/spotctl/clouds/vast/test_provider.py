"""Orders on Vast.ai: what is sent, that nothing is bought twice, and that nothing is bought on
demand by mistake.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spotctl.clouds.errors import NoCapacity, NotFound, QuotaReached, UnknownRefusal
from spotctl.clouds.provider import MachineState
from spotctl.clouds.vast.provider import VastProvider
from spotctl.home.installation import RUN_TAG
from tests.servers.loopback import Fault, Reply
from tests.servers.vast_market import Contract, Host
from tests.spotctl.clouds.vast.world import BID, ONE, RUN, World, order


def sent(made: World) -> list[dict[str, Any]]:
    """The bodies of the orders."""
    return [request.json() for request in made.server.requests if "/asks/" in request.path]


def alive(made: World) -> list[Contract]:
    return made.market.alive()


def test_an_order_goes_to_the_hosts_that_take_the_lowest_bids_and_pays_its_bid(
    made: World, provider: VastProvider
) -> None:
    made.market.hosts[4].gpu_floor = 0.05
    made.market.hosts[2].gpu_floor = 0.08
    provider.create(order())
    assert [contract.host.machine_id for contract in alive(made)] == [5, 3]
    assert [body["price"] for body in sent(made)] == [0.2, 0.2]
    assert {contract.rate for contract in alive(made)} == {0.2}


def test_an_order_on_demand_has_no_price_and_costs_no_more_than_planned(
    made: World, provider: VastProvider
) -> None:
    provider.create(order("dear", 1, bid=None))
    assert "price" not in sent(made)[0]
    for host in made.market.hosts:
        host.gpu_price = 0.41
    with pytest.raises(NoCapacity, match="on demand"):
        provider.create(order("on-demand", 1, bid=None))
    assert len(alive(made)) == 1


def test_machines_that_others_reach_have_a_port_and_addresses_of_their_own(
    made: World, provider: VastProvider
) -> None:
    """Of another order of the run, too: behind one router, machines may not reach each other."""
    first, second, third, fourth, *_ = made.market.hosts
    made.market.add(Host(7, traffic=0.003))
    second.address = first.address
    third.static_ip, fourth.direct_ports = False, 1
    provider.create(order("reliable", 1, bid=None, ports=(7071,)))
    provider.create(order("others", 2, ports=(7071,)))
    assert [contract.host.machine_id for contract in alive(made)] == [1, 5, 6]
    assert [body["env"]["-p 7071:7071"] for body in sent(made)] == ["1", "1", "1"]
    assert all(contract.ports.keys() == {22, 7071} for contract in alive(made))
    with pytest.raises(NoCapacity):
        provider.create(order("more", 1, ports=(7071,)))
    # Another run has nothing behind that router, and a machine that needs no port goes anywhere.
    provider.create(order("elsewhere", 1, ports=(7071,), tags={**RUN, RUN_TAG: "other-c0ffee"}))
    provider.create(order("alone", 2))
    assert [contract.host.machine_id for contract in alive(made)] == [1, 5, 6, 2, 3, 4]


def test_offers_that_went_to_others_are_passed_over(made: World, provider: VastProvider) -> None:
    gone = Reply.of_json(
        {"success": False, "error": "no_such_ask", "msg": "no longer available"}, 410
    )
    made.server.faults.append(Fault("/asks/", gone, times=2))
    provider.create(order(machines=1))
    assert len(sent(made)) == 3
    assert len(alive(made)) == 1


def test_a_bid_that_no_host_takes_buys_nothing_and_may_be_repeated(
    made: World, provider: VastProvider
) -> None:
    for host in made.market.hosts:
        host.rival = 0.3
    with pytest.raises(NoCapacity, match=r"no host has a machine for \$0.2000 an hour now"):
        provider.create(order())
    made.market.hosts[0].rival = None
    assert len(provider.create(order())) == 1


def test_an_account_without_credit_says_so(made: World, provider: VastProvider) -> None:
    poor = Reply.of_json(
        {"success": False, "error": "insufficient_credit", "msg": "Your account lacks credit."}, 400
    )
    made.server.faults.append(Fault("/asks/", poor))
    with pytest.raises(QuotaReached, match="add credit"):
        provider.create(order())


def test_an_instance_that_was_sold_on_demand_is_destroyed_and_reported(
    made: World, provider: VastProvider
) -> None:
    wrong = made.api._row

    def without_bid(contract: Contract) -> dict[str, Any]:
        return {**wrong(contract), "is_bid": False}

    made.api._row = without_bid  # type: ignore[method-assign]
    with pytest.raises(UnknownRefusal, match="sold on demand, so it was destroyed"):
        provider.create(order())
    assert not alive(made)


def test_a_long_list_is_read_to_its_end(made: World, provider: VastProvider) -> None:
    (machine,) = provider.create(order(machines=1))
    label = alive(made)[0].label
    for _ in range(30):
        made.market.order(made.market.hosts[1], 0.3, 8.0, {"image": "theirs", "label": label})
    assert len(provider.list(RUN)) == 31
    assert machine.id in {one.id for one in provider.list(RUN)}


def test_a_market_that_is_not_vasts_is_not_found(provider: VastProvider) -> None:
    with pytest.raises(NotFound, match="not a market"):
        provider.create(order(market=replace(ONE, os="windows")))


def test_the_disk_is_counted(provider: VastProvider) -> None:
    held = provider.holdings(ONE, spot=True, disk_gib=None)
    assert held.disk == pytest.approx(32 * 0.15 / 730 * 1e9, abs=1)
    assert held.address == 0


def test_a_raised_bid_counts_for_the_whole_machine_and_the_list_shows_it(
    made: World, provider: VastProvider
) -> None:
    (machine,) = provider.create(order(machines=1))
    (contract,) = alive(made)
    assert machine.host == contract.host.machine_id
    assert provider.raise_bid(machine.id, 2 * BID) == 2 * BID
    (asked,) = [request for request in made.server.requests if "/bid_price/" in request.path]
    assert asked.json() == {"client_id": "me", "price": 0.4}
    assert contract.price == 0.4
    assert [(each.bid, each.host) for each in provider.list(RUN)] == [(2 * BID, machine.host)]
    made.market.outbid(contract.host, 0.3)
    assert [each.state for each in provider.list(RUN)] == [MachineState.RUNNING]


def test_a_bid_that_became_higher_than_asked_is_destroyed(
    made: World, provider: VastProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The official client calls the price that of a machine, and says that it has changed one per
    GPU.
    """
    (machine,) = provider.create(order(machines=1))
    taken = made.market.change_bid
    monkeypatch.setattr(
        made.market, "change_bid", lambda contract, price: taken(contract, 8 * price)
    )
    with pytest.raises(
        UnknownRefusal, match=r"a bid of \$0.2500 was taken as one of \$2.0000, so it was destroyed"
    ):
        provider.raise_bid(machine.id, 250_000_000)
    assert not alive(made)


def test_a_bid_for_a_machine_that_is_gone_is_not_raised(provider: VastProvider) -> None:
    (machine,) = provider.create(order(machines=1))
    provider.terminate([machine.id])
    with pytest.raises(NotFound):
        provider.raise_bid(machine.id, 2 * BID)


def test_a_machine_has_the_prices_of_traffic_of_its_host(
    made: World, provider: VastProvider
) -> None:
    made.market.hosts[0].gpu_floor = 0.01
    made.market.hosts[0].traffic = 0.005
    provider.create(order(machines=1))
    (machine,) = provider.list(RUN)
    # Of a GiB; hosts state it for a GB.
    assert machine.traffic_prices == (5_368_709, 5_368_709)
