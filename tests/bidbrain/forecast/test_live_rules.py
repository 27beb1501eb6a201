"""Plays of long jobs look less often while nothing happens, and all plays wait for announced
evictions, as runs do.
"""

from dataclasses import dataclass, replace

import pytest

from bidbrain.forecast.windows import RareLooks, UnderLiveRules
from bidbrain.strategies.base import Decision, Holding, Offer, Rent, Return, Situation
from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, MINUTE

OFFER = Offer(Market("local", "east", "east-a", "c4.large"), 1.0, 10**8)
RENT = Rent(OFFER, 2, 10**8)
NOW = 1000 * HOUR


@dataclass(frozen=True)
class Polls:
    """Looks again after two minutes."""

    actions: tuple[Rent | Return, ...] = ()
    name: str = "polls"

    def decide(self, situation: Situation) -> Decision:
        return Decision(self.actions, situation.now + 2 * MINUTE)


@dataclass
class Counts:
    """Counts how often it is asked."""

    times: int = 0
    name: str = "counts"

    def decide(self, situation: Situation) -> Decision:
        self.times += 1
        return Decision((), situation.now + HOUR)


def at(now: int, *holdings: Holding) -> Situation:
    return Situation(now, (OFFER,), lambda _: 10**7, holdings, RENT, 2.0, 1.0)


def held(since: int, allocation: int = 0) -> Holding:
    return Holding(allocation, RENT, since, since + MINUTE)


def waits(strategy: RareLooks, situation: Situation) -> int:
    wake_at = strategy.decide(situation).wake_at
    assert wake_at is not None
    return wake_at - situation.now


def test_the_second_look_at_the_same_machines_is_followed_by_a_pause() -> None:
    strategy, machines = RareLooks(Polls(), 20 * MINUTE), held(NOW)
    assert waits(strategy, at(NOW + 2 * MINUTE, machines)) == 2 * MINUTE
    assert waits(strategy, at(NOW + 4 * MINUTE, machines)) == 20 * MINUTE


def test_no_pause_passes_the_end_of_a_paid_hour() -> None:
    strategy, machines = RareLooks(Polls(), 20 * MINUTE), (held(NOW), held(NOW - 25 * MINUTE, 1))
    strategy.decide(at(NOW + 20 * MINUTE, *machines))
    assert (
        waits(strategy, at(NOW + 22 * MINUTE, *machines)) == 11 * MINUTE
    )  # 2 minutes before the second's hour ends
    assert waits(strategy, at(NOW + 33 * MINUTE, *machines)) == 20 * MINUTE


@pytest.mark.parametrize(("least", "minutes"), [(0, 54), (30 * MINUTE, 54), (3 * HOUR, 234)])
def test_a_very_long_job_looks_before_the_first_end_of_a_paid_hour_after_its_least_pause(
    least: int, minutes: int
) -> None:
    strategy, machines = RareLooks(Polls(), DAY, least), held(NOW)
    strategy.decide(at(NOW + 2 * MINUTE, machines))
    assert waits(strategy, at(NOW + 4 * MINUTE, machines)) == minutes * MINUTE


@pytest.mark.parametrize(
    ("actions", "machines"),
    [
        ((), ()),
        ((Return(0),), (held(NOW),)),
        ((), (replace(held(NOW), leaves_at=NOW + HOUR),)),
        ((), (replace(held(NOW), ready=NOW + HOUR),)),
    ],
    ids=["nothing is held", "machines are returned", "machines leave", "machines start up"],
)
def test_while_something_happens_it_looks_as_often_as_before(
    actions: tuple[Return, ...], machines: tuple[Holding, ...]
) -> None:
    strategy = RareLooks(Polls(actions), 20 * MINUTE)
    assert [waits(strategy, at(NOW + minute * MINUTE, *machines)) for minute in (2, 4, 6)] == [
        2 * MINUTE
    ] * 3


def test_other_machines_are_looked_at_soon() -> None:
    strategy = RareLooks(Polls(), 20 * MINUTE)
    for minute in (2, 4):
        strategy.decide(at(NOW + minute * MINUTE, held(NOW)))
    assert waits(strategy, at(NOW + 6 * MINUTE, held(NOW, 1))) == 2 * MINUTE


@pytest.mark.parametrize(
    ("offered", "machines", "asked"), [((), (), 0), ((OFFER,), (), 1), ((), (held(NOW),), 1)]
)
def test_with_nothing_left_to_choose_from_it_waits_for_announced_evictions(
    offered: tuple[Offer, ...], machines: tuple[Holding, ...], asked: int
) -> None:
    asks = Counts()
    situation = replace(at(NOW, *machines), offers=offered, leaving={(OFFER.market, True): 2})
    UnderLiveRules(asks).decide(situation)
    UnderLiveRules(asks).decide(replace(situation, leaving={}))
    assert asks.times == asked + 1
