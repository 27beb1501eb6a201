"""The files of orders: what earlier versions wrote is read, and what a killed writer left is no
order.
"""

from pathlib import Path

import pytest

from pricing_data.market import Market
from spotctl.clouds.order_ledger import KEPT, Order, OrderLedger, Placed
from spotctl.clouds.provider import EndReason, MachineRequest

_WRITTEN_BEFORE = (
    '{"key":"0123456789abcdef","print":"fedcba9876543210","market":"vast/vast-us/verified/1xRTX_4090","bid":300000000,'
    '"tags":{"spotctl-run":"r"},"closed":true,"machines":[{"index":0,"asked":1,"number":7,"sought":2,"is_checked":true,'
    '"is_listed":true,"returning":true,"paused":null,"missing":null,"ended":5,"reason":"returned","host":11}]}'
)


def test_an_order_that_an_earlier_version_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "0123456789abcdef.json").write_text(_WRITTEN_BEFORE)
    (order,) = OrderLedger(tmp_path).orders(6)
    (machine,) = order.machines
    assert (order.tags, order.closed) == ({"spotctl-run": "r"}, True)
    assert (machine.number, machine.host, machine.reason) == (7, 11, EndReason.RETURNED)


def test_an_order_whose_machines_have_been_gone_for_long_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "0123456789abcdef.json").write_text(_WRITTEN_BEFORE)
    ledger = OrderLedger(tmp_path)
    assert len(ledger.orders(5 + KEPT)) == 1
    assert not ledger.orders(6 + KEPT)
    assert not list(tmp_path.glob("*.json"))


def test_what_a_killed_writer_left_of_a_file_is_no_order(tmp_path: Path) -> None:
    """Earlier versions wrote an order beside its file, under a name that ends like it."""
    (tmp_path / "0123456789abcdef.json").write_text(_WRITTEN_BEFORE)
    (tmp_path / ".0123456789abcdef.json").write_text(_WRITTEN_BEFORE[:40])
    assert len(OrderLedger(tmp_path).orders(6)) == 1


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    ledger, market = OrderLedger(tmp_path), Market.parse("vast/vast-us/verified/1xRTX_4090")
    with ledger.creating(MachineRequest("token", market, 1, 300_000_000, 1)) as order:
        pass
    with pytest.raises(ZeroDivisionError), ledger.order(order.key) as changed:
        changed.machines.extend(Placed(index, 1 // (1 - index)) for index in range(2))
    assert ledger.orders(2) == [Order(order.key, order.print, str(market), 300_000_000, {})]
