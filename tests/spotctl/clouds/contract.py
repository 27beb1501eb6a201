"""The contract of every provider, of every link, and of clouds of containers. A provider's tests
subclass those that fit, and make the `setting`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import pytest

from pricing_data.errors import OutsideHistory
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.agent.container.payload import Payload
from spotctl.agent.lease.lease_files import MachineNotice
from spotctl.clouds.errors import NotFound, TokenTaken, Unanswered
from spotctl.clouds.link import AgentLink, MachineSupplies
from spotctl.clouds.provider import (
    CloudProvider,
    EndReason,
    Machine,
    MachineRequest,
    MachineState,
    Resource,
)
from spotctl.home.errors import BadRequest

LONG = 1000 * HOUR
_ON_ONE_CLOUD = pytest.mark.sampled(1)
"""Where one suite has several clouds, a run that takes samples has each of these tests on one of
them."""


class ContainerMarket(Protocol):
    """Events on a cloud of containers that its users do not cause."""

    def outbid(self, machine: str) -> None:
        """Another renter bids more for the host of a machine."""
        ...

    def lose_an_answer(self) -> None:
        """The next order is carried out, and its answer is lost."""
        ...

    def bought(self) -> int:
        """How many containers were ever bought."""
        ...


@dataclass(frozen=True)
class Setting:
    """A provider with a market on which machines can be had for the bid, and a market that does not
    exist.

    `let_pass` lets this many seconds of the provider's clock pass, or at least one on a clock that
    is real. `payload` exits with code 3. A machine that runs answers several calls within `lease`,
    and is created within `short_lease`. `slack` is how inexactly a cloud dates starts and ends,
    with the time that a machine takes to boot and to shut down. `late` is how much longer that may
    take on a busy computer.
    """

    provider: CloudProvider
    market: Market
    bid: int
    unknown: Market
    payload: Payload
    let_pass: Callable[[float], None]
    lease: int = 3 * HOUR
    short_lease: int = 5 * MINUTE
    slack: int = 0
    late: int = 0
    patience_seconds: float = 60.0
    containers: ContainerMarket | None = None

    def request(
        self, token: str, machines: int = 2, lease: int = LONG, run: str = "a"
    ) -> MachineRequest:
        tags = {"installation": "tests", "run": run}
        return MachineRequest(
            token, self.market, machines, self.bid, self.provider.now() + lease, tags
        )

    def link(self, machine: Machine) -> AgentLink:
        """The link to a machine, once its agent answers and lists show it."""
        self.eventually(lambda: self._prepared(machine))
        return self.provider.link(machine.id)

    def _prepared(self, machine: Machine) -> bool:
        try:
            self.provider.link(machine.id).status()
        except Unanswered:
            self.provider.prepare(self.machine(machine.id), MachineSupplies())
            return False
        # A list may be late.
        return self.machine(machine.id).state is not MachineState.STARTING

    def eventually(self, happened: Callable[[], bool]) -> None:
        """Waits for what a provider does in its own time."""
        give_up = time.monotonic() + self.patience_seconds
        while not happened():
            assert time.monotonic() < give_up, "it never happened"
            self.let_pass(1.0)

    def machine(self, id: str) -> Machine:  # noqa: A002 - it is the machine's `id`
        return next(one for one in self.provider.list({}) if one.id == id)

    def about(self, moment: int | None, expected: int) -> bool:
        """Whether a start or an end is the expected one, as exactly as the cloud dates it."""
        return moment is not None and -self.slack <= moment - expected <= self.slack + self.late

    def machines(self, tags: Mapping[str, str]) -> list[Resource]:
        """The machines under these tags, without the disks, rules and so on that a cloud has with
        them.
        """
        return [one for one in self.provider.resources(tags) if one.kind == "machine"]

    def gone(self, *machines: Machine) -> list[Machine]:
        """The machines, once they are gone."""
        self.eventually(
            lambda: all(self.machine(one.id).state is MachineState.GONE for one in machines)
        )
        return [self.machine(one.id) for one in machines]


def not_found(call: Callable[[], object]) -> bool:
    """Whether a call is refused because its machine is gone; a connection that broke may not know
    that at once.
    """
    try:
        call()
    except NotFound:
        return True
    except Unanswered:
        return False
    raise AssertionError("a machine that is gone answered")


class ProviderContract:
    """What every provider does. `setting` is a fixture of the subclass, which leaves nothing
    running.
    """

    def test_machines_are_created_as_requested(self, setting: Setting) -> None:
        request = setting.request("t1", machines=3)
        before = setting.provider.now()
        machines = setting.provider.create(request)
        assert 1 <= len(machines) <= 3
        assert len({one.id for one in machines}) == len(machines)
        for one in machines:
            assert (one.market, one.bid) == (request.market, request.bid)
            assert dict(one.tags) == dict(request.tags)
            assert before - setting.slack <= one.started <= setting.provider.now()
            assert one.state in (MachineState.STARTING, MachineState.RUNNING)
            assert (one.ended, one.end_reason, one.warned_until, one.exit_code) == (
                None,
                None,
                None,
                None,
            )

    def test_a_token_is_served_once(self, setting: Setting) -> None:
        request = setting.request("t1")
        first = setting.provider.create(request)
        setting.let_pass(10)
        later = replace(request, lease_until=request.lease_until + HOUR, secrets={"KEY": "fresh"})
        again = setting.provider.create(later)
        assert [one.id for one in again] == [one.id for one in first]
        assert [one.started for one in again] == [one.started for one in first]
        assert {one.id for one in setting.provider.list({})} == {one.id for one in first}

    def test_a_token_is_not_served_again_when_its_machines_are_gone(self, setting: Setting) -> None:
        request = setting.request("t1")
        first = setting.provider.create(request)
        setting.provider.terminate([one.id for one in first])
        setting.gone(*first)
        again = setting.provider.create(request)
        assert [(one.id, one.state) for one in again] == [
            (one.id, MachineState.GONE) for one in first
        ]
        assert len(setting.provider.list({})) == len(first)

    def test_a_token_belongs_to_one_request(self, setting: Setting) -> None:
        request = setting.request("t1", machines=1)
        setting.provider.create(request)
        for other in (
            replace(request, count=2),
            replace(request, bid=None),
            replace(request, tags={"run": "b"}),
            replace(request, payload=setting.payload),
        ):
            with pytest.raises(TokenTaken, match="t1"):
                setting.provider.create(other)
        assert len(setting.provider.list({})) == 1

    def test_different_tokens_create_different_machines(self, setting: Setting) -> None:
        first, second = (
            setting.provider.create(setting.request(token, machines=1)) for token in ("t1", "t2")
        )
        assert {one.id for one in first}.isdisjoint(one.id for one in second)
        assert len(setting.provider.list({})) == 2

    def test_machines_are_listed_by_their_tags(self, setting: Setting) -> None:
        ours = setting.provider.create(setting.request("t1", run="a"))
        setting.provider.create(setting.request("t2", run="b"))
        listed = setting.provider.list({"run": "a"})
        assert {one.id for one in listed} == {one.id for one in ours}
        assert len(setting.provider.list({"installation": "tests"})) == 4
        assert setting.provider.list({"run": "a", "installation": "another"}) == ()
        assert {one.id for one in setting.machines({"run": "a"})} == {one.id for one in ours}
        assert setting.provider.resources({"installation": "another"}) == ()

    def test_terminated_machines_are_paid_until_then(self, setting: Setting) -> None:
        machines = setting.provider.create(setting.request("t1"))
        setting.let_pass(30)
        before = setting.provider.now()
        setting.provider.terminate([machines[0].id])
        after = setting.provider.now()
        (gone,) = setting.gone(machines[0])
        assert gone.end_reason is EndReason.RETURNED
        assert gone.ended is not None
        assert before - setting.slack <= gone.ended <= after + setting.slack
        assert setting.machine(machines[1].id).end_reason is None

    def test_terminating_gone_or_unknown_machines_is_no_error(self, setting: Setting) -> None:
        (machine,) = setting.provider.create(setting.request("t1", machines=1))
        setting.provider.terminate([machine.id, "never-0", "never"])
        (gone,) = setting.gone(machine)
        setting.let_pass(30)
        setting.provider.terminate([machine.id])
        assert setting.machine(machine.id) == gone

    def test_a_machine_ends_with_its_lease_without_any_launcher(self, setting: Setting) -> None:
        request = setting.request("t1", lease=setting.short_lease)
        for gone in setting.gone(*setting.provider.create(request)):
            assert setting.about(gone.ended, request.lease_until), gone
            assert gone.end_reason is EndReason.LEASE_ENDED

    def test_a_lease_that_has_ended_at_the_request(self, setting: Setting) -> None:
        for gone in setting.gone(*setting.provider.create(setting.request("t1", lease=-MINUTE))):
            assert setting.about(gone.ended, gone.started), gone
            assert gone.end_reason is EndReason.LEASE_ENDED

    def test_on_demand_machines_have_no_bid(self, setting: Setting) -> None:
        (machine,) = setting.provider.create(replace(setting.request("t1", machines=1), bid=None))
        assert machine.bid is None
        assert setting.machine(machine.id).bid is None

    def test_an_unknown_market_is_not_found(self, setting: Setting) -> None:
        with pytest.raises(NotFound, match=str(setting.unknown)):
            setting.provider.create(replace(setting.request("t1"), market=setting.unknown))
        with pytest.raises(NotFound, match=str(setting.unknown)):
            setting.provider.prices(setting.unknown, setting.provider.now(), setting.provider.now())
        assert setting.provider.list({}) == ()

    def test_offers_are_markets_that_can_be_requested(self, setting: Setting) -> None:
        offers = setting.provider.offers()
        assert setting.market in offers
        assert setting.unknown not in offers

    def test_a_request_needs_machines_and_a_positive_bid(self, setting: Setting) -> None:
        with pytest.raises(BadRequest, match="request for 0 machines"):
            setting.request("t1", machines=0)
        with pytest.raises(BadRequest, match="bid of 0"):
            replace(setting.request("t1"), bid=0)

    def test_resources_are_what_exists_and_can_be_removed(self, setting: Setting) -> None:
        gone, kept = setting.provider.create(setting.request("t1"))
        setting.provider.terminate([gone.id])
        setting.gone(gone)
        (found,) = setting.machines({"run": "a"})
        assert (found.kind, found.id, found.tags["run"]) == ("machine", kept.id, "a")
        setting.provider.remove([found])
        setting.gone(kept)
        setting.provider.remove([found])
        setting.provider.remove(setting.provider.resources({}))
        assert setting.provider.resources({}) == ()

    def test_prices_end_now(self, setting: Setting) -> None:
        setting.let_pass(60)
        now = setting.provider.now()
        series = setting.provider.prices(setting.market, now - 10 * SECOND, now)
        assert (series.first, series.last) == (now - 10 * SECOND, now)
        assert series.price_at(now) <= setting.bid
        with pytest.raises(OutsideHistory):
            series.price_at(now + 1)
        with pytest.raises(NotFound, match="prices are known"):
            setting.provider.prices(setting.market, now, setting.provider.now() + HOUR)

    def test_the_clock_advances(self, setting: Setting) -> None:
        before = setting.provider.now()
        setting.let_pass(1)
        assert setting.provider.now() >= before + SECOND
        assert setting.provider.speed > 0


class LinkContract:
    """What every link does, whatever runs behind it."""

    @_ON_ONE_CLOUD
    def test_a_payload_is_assigned_once_by_its_name(self, setting: Setting) -> None:
        (machine,) = setting.provider.create(setting.request("t1", machines=1))
        link = setting.link(machine)
        assert (link.status().work, link.status().exit_code) == ("", None)
        link.assign(setting.payload)
        link.assign(replace(setting.payload, command=("/bin/false",)))
        assert link.status().work == setting.payload.name
        assert (
            setting.provider.with_status(setting.machine(machine.id)).work == setting.payload.name
        )

    @_ON_ONE_CLOUD
    def test_a_renewed_lease_ends_later(self, setting: Setting) -> None:
        request = setting.request("t1")
        renewed, other = setting.provider.create(request)
        links = [setting.link(one) for one in (renewed, other)]
        assert links[0].status().lease_until == request.lease_until
        # From here on no machine boots any more, so leases on real clocks can be short.
        first = setting.provider.now() + setting.lease
        until = first + setting.lease // 2
        for link in links:
            link.renew(first)
        for _ in range(2):
            links[0].renew(until)
        assert links[0].status().lease_until == until
        assert setting.about(setting.gone(other)[0].ended, first)
        (gone,) = setting.gone(renewed)
        assert setting.about(gone.ended, until), gone
        assert gone.ended is not None
        # No slack for shutting down: it comes after the end of the lease.
        assert gone.ended >= until - min(setting.slack, SECOND), gone
        assert gone.end_reason is EndReason.LEASE_ENDED

    @_ON_ONE_CLOUD
    def test_a_lease_moved_to_the_past_ends_now(self, setting: Setting) -> None:
        (machine,) = setting.provider.create(setting.request("t1", machines=1))
        setting.let_pass(60)
        before = setting.provider.now()
        setting.link(machine).renew(before - MINUTE)
        (gone,) = setting.gone(machine)
        assert gone.end_reason is EndReason.LEASE_ENDED
        assert gone.ended is not None
        assert gone.ended >= before - setting.slack

    @_ON_ONE_CLOUD
    def test_a_machine_that_is_gone_has_no_link(self, setting: Setting) -> None:
        machine, other = setting.provider.create(setting.request("t1"))
        link = setting.link(machine)
        link.status()
        setting.provider.terminate([machine.id])
        setting.gone(machine)
        for call in (
            lambda: setting.link(machine),
            lambda: setting.provider.link("never-0"),
            link.status,
            lambda: link.renew(setting.provider.now() + HOUR),
            lambda: link.assign(setting.payload),
        ):
            setting.eventually(partial(not_found, call))
        assert setting.machine(machine.id).end_reason is EndReason.RETURNED
        assert setting.link(other).status().work == ""

    @_ON_ONE_CLOUD
    def test_an_end_is_not_changed_afterwards(self, setting: Setting) -> None:
        request = setting.request("t1", machines=1, lease=setting.short_lease)
        (machine,) = setting.provider.create(request)
        (gone,) = setting.gone(machine)
        assert setting.about(gone.ended, request.lease_until), gone
        assert gone.end_reason is EndReason.LEASE_ENDED
        setting.provider.terminate([machine.id])
        assert setting.machine(machine.id) == gone

    @_ON_ONE_CLOUD
    def test_a_notice_is_delivered_once(self, setting: Setting) -> None:
        (machine,) = setting.provider.create(setting.request("t1", machines=1))
        link, until = setting.link(machine), setting.provider.now() + HOUR
        assert link.notices() == ()
        link.notify("hint", until, "test")
        link.notify("evict", until, "test")
        link.notify("evict", until, "test")
        assert link.notices() == (
            MachineNotice("hint", until, "test"),
            MachineNotice("evict", until, "test"),
        )
        told = setting.provider.with_status(setting.machine(machine.id))
        assert (told.state, told.warned_until) == (MachineState.LEAVING, until)

    @_ON_ONE_CLOUD
    def test_a_machine_without_a_notice_is_not_warned(self, setting: Setting) -> None:
        (machine,) = setting.provider.create(setting.request("t1", machines=1))
        assert setting.link(machine).notices() == ()
        told = setting.provider.with_status(setting.machine(machine.id))
        assert (told.state, told.warned_until) == (MachineState.RUNNING, None)


class ContainerContract:
    """Further duties of a provider of containers sold by bid: its cloud has no client tokens."""

    def test_a_lost_answer_buys_nothing_twice(self, setting: Setting) -> None:
        market = _containers(setting)
        market.lose_an_answer()
        request = setting.request("t1")
        with pytest.raises(Unanswered):
            setting.provider.create(request)
        created = list[Machine]()

        def answered() -> bool:
            with suppress(Unanswered):
                created.extend(setting.provider.create(request))
            return bool(created)

        setting.eventually(answered)
        assert len({one.id for one in created}) == request.count
        assert market.bought() == request.count

    def test_a_machine_that_was_outbid_is_paused_until_it_is_returned(
        self, setting: Setting
    ) -> None:
        outbid, kept = setting.provider.create(setting.request("t1"))
        setting.eventually(lambda: setting.machine(outbid.id).state is MachineState.RUNNING)
        _containers(setting).outbid(outbid.id)
        setting.eventually(lambda: setting.machine(outbid.id).state is MachineState.PAUSED)
        paused = setting.machine(outbid.id)
        assert paused.ended is not None
        with pytest.raises(Unanswered, match="paused"):
            setting.provider.link(outbid.id)
        assert {one.id: one.detail for one in setting.machines({})}[outbid.id] == "paused"
        setting.provider.terminate([outbid.id])
        (gone,) = setting.gone(outbid)
        assert (gone.end_reason, gone.ended) == (EndReason.EVICTED, paused.ended)
        assert [one.id for one in setting.machines({})] == [kept.id]


def _containers(setting: Setting) -> ContainerMarket:
    assert setting.containers is not None
    return setting.containers
