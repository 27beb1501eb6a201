"""Orders that are repeated with their token."""

from __future__ import annotations

from dataclasses import replace

from spotctl.machines.base import Order


def same_order(one: Order, other: Order) -> bool:
    """Whether two orders are one that was repeated: later, so that its lease may end later."""
    return _lasting(one) == _lasting(other)


def _lasting(order: Order) -> Order:
    return replace(order, lease_until=0, secrets={}, tags=dict(order.tags))
