"""Provider faults: the run continues, or ends with the right outcome and no machine running."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import stamina

from pricing_data.units import HOUR, MINUTE
from spotctl.errors import BadRequest
from spotctl.machines.base import (
    EndReason,
    Machine,
    MachineRequest,
    MachineState,
    MachineSupplies,
    NoCapacity,
    NotFound,
    NotPermitted,
    PartlyListed,
    ProviderError,
    QuotaReached,
    Resource,
    Throttled,
    Unanswered,
)
from spotctl.machines.fake import (
    Call,
    FakeProvider,
    Fault,
    LostAnswer,
    LostRequest,
    PartialGrant,
    Refusal,
    SlowDescribe,
)
from spotctl.machines.replayed import Replayed
from spotctl.machines.tags import INSTALLATION_TAG, RUN_TAG
from spotctl.run.execute import Executor, Journal, RetryPolicy
from spotctl.run.reconcile import Renew
from spotctl.run.service import RunLimits, Runner, RunRules
from spotctl.runlog import budget
from spotctl.runlog import events as ev
from spotctl.runlog.budget import Tariff
from spotctl.runlog.errors import LogFailed
from spotctl.runlog.outcomes import NOT_PERMITTED
from spotctl.runlog.store import EventLog, LogRow
from tests.spotctl.run.worlds import (
    LEASE_TIMES,
    MARKETS,
    PRICES,
    RUN,
    START,
    TARIFF,
    Death,
    Killed,
    Life,
    MemoryLog,
    environment,
    life,
    terms,
)

LINKS = ("status", "renew")
CALLS = ("create", "renew", "terminate", "list")
FAULTS: dict[str, Fault] = {
    "throttled": Refusal(Throttled("slow down")),
    "lost request": LostRequest(),
    "lost answer": LostAnswer(),
    "other": Refusal(ProviderError("the disk of the provider is full")),
}


def for_market(number: int, fault: Fault) -> Callable[[Call], Fault | None]:
    def meets(call: Call) -> Fault | None:
        return fault if isinstance(call.asked, MachineRequest) and call.asked.market == MARKETS[number] else None

    return meets


def always(name: str, fault: Fault) -> Callable[[Call], Fault | None]:
    return lambda call: fault if call.name == name else None


def clean(one: Life) -> None:
    assert not one.world.running
    assert one.state().machines.keys() == {machine.id for machine in one.cloud.everything}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_failed_requests_are_repeated_and_nothing_is_bought_twice(tmp_path: Path, call: str, fault: str) -> None:
    one = life(tmp_path)
    one.cloud.script(call, *[FAULTS[fault]] * 5)
    assert one.run().outcome == "done"
    clean(one)
    if fault != "other":
        assert len(one.cloud.everything) == 4


def test_a_request_is_repeated_within_a_turn(tmp_path: Path) -> None:
    one = replace(life(tmp_path), retries=RetryPolicy(attempts=3, first_pause=0.0))
    one.cloud.script("create", *[FAULTS["throttled"]] * 2)
    with stamina.set_testing(True, attempts=3):
        one.run()
    requests = [call for call in one.world.calls("create") if call.at == START]
    assert [call.asked for call in requests[:3]] == [requests[0].asked] * 3


def test_an_order_may_bring_fewer_machines(tmp_path: Path) -> None:
    one = life(tmp_path)
    one.cloud.script("create", PartialGrant(1), PartialGrant(1))
    assert one.run().outcome == "done"
    clean(one)
    brought = [event for row in one.rows() if isinstance(event := row.event, ev.Rented)]
    assert [len(event.machines) for event in brought[:2]] == [1, 1]


def test_machines_that_are_listed_late_do_not_count_as_gone(tmp_path: Path) -> None:
    one = life(tmp_path)
    one.cloud.script("create", SlowDescribe(4), SlowDescribe(4))
    assert one.run().outcome == "done"
    clean(one)
    assert len(one.cloud.everything) == 4


@pytest.mark.parametrize("error", [NoCapacity("none left"), QuotaReached("no more of these")])
def test_a_market_that_refuses_is_in_back_off_and_another_is_used(tmp_path: Path, error: ProviderError) -> None:
    one = life(tmp_path)
    one.cloud.weather = for_market(0, Refusal(error))
    assert one.run().outcome == "done"
    assert {machine.market for machine in one.cloud.everything} == {MARKETS[1]}
    refused = [call for call in one.world.calls("create") if one.cloud.weather(call)]
    assert one.state().back_offs[MARKETS[0]].times == len(refused)
    clean(one)


@pytest.mark.parametrize("crash", [False, True])
def test_machines_whose_agents_never_answer_are_not_bought_forever(tmp_path: Path, crash: bool) -> None:
    one = life(tmp_path, rounds=10**6)
    one.terms = terms(reliable=0)
    one.cloud.weather = lambda call: Refusal(Unanswered("port 22 is closed")) if call.name in LINKS else None
    passed = one.world.pass_round

    def pass_round() -> None:
        passed()
        for machine in one.world.running if crash and one.world.rounds % 10 == 0 else ():
            one.cloud.crash(machine.id)

    one.world.pass_round = pass_round  # type: ignore[method-assign]
    ended = one.run()
    assert (ended.outcome, ended.message) == (
        "failed",
        "6 machines in a row ended before their agents answered: port 22 is closed",
    )
    clean(one)
    assert [machine.market for machine in one.cloud.everything] == [MARKETS[0]] * 3 + [MARKETS[1]] * 3
    assert one.state().back_offs[MARKETS[0]].times == 1, "machines of one order count once"


class Split(FakeProvider):
    """A cloud whose machines in part `fake-0` cannot be listed from 3 minutes on, until `answers_at`."""

    answers_at = 0

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        found = super().list(tags)
        if self.time < START + 3 * MINUTE or self.time > self.answers_at:
            return found
        raise PartlyListed(Unanswered("down"), [one for one in found if one.id != "fake-0"], ("fake-0",))


@pytest.mark.parametrize("hours", [1, 1000])
def test_a_part_that_is_down_neither_stops_a_run_nor_loses_its_machines(tmp_path: Path, hours: int) -> None:
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
    assert len([row for row in one.rows() if isinstance(row.event, ev.MachineEnded)]) == len(one.cloud.everything)


def test_a_market_that_does_not_exist_is_asked_once(tmp_path: Path) -> None:
    one = life(tmp_path, rounds=2000)
    one.cloud.weather = for_market(0, Refusal(NotFound("no such market")))
    assert one.run().outcome == "done"
    asked = [call.asked for call in one.world.calls("create")]
    assert len([order for order in asked if isinstance(order, MachineRequest) and order.market == MARKETS[0]]) == 1


def test_markets_none_of_which_exists_end_a_run_at_once(tmp_path: Path) -> None:
    one = life(tmp_path)
    one.terms = terms(reliable=0)
    one.cloud.weather = always("create", Refusal(NotFound("the zone is not enabled")))
    ended = one.run()
    assert (ended.outcome, "the zone is not enabled" in ended.message) == ("no capacity", True)
    assert one.cloud.now() - START < 10 * MINUTE


def test_what_cannot_be_removed_yet_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """Each removal waits for two minutes by itself."""
    one = replace(life(tmp_path), retries=RetryPolicy(attempts=4, first_pause=0.0))
    one.cloud.weather = always("remove", Refusal(Unanswered("still in use")))
    left = Resource("security group", "sg-1", {})

    class Leaving(FakeProvider):
        def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
            return (*super().resources(tags), left)

    one.world.cloud = Leaving(Replayed.of(PRICES.values()), START, weather=one.cloud.weather)
    journal = Journal(MemoryLog(), RUN, one.cloud.now)
    journal.write(ev.RunBegan("job", one.cloud.name, {}, "", 0))
    rules = RunRules(lambda: (one.strategy, one.terms), one.tariff, one.limits)
    rented = replace(environment(one.cloud), rented=True)
    with stamina.set_testing(True, attempts=4):
        ended = Runner(journal, rented, one.work, rules, one.retries).run(one.world.pass_round, lambda: 0)
    assert "security group sg-1 could not be removed: spotctl gc" in ended.message
    assert len(one.world.calls("remove")) == 1


def test_prices_that_stay_away_end_a_run_and_say_why(tmp_path: Path) -> None:
    one = life(tmp_path, rounds=10**6)
    provider_prices(one)
    unknown = Refusal(ProviderError("no prices are stored"))
    one.cloud.weather = lambda call: unknown if call.name == "prices" and call.at > START + 3 * MINUTE else None
    ended = one.run()
    assert (ended.outcome, "nothing can be decided: no prices are stored" in ended.message) == ("failed", True)
    clean(one)
    reasons = [row.event.reason for row in one.rows() if isinstance(row.event, ev.Decided) and not row.event.wants]
    assert reasons == ["nothing can be decided: no prices are stored"], "logged once"


class Careless(FakeProvider):
    """A cloud that accepts `ignored` returns that have no effect, and whose machines outlive their leases."""

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
    assert all(machine.end_reason is EndReason.RETURNED for machine in one.cloud.everything), "not by its lease"
    assert one.cloud.now() - started < LEASE_TIMES.lease + HOUR


def test_machines_that_outlive_their_leases_are_returned_and_count_as_useless(tmp_path: Path) -> None:
    one = careless(tmp_path, 0, outlived=True)
    one.terms = terms(reliable=0)
    one.cloud.weather = lambda call: Refusal(Unanswered("port 22 is closed")) if call.name in LINKS else None
    ended = one.run()
    assert ended.outcome == "failed"
    assert ended.message.startswith("6 machines in a row")
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
    again = [event.id for row in one.rows() if isinstance(event := row.event, ev.MachineListedAgain)]
    first = one.cloud.everything[0]
    assert again == [first.id]
    (held,) = [held for held in one.state().machines.values() if held.id == first.id]
    assert (held.ended, held.end_reason) == (first.ended, "returned")


def test_a_machine_that_answered_ends_the_row_of_those_that_did_not(tmp_path: Path) -> None:
    one = life(tmp_path)
    one.run()
    state = one.state()
    started = {name: replace(held, ran=None, end_reason="lease ended") for name, held in state.machines.items()}
    silent = replace(state, machines=started)
    assert (silent.useless(0), silent.useless(1), silent.useless(2)) == (4, 3, 0)
    first = next(name for name, held in state.machines.items() if held.allocation == 1)
    assert replace(state, machines={**started, first: state.machines[first]}).useless(0) == 3


@pytest.mark.parametrize("error", [NoCapacity("none left"), QuotaReached("no more of these")])
def test_no_capacity_anywhere_ends_in_time(tmp_path: Path, error: ProviderError) -> None:
    one = replace(life(tmp_path), limits=RunLimits(without_machines=HOUR))
    one.cloud.weather = always("create", Refusal(error))
    ended = one.run()
    assert ended.outcome == "no capacity"
    assert str(error) in ended.message
    assert HOUR < one.cloud.now() - one.state().started < HOUR + 5 * MINUTE
    requests = [call for call in one.world.calls("create") if call.asked.market == MARKETS[1]]  # type: ignore[attr-defined]
    assert len(requests) < 12, "a market that refuses is in back-off"


def test_a_market_that_evicted_is_not_tried_first(tmp_path: Path) -> None:
    one = life(tmp_path, {8: (MARKETS[0], False)})
    one.run()
    spot = [machine.market for machine in one.cloud.everything if machine.bid is not None]
    assert spot == [MARKETS[0]] * 3 + [MARKETS[1]] * 3


def test_without_credentials_the_leases_end_the_machines(tmp_path: Path) -> None:
    one = life(tmp_path, rounds=10**6)
    provider_prices(one)
    expired = Refusal(NotPermitted("expired; log in again"))
    one.cloud.weather = lambda call: expired if call.at > START + 10 * MINUTE else None
    ended = one.run()
    assert (ended.outcome, ended.message) == ("not permitted", "expired; log in again")
    clean(one)
    leases = max(held.lease_until for held in one.state().machines.values())
    assert one.cloud.now() < leases + 5 * MINUTE
    assert "spent" not in ended.facts, "without prices, the cost is unknown"


def test_a_setting_that_the_cloud_does_not_know_ends_the_run(tmp_path: Path) -> None:
    """The machines that the run already has are returned."""
    one = life(tmp_path)
    unknown = Refusal(BadRequest("no such image"))
    one.cloud.weather = lambda call: unknown if call.name == "create" and one.world.calls("create")[1:] else None
    ended = one.run()
    assert (ended.outcome, ended.message) == ("failed", "no such image")
    clean(one)
    assert len(one.world.calls("create")) == 2


@pytest.mark.parametrize("error", [Throttled("slow down"), Unanswered("no answer"), ProviderError("out of order")])
def test_prices_that_are_unavailable_for_a_while(tmp_path: Path, error: ProviderError) -> None:
    one = life(tmp_path, {8: (MARKETS[0], True)})
    provider_prices(one)
    one.limits = RunLimits(budget=10 * budget.NANO_SECONDS_PER_DOLLAR)
    silent = range(START + 3 * MINUTE, START + 20 * MINUTE)
    one.cloud.weather = lambda call: Refusal(error) if call.name == "prices" and call.at in silent else None
    ended = one.run()
    assert ended.outcome == "done"
    assert ended.facts["spent"] == budget.spent(one.state(), one.cloud.now(), TARIFF)
    clean(one)


def provider_prices(one: Life) -> None:
    """Takes prices from the provider, which may fail."""
    one.tariff = Tariff(TARIFF.rule, lambda market, now: one.cloud.prices(market, START, now))


class FullLog(MemoryLog):
    """A log whose disk is full after `room` rows."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def append(self, run: str, at: int, event: ev.Event) -> LogRow:
        if len(self.rows) >= self.room:
            raise LogFailed("event log: disk full")
        return super().append(run, at, event)


