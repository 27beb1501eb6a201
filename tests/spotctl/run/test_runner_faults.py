"""Runners that crash, whose disk is full or whose clock jumps: what is left is returned, or
named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import stamina

from pricing_data.units import HOUR, MINUTE
from spotctl.clouds.errors import NotPermitted, PartlyListed, ProviderError, Throttled, Unanswered
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import Resource
from spotctl.log import budget, events as ev
from spotctl.log.outcomes import LogFailed
from spotctl.log.state import LogRow
from spotctl.log.store import EventLog
from spotctl.run.turn.execute import RetryPolicy
from tests.spotctl.clouds.fake import Call, FakeProvider, Refusal
from tests.spotctl.run.faults import Split, always, begun, clean
from tests.spotctl.run.worlds import MARKETS, PRICES, START, TARIFF, MemoryLog, life

LEFT = Resource("security group", "sg-1", {})


class Leaving(FakeProvider):
    """A cloud in which a run leaves a security group."""

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        return (*super().resources(tags), LEFT)


def removing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fault: Refusal, until: int, name: str = "remove"
) -> tuple[ev.RunEnded, Leaving]:
    """The end of a run whose removals fail until a time, and its cloud. Its pauses pass on the
    market's clock.
    """
    one = replace(life(folder), retries=RetryPolicy(attempts=4, first_pause=0.0))

    def weather(call: Call) -> Refusal | None:
        return fault if call.name == name and call.at < until else None

    cloud = one.world.cloud = Leaving(Replayed.of(PRICES.values()), START, weather=weather)
    monkeypatch.setattr(
        "spotctl.run.turn.ending.time.sleep", lambda seconds: cloud.advance(seconds * cloud.speed)
    )
    with stamina.set_testing(True, attempts=4):
        return begun(one, rented=True).run(one.world.pass_round, lambda: 0), cloud


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("remove", Unanswered("down")),
        ("resources", Unanswered("down")),
        ("resources", PartlyListed(PartlyListed(Unanswered("down"), (), ()), (), ("fake-0",))),
    ],
)
def test_what_cannot_be_removed_for_two_minutes_is_removed_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: ProviderError
) -> None:
    undisturbed, cloud = removing(tmp_path, monkeypatch, Refusal(error), START)
    until = cloud.calls[-1].at + 2 * MINUTE
    ended, cloud = removing(tmp_path, monkeypatch, Refusal(error), until, name)
    assert ended.message == undisturbed.message == ""
    assert [call.at for call in cloud.calls if call.name == "remove"][-1] >= until


def test_what_cannot_be_removed_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, cloud = removing(
        tmp_path, monkeypatch, Refusal(Unanswered("still in use")), START + 99 * HOUR
    )
    assert "security group sg-1 could not be removed: run spotctl gc" in ended.message
    removals = [call.at for call in cloud.calls if call.name == "remove"]
    assert removals[-1] - removals[0] < 5 * MINUTE


def test_what_may_not_be_removed_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, cloud = removing(tmp_path, monkeypatch, Refusal(NotPermitted("no")), START + 99 * HOUR)
    assert "security group sg-1 could not be removed: run spotctl gc" in ended.message
    assert [call.name for call in cloud.calls].count("remove") == 1


class FullLog(MemoryLog):
    """A log whose disk is full after `room` rows."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def append_if(
        self, run: str, at: int, event: ev.Event, holds: Callable[[], bool]
    ) -> LogRow | None:
        if len(self.rows) >= self.room:
            raise LogFailed("event log: disk full")
        return super().append_if(run, at, event, holds)


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
        price = (
            200_000_000
            if machine.bid is None
            else {MARKETS[0]: 50_000_000, MARKETS[1]: 60_000_000}[machine.market]
        )
        paid += max(-(-(machine.ended - machine.started) // 10**6), 60) * price
    assert budget.spent(one.state(), one.cloud.now(), TARIFF) == paid


def test_the_log_on_disk_is_the_one_that_is_read(tmp_path: Path) -> None:
    one = life(tmp_path)
    one.run()
    with EventLog(tmp_path / "log.sqlite") as log:
        assert log.of_run(one.state().run) == one.rows()


def test_a_crash_returns_machines_of_parts_that_cannot_be_listed(tmp_path: Path) -> None:
    class Cloud(Split):
        answers_at = START + 1000 * HOUR

    one = life(tmp_path)
    one.world.cloud = Cloud(Replayed.of(PRICES.values()), START)

    def crash() -> None:
        one.world.pass_round()
        if one.world.rounds == 10:
            raise RuntimeError("a mistake of ours")

    with pytest.raises(RuntimeError) as failed:
        begun(one).run(crash, lambda: 0)
    one.world.pass_round()
    assert not one.world.running
    assert failed.value.__notes__ == [
        "not returned: fake-0; each ends with its lease; spotctl gc returns them"
    ]


def test_a_crash_returns_the_known_machines_although_the_list_is_refused(tmp_path: Path) -> None:
    one = life(tmp_path)

    def crash() -> None:
        one.world.pass_round()
        if one.world.rounds == 5:
            one.cloud.weather = lambda call: (
                Refusal(NotPermitted("no")) if call.name == "list" else None
            )
            raise RuntimeError("a mistake of ours")

    with pytest.raises(RuntimeError, match="a mistake"):
        begun(one).run(crash, lambda: 0)
    one.world.pass_round()
    assert one.cloud.everything
    assert not one.world.running


@pytest.mark.parametrize("refused", [True, False])
def test_a_run_that_cannot_see_what_is_left_says_so(tmp_path: Path, refused: bool) -> None:
    one = life(tmp_path)
    one.cloud.weather = always("resources" if refused else "nothing", Refusal(NotPermitted("no")))
    ended = begun(one, rented=True).run(one.world.pass_round, lambda: 0)
    assert ended.outcome == "done"
    assert ("could not be listed: run spotctl gc" in ended.message) is refused
