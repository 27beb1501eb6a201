"""What every provider has to keep to. A provider's tests subclass `ProviderContract` and say how to set the stage."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from pricing_data.errors import OutsideHistory
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.errors import BadRequest
from spotctl.machines.base import (
    CloudProvider,
    EndReason,
    Machine,
    MachineRequest,
    MachineState,
    NotFound,
    Payload,
    TokenTaken,
)

LONG = 1000 * HOUR
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Stage:
    """A provider with a market on which machines can be rented for the bid, and one that does not exist.

    `let_pass` lets seconds of the provider's clock pass, or at least as many. `payload` ends with the exit code 3.
    """

    provider: CloudProvider
    market: Market
    bid: int
    unknown: Market
    payload: Payload
    let_pass: Callable[[float], None]

    def order(self, token: str, machines: int = 2, lease: int = LONG, run: str = "a") -> MachineRequest:
        tags = {"installation": "tests", "run": run}
        return MachineRequest(token, self.market, machines, self.bid, self.provider.now() + lease, tags)

    def eventually(self, happened: Callable[[], bool]) -> None:
        """Waits for what a provider does in its own time."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not happened():
            assert time.monotonic() < give_up, "it never happened"
            self.let_pass(1.0)

    def machine(self, id: str) -> Machine:  # noqa: A002 - it is the machine's `id`
        return next(one for one in self.provider.list({}) if one.id == id)

    def gone(self, *machines: Machine) -> list[Machine]:
        """The machines, once they are gone."""
        self.eventually(lambda: all(self.machine(one.id).state is MachineState.GONE for one in machines))
        return [self.machine(one.id) for one in machines]


