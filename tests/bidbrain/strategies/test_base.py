"""Offers of machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bidbrain.strategies.base import ImpossibleOffer, Offer
from tests.pricing_data.histories import market


def test_only_a_reservation_can_cost_nothing() -> None:
    assert Offer(replace(market("a.large"), reservation="cr-0abc"), 4.0, 0).on_demand == 0
    for where, price in (
        (market("a.large"), 0),
        (replace(market("a.large"), reservation="cr-0abc"), -1),
    ):
        with pytest.raises(ImpossibleOffer, match="only a reservation can cost nothing"):
            Offer(where, 4.0, price)