@pytest.mark.parametrize("room", range(1, 18))
def test_a_full_disk_leaves_nothing_running(tmp_path: Path, room: int) -> None:
    one = life(tmp_path, {6: (MARKETS[0], False)})
    log = FullLog(room)
    one.opened = lambda: log
    with pytest.raises(LogFailed, match="disk full"):
        one.run()
    assert not one.world.running
    # Once there is space again, the run can be resumed.
    log.room = 10**6
    assert one.run().outcome == "done"
    clean(one)


def test_an_unexpected_error_leaves_nothing_running(tmp_path: Path) -> None:
    one = life(tmp_path)
    one.cloud.script("list", *[Refusal(Throttled("slow down"))] * 8)

    def fails(*_: object) -> None:
        if one.world.rounds == 12:
            raise ZeroDivisionError

    one.work.payload, before = one.work.payload, one.work.turn  # type: ignore[method-assign]
    one.work.turn = lambda *given: fails() or before(*given)  # type: ignore[method-assign,func-returns-value]
    with pytest.raises(ZeroDivisionError):
        one.run()
    assert not one.world.running


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_clock_that_jumps(tmp_path: Path, jump: int) -> None:
    one = life(tmp_path)

    def jumping(_: Call) -> None:
        if one.world.rounds == 6 and not jumped:
            one.cloud.time += jump
            jumped.append(jump)

    jumped: list[int] = []
    one.cloud.weather = jumping
    assert one.run().outcome == "done"
    clean(one)
    moments = [row.at for row in one.rows()]
    assert moments == sorted(moments), "the log's time went back"