class ProviderContract:
    """The tests. `stage` is a fixture of the subclass, which leaves nothing running."""

    def test_machines_are_what_was_ordered(self, stage: Stage) -> None:
        order = stage.order("t1", machines=3)
        before = stage.provider.now()
        machines = stage.provider.create(order)
        assert 1 <= len(machines) <= 3
        assert len({one.id for one in machines}) == len(machines)
        for one in machines:
            assert (one.market, one.bid, one.lease_until) == (order.market, order.bid, order.lease_until)
            assert dict(one.tags) == dict(order.tags)
            assert before <= one.started <= stage.provider.now()
            assert one.state in (MachineState.STARTING, MachineState.RUNNING)
            assert (one.ended, one.end_reason, one.warned_until, one.exit_code) == (None, None, None, None)

    def test_a_token_is_served_once(self, stage: Stage) -> None:
        order = stage.order("t1")
        first = stage.provider.create(order)
        stage.let_pass(10)
        later = replace(order, lease_until=order.lease_until + HOUR, secrets={"KEY": "fresh"})
        again = stage.provider.create(later)
        assert [one.id for one in again] == [one.id for one in first]
        assert [one.started for one in again] == [one.started for one in first]
        assert {one.id for one in stage.provider.list({})} == {one.id for one in first}

    def test_a_token_whose_machines_are_gone_is_not_served_again(self, stage: Stage) -> None:
        order = stage.order("t1")
        first = stage.provider.create(order)
        stage.provider.terminate([one.id for one in first])
        stage.gone(*first)
        again = stage.provider.create(order)
        assert [(one.id, one.state) for one in again] == [(one.id, MachineState.GONE) for one in first]
        assert len(stage.provider.list({})) == len(first)

    def test_a_token_is_for_one_order(self, stage: Stage) -> None:
        order = stage.order("t1", machines=1)
        stage.provider.create(order)
        for other in (
            replace(order, count=2),
            replace(order, bid=None),
            replace(order, tags={"run": "b"}),
            replace(order, payload=stage.payload),
        ):
            with pytest.raises(TokenTaken, match="t1"):
                stage.provider.create(other)
        assert len(stage.provider.list({})) == 1

    def test_different_tokens_rent_different_machines(self, stage: Stage) -> None:
        first, second = (stage.provider.create(stage.order(token, machines=1)) for token in ("t1", "t2"))
        assert {one.id for one in first}.isdisjoint(one.id for one in second)
        assert len(stage.provider.list({})) == 2

    def test_machines_are_found_by_their_tags(self, stage: Stage) -> None:
        ours = stage.provider.create(stage.order("t1", run="a"))
        stage.provider.create(stage.order("t2", run="b"))
        found = stage.provider.list({"run": "a"})
        assert {one.id for one in found} == {one.id for one in ours}
        assert len(stage.provider.list({"installation": "tests"})) == 4
        assert stage.provider.list({"run": "a", "installation": "another"}) == ()
        assert {one.id for one in stage.provider.resources({"run": "a"})} == {one.id for one in ours}

    def test_given_back_they_are_gone_and_paid_until_then(self, stage: Stage) -> None:
        machines = stage.provider.create(stage.order("t1"))
        stage.let_pass(30)
        before = stage.provider.now()
        stage.provider.terminate([machines[0].id])
        after = stage.provider.now()
        (gone,) = stage.gone(machines[0])
        assert gone.end_reason is EndReason.RETURNED
        assert gone.ended is not None
        assert before <= gone.ended <= after
        assert stage.machine(machines[1].id).end_reason is None

    def test_giving_back_twice_or_what_never_was_is_no_error(self, stage: Stage) -> None:
        (machine,) = stage.provider.create(stage.order("t1", machines=1))
        stage.provider.terminate([machine.id, "never-0", "never"])
        (gone,) = stage.gone(machine)
        stage.let_pass(30)
        stage.provider.terminate([machine.id])
        assert stage.machine(machine.id) == gone

    def test_a_machine_ends_with_its_lease_though_nobody_comes(self, stage: Stage) -> None:
        order = stage.order("t1", lease=5 * MINUTE)
        for gone in stage.gone(*stage.provider.create(order)):
            assert (gone.ended, gone.end_reason) == (order.lease_until, EndReason.LEASE_ENDED)

    def test_a_lease_that_has_ended_when_it_is_ordered(self, stage: Stage) -> None:
        for gone in stage.gone(*stage.provider.create(stage.order("t1", lease=-MINUTE))):
            assert (gone.ended, gone.end_reason) == (gone.started, EndReason.LEASE_ENDED)

    def test_a_renewed_lease_ends_later(self, stage: Stage) -> None:
        order = stage.order("t1", lease=3 * HOUR)
        renewed, left = stage.provider.create(order)
        until = order.lease_until + 10 * MINUTE
        stage.provider.renew([renewed.id], until)
        assert stage.machine(renewed.id).lease_until == until
        assert stage.gone(left)[0].ended == order.lease_until
        assert stage.gone(renewed)[0].ended == until

    def test_a_lease_moved_to_the_past_ends_now(self, stage: Stage) -> None:
        (machine,) = stage.provider.create(stage.order("t1", machines=1))
        stage.let_pass(60)
        before = stage.provider.now()
        stage.provider.renew([machine.id], before - MINUTE)
        (gone,) = stage.gone(machine)
        assert gone.end_reason is EndReason.LEASE_ENDED
        assert gone.ended is not None
        assert gone.ended >= before

    def test_what_is_gone_cannot_be_renewed_and_the_others_are(self, stage: Stage) -> None:
        kept, gone = stage.provider.create(stage.order("t1"))
        stage.provider.terminate([gone.id])
        stage.gone(gone)
        until = kept.lease_until + HOUR
        with pytest.raises(NotFound, match=gone.id) as refused:
            stage.provider.renew([gone.id, kept.id, "never-0"], until)
        assert refused.value.ids == (gone.id, "never-0")
        assert stage.machine(kept.id).lease_until == until
        assert stage.machine(gone.id).end_reason is EndReason.RETURNED

    def test_an_end_is_not_changed_by_a_later_one(self, stage: Stage) -> None:
        order = stage.order("t1", machines=1, lease=5 * MINUTE)
        (machine,) = stage.provider.create(order)
        stage.gone(machine)
        stage.provider.terminate([machine.id])
        with pytest.raises(NotFound):
            stage.provider.renew([machine.id], order.lease_until + HOUR)
        found = stage.machine(machine.id)
        assert (found.ended, found.end_reason) == (order.lease_until, EndReason.LEASE_ENDED)

    def test_on_demand_machines_have_no_bid(self, stage: Stage) -> None:
        (machine,) = stage.provider.create(replace(stage.order("t1", machines=1), bid=None))
        assert machine.bid is None
        assert stage.machine(machine.id).bid is None

    def test_an_unknown_market_is_not_found(self, stage: Stage) -> None:
        with pytest.raises(NotFound, match=str(stage.unknown)):
            stage.provider.create(replace(stage.order("t1"), market=stage.unknown))
        with pytest.raises(NotFound, match=str(stage.unknown)):
            stage.provider.prices(stage.unknown, stage.provider.now(), stage.provider.now())
        assert stage.provider.list({}) == ()

    def test_an_order_of_nothing_is_a_mistake(self, stage: Stage) -> None:
        with pytest.raises(BadRequest, match="order of 0 machines"):
            stage.order("t1", machines=0)
        with pytest.raises(BadRequest, match="bid of 0"):
            replace(stage.order("t1"), bid=0)

    def test_resources_are_what_is_not_gone_and_can_be_removed(self, stage: Stage) -> None:
        gone, left = stage.provider.create(stage.order("t1"))
        stage.provider.terminate([gone.id])
        stage.gone(gone)
        (found,) = stage.provider.resources({"run": "a"})
        assert (found.kind, found.id, found.tags["run"]) == ("machine", left.id, "a")
        stage.provider.remove([found])
        stage.gone(left)
        stage.provider.remove([found])
        assert stage.provider.resources({}) == ()

    def test_prices_are_those_until_now(self, stage: Stage) -> None:
        stage.let_pass(60)
        now = stage.provider.now()
        series = stage.provider.prices(stage.market, now - 10 * SECOND, now)
        assert (series.first, series.last) == (now - 10 * SECOND, now)
        assert series.price_at(now) <= stage.bid
        with pytest.raises(OutsideHistory):
            series.price_at(now + 1)
        with pytest.raises(NotFound, match="prices are known"):
            stage.provider.prices(stage.market, now, stage.provider.now() + HOUR)

    def test_the_clock_goes_on(self, stage: Stage) -> None:
        before = stage.provider.now()
        stage.let_pass(1)
        assert stage.provider.now() >= before + SECOND
        assert stage.provider.speed > 0

    def test_work_is_assigned_to_who_is_there(self, stage: Stage) -> None:
        there, gone = stage.provider.create(stage.order("t1"))
        assert (there.work, there.exit_code) == ("", None)
        stage.provider.terminate([gone.id])
        stage.gone(gone)
        with pytest.raises(NotFound, match=gone.id) as refused:
            stage.provider.assign([gone.id, there.id], stage.payload)
        assert refused.value.ids == (gone.id,)
        assert stage.machine(there.id).work == stage.payload.name
        assert stage.machine(gone.id).work == ""
