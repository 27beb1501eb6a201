"""Clouds whose lists are late or incomplete, and machines that do not do what was asked of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bidbrain.strategies.base import Rent
from pricing_data.units import HOUR, MINUTE
from spotctl.clouds.errors import (
    NoCapacity,
    NotFound,
    NotPermitted,
    ProviderError,
    Throttled,
    Unanswered,
    UnknownRefusal,
    Unusable,
)
from spotctl.clouds.link import MachineSupplies
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import EndReason, Machine, MachineRequest, MachineState
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.home.installation import INSTALLATION_TAG, RUN_TAG
from spotctl.log import budget, events as ev
from spotctl.run.turn.execute import Executor, Journal
from spotctl.run.turn.reconcile import Renew
from tests.spotctl.clouds.fake import (
    Call,
    FakeProvider,
    Fault,
    LostAnswer,
    LostRequest,
    Refusal,
    SlowDescribe,
)
from tests.spotctl.run.faults import Split, clean
from tests.spotctl.run.worlds import (
    LEASE_TIMES,
    MARKETS,
    OFFERS,
    PRICES,
    RUN,
    START,
    Death,
    Killed,
    Life,
    MemoryLog,
    environment,
    life,
    terms,
)

LINKS = ("status", "renew")


def test_machines_that_are_listed_late_do_not_count_as_gone(tmp_path: Path) -> None:
    one = life(tmp_path)
    one.cloud.script("create", SlowDescribe(4), SlowDescribe(4))
    assert one.run().outcome == "done"
    clean(one)
    assert len(one.cloud.everything) == 4


@pytest.mark.parametrize("crash", [False, True])
def test_machines_whose_agents_never_answer_are_not_bought_forever(
    tmp_path: Path, crash: bool
) -> None:
    one = life(tmp_path, rounds=10**6)
    one.terms = terms(reliable=0)
    one.cloud.weather = lambda call: (
        Refusal(Unanswered("port 22 is closed")) if call.name in LINKS else None
    )
    passed = one.world.pass_round

    def pass_round() -> None:
        passed()
        for machine in one.world.running if crash and one.world.rounds % 10 == 0 else ():
            one.cloud.crash(machine.id)

    one.world.pass_round = pass_round  # type: ignore[method-assign]
    ended = one.run()
    assert (ended.outcome, ended.message) == (
        "failed",
        "3 machines in a row ended before their agents answered: port 22 is closed",
    )
    clean(one)
    assert [machine.market for machine in one.cloud.everything] == [MARKETS[0]] * 3, "one wave"
    assert one.state().back_offs[MARKETS[0], True].times == 1, "machines of one order count once"


@pytest.mark.parametrize(("wave", "bought"), [(1, 3), (2, 4), (4, 4), (8, 8)])
def test_waves_of_machines_are_bought_until_three_have_ended_in_a_row(
    tmp_path: Path, wave: int, bought: int
) -> None:
    """They end silently, one after the other; one or two alone may be defective, so that others are
    tried.
    """
    world = life(tmp_path, rounds=10**6)
    world.terms = replace(terms(reliable=0), baseline=Rent(OFFERS[0], wave, None))
    world.cloud.weather = lambda call: (
        Refusal(Unanswered("port 22 is closed")) if call.name in LINKS else None
    )
    passed = world.world.pass_round

    def pass_round() -> None:
        passed()
        for machine in world.world.running[:1] if world.world.rounds % 4 == 0 else ():
            world.cloud.crash(machine.id)

    world.world.pass_round = pass_round  # type: ignore[method-assign]
    ended = world.run()
    assert (ended.outcome, len(world.cloud.everything)) == ("failed", bought)
    assert ended.message.endswith("ended before their agents answered: port 22 is closed")
    clean(world)


def test_a_machine_that_will_never_work_ends_the_run_before_its_lease_does(tmp_path: Path) -> None:
    world = life(tmp_path, rounds=10**6)
    world.terms = terms(reliable=0)
    cure = "m: it has Python 3.9, and spotctl needs 3.11 or later: use another image"
    world.cloud.weather = lambda call: Refusal(Unusable(cure)) if call.name in LINKS else None
    ended = world.run()
    assert (ended.outcome, ended.message, len(world.cloud.everything)) == ("failed", cure, 3)
    clean(world)
    assert world.cloud.now() < START + 5 * MINUTE


def test_a_machine_unlike_those_that_work_does_not_end_the_run(tmp_path: Path) -> None:
    world = life(tmp_path)
    world.cloud.weather = lambda call: (
        Refusal(Unusable("another image"))
        if call.name in LINKS and "fake-2" in str(call.asked)
        else None
    )
    assert world.run().outcome == "done"
    clean(world)


@pytest.mark.parametrize(
    ("error", "orders", "outcome"),
    [
        (UnknownRefusal("the moon is full", "MoonIsFull"), 2, "failed"),
        (ProviderError("this computer has no ssh client"), 2, "failed"),
        (NotPermitted("the account lacks a role"), 1, "not permitted"),
        (BadRequest("no such image"), 1, "failed"),
    ],
)
def test_a_refusal_that_never_passes_is_heard_twice_at_most(
    tmp_path: Path, error: SpotctlError, orders: int, outcome: str
) -> None:
    world = life(tmp_path, rounds=10**6)
    world.terms = terms(reliable=0)
    world.cloud.weather = lambda call: Refusal(error) if call.name == "create" else None
    ended = world.run()
    assert (ended.outcome, len(world.world.calls("create"))) == (outcome, orders)
    assert str(error) in ended.message
    assert "\n" not in ended.message


def test_unknown_refusals_that_differ_or_are_followed_by_machines_do_not_end_a_run(
    tmp_path: Path,
) -> None:
    world = life(tmp_path, rounds=400)
    world.terms = terms(reliable=0)
    moon, sun = (Refusal(UnknownRefusal("no", code)) for code in ("MoonIsFull", "SunIsDark"))
    world.cloud.script("create", moon, sun)
    assert world.run().outcome == "done"
    clean(world)


@pytest.mark.parametrize("hours", [1, 1000])
def test_a_part_that_is_down_neither_stops_a_run_nor_loses_its_machines(
    tmp_path: Path, hours: int
) -> None:
    class Cloud(Split):
        answers_at = START + hours * HOUR

    one = life(tmp_path, rounds=700)
    one.world.cloud = Cloud(Replayed.of(PRICES.values()), START)
    ended = one.run()
    assert ended.outcome == "done"
    clean(one)
    held = one.state().machines["fake-0"]
    (machine,) = [machine for machine in one.cloud.everything if machine.id == "fake-0"]
    assert machine.ended is not None
    assert machine.ended > START + HOUR, "its lease was renewed although it was not listed"
    assert held.end_reason == ("returned" if hours == 1 else "lease ended")
    assert len([row for row in one.rows() if isinstance(row.event, ev.MachineEnded)]) == len(
        one.cloud.everything
    )


class Careless(FakeProvider):
    """A cloud that accepts `ignored` returns that have no effect, and whose machines outlive their
    leases.
    """

    ignored = 0
    outlived = False

    def terminate(self, ids: Sequence[str]) -> None:
        if type(self).ignored:
            type(self).ignored -= 1
            self.meet("terminate", tuple(ids))
            return
        super().terminate(ids)

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        for machine in self._machines.values() if type(self).outlived else ():
            machine.lease_until = max(machine.lease_until, self.time + HOUR)


def careless(folder: Path, ignored: int, *, outlived: bool) -> Life:
    class Cloud(Careless):
        pass

    Cloud.ignored, Cloud.outlived = ignored, outlived
    one = life(folder, rounds=10**6 if outlived else 120)
    one.world.cloud = Cloud(Replayed.of(PRICES.values()), START)
    return one


def test_a_return_that_had_no_effect_is_repeated(tmp_path: Path) -> None:
    one = careless(tmp_path, 3, outlived=False)
    started = one.cloud.now()
    assert one.run().outcome == "done"
    clean(one)
    assert all(machine.end_reason is EndReason.RETURNED for machine in one.cloud.everything), (
        "not by its lease"
    )
    assert one.cloud.now() - started < LEASE_TIMES.lease + HOUR


def test_machines_that_outlive_their_leases_are_returned_and_count_as_useless(
    tmp_path: Path,
) -> None:
    one = careless(tmp_path, 0, outlived=True)
    one.terms = terms(reliable=0)
    one.cloud.weather = lambda call: (
        Refusal(Unanswered("port 22 is closed")) if call.name in LINKS else None
    )
    ended = one.run()
    assert ended.outcome == "failed"
    assert ended.message.startswith("3 machines in a row")
    clean(one)
    leases = [held.lease_until for held in one.state().machines.values()]
    assert all(machine.ended is not None for machine in one.cloud.everything)
    assert one.cloud.now() < max(leases) + 10 * MINUTE


def test_a_machine_that_is_listed_again_has_not_ended(tmp_path: Path) -> None:
    """A list was incomplete for longer than lists may be late."""
    one = life(tmp_path, rounds=400)
    hidden = range(START + 3 * MINUTE, START + 12 * MINUTE)

    class Incomplete(FakeProvider):
        def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
            return super().list(tags)[1 if self.time in hidden else 0 :]

    one.world.cloud = Incomplete(Replayed.of(PRICES.values()), START)
    assert one.run().outcome == "done"
    clean(one)
    again = [
        event.id for row in one.rows() if isinstance(event := row.event, ev.MachineListedAgain)
    ]
    first = one.cloud.everything[0]
    assert again == [first.id]
    (held,) = [held for held in one.state().machines.values() if held.id == first.id]
    assert (held.ended, held.end_reason) == (first.ended, "returned")


def test_a_machine_that_answered_ends_the_row_of_those_that_did_not(tmp_path: Path) -> None:
    one = life(tmp_path)
    one.run()
    state = one.state()
    started = {
        name: replace(held, ran=None, end_reason="lease ended")
        for name, held in state.machines.items()
    }
    silent = replace(state, machines=started)
    assert (silent.useless(0), silent.useless(1), silent.useless(2)) == (4, 3, 0)
    first = next(name for name, held in state.machines.items() if held.allocation == 1)
    assert replace(state, machines={**started, first: state.machines[first]}).useless(0) == 3


@pytest.mark.parametrize("minutes", [0, 1, 9])
def test_machines_of_an_order_that_is_refused_when_repeated_are_found(
    tmp_path: Path, minutes: int
) -> None:
    one = life(tmp_path)
    orders: list[str] = []

    def meets(call: Call) -> Fault | None:
        """The first order succeeds, but its answer is lost and its machines are listed late; then
        none are left.
        """
        if call.name == "list" and orders and one.cloud.now() < START + minutes * MINUTE:
            return Refusal(Throttled("slow down"))
        if isinstance(call.asked, MachineRequest) and call.asked.bid is not None:
            orders.append(call.asked.token)
            if call.asked.token == orders[0]:
                return LostAnswer() if len(orders) == 1 else Refusal(NoCapacity("none left"))
        return None

    one.cloud.weather = meets
    assert one.run().outcome == "done"
    clean(one)
    spot = [machine for machine in one.cloud.everything if machine.bid is not None]
    assert len(spot) == 3, "bought twice"


def test_a_run_does_not_end_before_it_has_listed_its_machines(tmp_path: Path) -> None:
    """An order succeeds unanswered and is refused when repeated; then the runner dies, and the run
    is stopped.
    """

    def lost(folder: Path) -> Life:
        one = life(folder)
        one.terms = terms(reliable=0)
        one.cloud.script("create", LostAnswer(), Refusal(NoCapacity("none left")))
        return one

    rehearsal = Death()
    lost(tmp_path / "rehearsal").run(rehearsal)
    one = lost(tmp_path)
    with pytest.raises(Killed):
        one.run(Death(rehearsal.met.index("after write RentRefused")))
    with one.opened() as log:
        log.append(RUN, one.cloud.now(), ev.StopRequested("stopped", "enough"))
    while one.cloud.now() < one.state().at + budget.LISTING_DELAY:
        one.world.pass_round()
    assert one.world.running, "their leases go on"
    assert one.run().outcome == "stopped"
    clean(one)


def test_a_renewal_without_an_answer_does_not_shorten_leases(tmp_path: Path) -> None:
    one = life(tmp_path, rounds=400)
    # The first is lost when it is made and when it is repeated; the next overtakes it.
    one.cloud.script("renew", LostRequest(), LostRequest())
    one.run()
    untils = [until for call in one.world.calls("renew") for _, until in [call.asked]]  # type: ignore[misc,has-type]
    assert untils == sorted(untils)


@pytest.mark.parametrize(
    "error", [NotFound("gone"), Throttled("slow down"), Unanswered("no address yet")], ids=repr
)
def test_a_machine_that_cannot_be_prepared_holds_up_no_other(
    tmp_path: Path, error: ProviderError
) -> None:
    """Its neighbours are listed, given work, and their leases are renewed."""
    one = life(tmp_path, rounds=400)
    prepared = list[str]()

    class Preparing(FakeProvider):
        def prepare(self, machine: Machine, supplies: MachineSupplies) -> None:  # noqa: ARG002
            prepared.append(machine.id)
            raise error

    one.world.cloud = Preparing(Replayed.of(PRICES.values()), START)
    journal = Journal(MemoryLog(), RUN, one.cloud.now)
    executor = Executor(journal, environment(one.cloud), one.work)
    tags = {INSTALLATION_TAG: "tests", RUN_TAG: RUN}
    machines = one.cloud.create(MachineRequest("t", MARKETS[0], 2, None, START + HOUR, tags))
    one.cloud.weather = lambda call: (
        LostRequest() if call.name == "status" and call.asked == machines[0].id else None
    )
    assert [seen.state for seen in executor.list_machines() or ()] == [
        MachineState.STARTING,
        MachineState.RUNNING,
    ]
    assert prepared == [machines[0].id]


def test_an_agent_that_understands_nothing_holds_up_no_renewal(tmp_path: Path) -> None:
    one = life(tmp_path)
    machines = one.cloud.create(MachineRequest("t", MARKETS[0], 2, None, START + HOUR))
    executor = Executor(Journal(MemoryLog(), RUN, one.cloud.now), environment(one.cloud), one.work)
    refused = Refusal(ProviderError("its agent understands nothing"))

    def meets(call: Call) -> Fault | None:
        return refused if call.name == "renew" and call.asked[0] == (machines[0].id,) else None  # type: ignore[index]

    one.cloud.weather = meets
    journal = executor._journal
    journal.write(ev.RentIntended(1, MARKETS[0], 2, None, 100, 1.0, False, START + HOUR))
    journal.write(ev.Rented(1, tuple(ev.Granted(machine.id, START) for machine in machines)))
    executor.carry_out(Renew(tuple(machine.id for machine in machines), START + 2 * HOUR))
    assert one.cloud.lease_until(machines[1].id) == START + 2 * HOUR