def test_the_cost_follows_from_the_log(tmp_path: Path) -> None:
    one = life(tmp_path, {8: (MARKETS[0], True), 24: (MARKETS[1], False)})
    one.run()
    paid = 0
    for machine in one.cloud.everything:
        assert machine.ended is not None
        price = 200_000_000 if machine.bid is None else {MARKETS[0]: 50_000_000, MARKETS[1]: 60_000_000}[machine.market]
        paid += max(-(-(machine.ended - machine.started) // 10**6), 60) * price
    assert budget.spent(one.state(), one.cloud.now(), TARIFF) == paid


def test_the_log_on_disk_is_the_one_that_is_read(tmp_path: Path) -> None:
    one = life(tmp_path)
    one.run()
    with EventLog(tmp_path / "log.sqlite") as log:
        assert log.of_run(one.state().run) == one.rows()


def test_an_order_without_an_answer_is_given_up(tmp_path: Path) -> None:
    one = replace(life(tmp_path), limits=RunLimits(without_machines=HOUR))
    one.cloud.weather = always("create", Refusal(Unanswered("the line is dead")))
    assert one.run().outcome == "no capacity"
    assert not one.cloud.everything


def test_a_budget_that_will_not_last_is_reported_early(tmp_path: Path) -> None:
    one = life(tmp_path, rounds=2000)
    one.run()
    cost = budget.spent(one.state(), one.cloud.now(), TARIFF)
    short = replace(life(tmp_path / "short", rounds=2000), limits=RunLimits(budget=cost // 2))
    assert short.run().outcome == "budget reached"
    (exceeded,) = (
        row for row in short.rows() if isinstance(row.event, ev.BudgetExceeded) and row.event.action == ev.FINISH
    )
    assert isinstance(exceeded.event, ev.BudgetExceeded)
    assert exceeded.event.committed == pytest.approx(cost, rel=0.1)
    assert exceeded.at - START < (short.state().at - START) / 3, "long before its end"
    enough = replace(life(tmp_path / "enough", rounds=2000), limits=RunLimits(budget=cost * 2))
    assert enough.run().outcome == "done"
    assert not enough.state().over_budget


@pytest.mark.parametrize("minutes", [0, 1, 9])
def test_machines_of_an_order_that_is_refused_when_repeated_are_found(tmp_path: Path, minutes: int) -> None:
    one = life(tmp_path)
    orders: list[str] = []

    def meets(call: Call) -> Fault | None:
        """The first order succeeds, but its answer is lost and its machines are listed late; then none are left."""
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
    """An order succeeds unanswered and is refused when repeated; then the runner dies, and the run is stopped."""

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


def test_a_cloud_that_permits_nothing_is_not_asked_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = life(tmp_path)
    expired = Refusal(NotPermitted("the credentials have expired"))
    refused, rests = list[Call](), list[float]()

    def meets(call: Call) -> Fault | None:
        if call.name != "list" or one.world.rounds < 4:
            return None
        refused.append(call)
        return expired

    one.cloud.weather = meets
    monkeypatch.setattr("spotctl.run.service.time.sleep", rests.append)
    journal = Journal(EventLog(tmp_path / "log.sqlite"), RUN, one.cloud.now)
    journal.write(ev.RunBegan("job", one.cloud.name, {}, "", 0))
    rules = RunRules(lambda: (one.strategy, one.terms), one.tariff, one.limits)
    runner = Runner(journal, replace(environment(one.cloud), list_every=5.0), one.work, rules, one.retries)
    monkeypatch.setattr("spotctl.run.execute.time.monotonic", lambda: one.cloud.now() / 1e6)
    assert runner.run(one.world.pass_round, lambda: 0).outcome == NOT_PERMITTED
    assert rests == [5.0] * len(refused)
    assert refused


@pytest.mark.parametrize("error", [NotFound("gone"), Throttled("slow down"), Unanswered("no address yet")], ids=repr)
def test_a_machine_that_cannot_be_prepared_holds_up_no_other(tmp_path: Path, error: ProviderError) -> None:
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
    one.cloud.weather = lambda call: LostRequest() if call.name == "status" and call.asked == machines[0].id else None
    assert [seen.state for seen in executor.list_machines() or ()] == [MachineState.STARTING, MachineState.RUNNING]
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


def test_a_crash_returns_machines_of_parts_that_cannot_be_listed(tmp_path: Path) -> None:
    class Cloud(Split):
        answers_at = START + 1000 * HOUR

    one = life(tmp_path)
    one.world.cloud = Cloud(Replayed.of(PRICES.values()), START)

    def crash() -> None:
        one.world.pass_round()
        if one.world.rounds == 10:
            raise RuntimeError("a mistake of ours")

    journal = Journal(MemoryLog(), RUN, one.cloud.now)
    journal.write(ev.RunBegan("job", one.cloud.name, {}, "", 0))
    rules = RunRules(lambda: (one.strategy, one.terms), one.tariff, one.limits)
    with pytest.raises(RuntimeError) as failed:
        Runner(journal, environment(one.cloud), one.work, rules, RetryPolicy(1, 0.0, 0.0)).run(crash, lambda: 0)
    one.world.pass_round()
    assert not one.world.running
    assert failed.value.__notes__ == ["not returned: fake-0; each ends with its lease; spotctl gc returns them"]


def test_a_crash_returns_the_known_machines_although_the_list_is_refused(tmp_path: Path) -> None:
    one = life(tmp_path)

    def crash() -> None:
        one.world.pass_round()
        if one.world.rounds == 5:
            one.cloud.weather = lambda call: Refusal(NotPermitted("no")) if call.name == "list" else None
            raise RuntimeError("a mistake of ours")

    journal = Journal(MemoryLog(), RUN, one.cloud.now)
    journal.write(ev.RunBegan("job", one.cloud.name, {}, "", 0))
    rules = RunRules(lambda: (one.strategy, one.terms), one.tariff, one.limits)
    with pytest.raises(RuntimeError, match="a mistake"):
        Runner(journal, environment(one.cloud), one.work, rules, one.retries).run(crash, lambda: 0)
    one.world.pass_round()
    assert one.cloud.everything
    assert not one.world.running


@pytest.mark.parametrize("refused", [True, False])
def test_a_run_that_cannot_see_what_is_left_says_so(tmp_path: Path, refused: bool) -> None:
    one = life(tmp_path)
    one.cloud.weather = always("resources" if refused else "nothing", Refusal(NotPermitted("no")))
    journal = Journal(MemoryLog(), RUN, one.cloud.now)
    journal.write(ev.RunBegan("job", one.cloud.name, {}, "", 0))
    rules = RunRules(lambda: (one.strategy, one.terms), one.tariff, one.limits)
    rented = replace(environment(one.cloud), rented=True)
    ended = Runner(journal, rented, one.work, rules, one.retries).run(one.world.pass_round, lambda: 0)
    assert ended.outcome == "done"
    assert ("not known: spotctl gc" in ended.message) is refused
