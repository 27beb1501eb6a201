"""Clouds without client tokens, by the example of Vast.ai: what is sent again, and what counts as gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pricing_data.units import HOUR, SECOND
from spotctl.clouds.errors import Unanswered
from spotctl.clouds.order_ledger import OrderLedger
from spotctl.clouds.provider import EndReason, MachineState
from spotctl.clouds.vast.provider import VastProvider
from tests.servers.loopback import Fault, Reply
from tests.spotctl.clouds.vast.test_provider import alive
from tests.spotctl.clouds.vast.world import BID, ONE, RUN, World, order, world

LATE = (HOUR, HOUR)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.fixture
def provider(made: World) -> Iterator[VastProvider]:
    with closing(made.provider()) as provider:
        yield provider


def test_an_order_that_waited_long_before_its_answer_was_lost_is_not_sent_again_at_once(
    made: World,
) -> None:
    """The note of an order is older than the order, by as long as its call waited for its turn."""
    made.server.faults.append(Fault("/asks/", lost=True))
    made.api.lists_late = 60.0
    with closing(made.provider(times=LATE)) as provider:
        with pytest.raises(Unanswered):
            provider.create(order())
        ledger = OrderLedger(made.folder / "home" / "orders")
        (noted,) = ledger.orders(provider.now())
        with ledger.order(noted.key) as changed:
            changed.machines[0].asked -= 2 * HOUR
        with pytest.raises(Unanswered, match="the list may not show it yet"):
            provider.create(order())
    assert len(alive(made)) == 1


def test_an_order_that_never_arrived_is_sent_again_once_a_list_would_show_it(made: World) -> None:
    made.server.faults.append(Fault("/asks/", Reply(503)))
    with closing(made.provider(times=LATE)) as first, pytest.raises(Unanswered):
        first.create(order())
    with closing(made.provider()) as second:
        assert len(second.create(order())) == 2
    assert len(alive(made)) == 2


def test_a_machine_that_a_list_lacks_is_gone_only_after_a_while(made: World) -> None:
    times = (0, 3 * SECOND)
    with closing(made.provider(times=times)) as provider:
        (machine,) = provider.create(order(machines=1))
        made.api.lists_late = 60.0
        assert [one.state for one in provider.list({})] == [MachineState.LEAVING]
        made.market.advance(61)
        assert [one.state for one in provider.list({})] == [MachineState.RUNNING]
        made.market.destroy(alive(made)[0])
        assert [one.state for one in provider.list({})] == [MachineState.LEAVING]
    with closing(made.provider()) as provider:
        (gone,) = provider.list({})
        assert (gone.id, gone.state, gone.end_reason) == (
            machine.id,
            MachineState.GONE,
            EndReason.LEASE_ENDED,
        )


def test_another_home_finds_instances_by_their_labels(made: World, provider: VastProvider) -> None:
    machines = provider.create(order())
    with closing(made.provider(home="another")) as other:
        assert [(one.id, one.market, one.bid) for one in other.list(RUN)] == [
            (one.id, ONE, BID) for one in machines
        ]
        other.remove(other.resources(RUN))
        assert other.resources({}) == ()
    assert not alive(made)


def test_instances_of_others_are_left_alone(made: World, provider: VastProvider) -> None:
    made.market.order(
        made.market.hosts[0], 0.3, 8.0, {"image": "theirs", "label": "spotctl is nice"}
    )
    assert provider.list({}) == ()
    assert provider.resources({}) == ()


def test_a_machine_that_counted_as_gone_and_is_listed_again_is_not(
    made: World, provider: VastProvider
) -> None:
    (machine,) = provider.create(order(machines=1))
    provider.list({})
    made.api.lists_late = 60.0
    assert [one.state for one in provider.list({})] == [MachineState.GONE]
    made.api.lists_late = 0.0
    (again,) = provider.list({})
    assert (again.id, again.state, again.ended) == (machine.id, MachineState.RUNNING, None)
