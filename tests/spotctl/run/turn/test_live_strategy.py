"""What a run adds to a situation: what was written, what an eviction would undo, what the budget
leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from bidbrain.eviction.hazard import PRIOR
from bidbrain.strategies.base import Decision, Situation
from bidbrain.strategies.spells import AGES, CLASSES
from pricing_data.units import HOUR, MINUTE
from spotctl.files.job.programs import Command
from spotctl.log import events as ev
from spotctl.log.folding import NO_MACHINES, fold
from spotctl.log.state import LogRow, RunState
from spotctl.run.turn.live_strategy import LiveStrategy, refused_of
from tests.spotctl.run.worlds import OFFERS, START, TARIFF, terms

if TYPE_CHECKING:
    from spotctl.planning.values import JobPlan


@dataclass
class Asked:
    """A decision object that keeps the situation it was given."""

    most_nu: float = 64.0
    speed: float = 0.5
    offers: tuple[object, ...] = OFFERS
    name: str = "asked"
    given: list[Situation] = field(default_factory=list)

    def decide(self, situation: Situation) -> Decision:
        self.given.append(situation)
        return Decision()


BEGAN = ev.AttemptBegan(1, ("m-1",), 0)
WRITTEN = ev.Checkpointed(1, 0, 1, 10, 1.0, 600.0)


def state(*events: tuple[int, ev.Event]) -> RunState:
    return fold(LogRow(i, "r", START + at, event) for i, (at, event) in enumerate(events, start=1))


@pytest.mark.parametrize(
    ("events", "resumes", "unsaved_minutes"),
    [
        ((), True, 0),
        (((0, BEGAN),), False, 60),
        (((0, BEGAN), (40 * MINUTE, WRITTEN)), True, 20),
    ],
)
def test_a_checkpoint_counts_once_it_was_written(
    events: tuple[tuple[int, ev.Event], ...], resumes: bool, unsaved_minutes: int
) -> None:
    """The job declares a checkpoint in all cases."""
    asked, program = Asked(), Command("true")
    plan = SimpleNamespace(
        decider=asked,
        fleet=SimpleNamespace(work=64.0 * 5 * HOUR),
        demand=SimpleNamespace(worded=str),
        job=SimpleNamespace(spec=SimpleNamespace(program=program)),
    )
    live = LiveStrategy(cast("JobPlan", plan), lambda: state(*events), lambda: (1.5, 0.0), TARIFF)
    given = terms()
    live.decide(Situation(START + HOUR, OFFERS, lambda _: 1, (), given.baseline, 64.0, 1.0))
    (seen,) = asked.given
    assert seen.record.resumes is resumes
    # Checkpoints take half of the time, which is neither work done nor work to lose.
    assert seen.unsaved == pytest.approx(0.5 * 64.0 * unsaved_minutes * MINUTE)
    worked = 60 if events else 0
    assert seen.work_left == pytest.approx(64.0 * (5 * HOUR - 0.5 * worked * MINUTE))
    assert seen.usd_left == 1.5
    assert seen == replace(seen, holdings=())


def test_refusals_are_forgotten_after_a_while_but_not_those_of_markets_and_quotas_that_hold_nothing() -> (
    None
):
    reasons = ("NoCapacity", "QuotaReached", "NotFound")
    markets = [replace(OFFERS[0].market, zone=zone) for zone in "cde"]
    rows: list[tuple[int, ev.Event]] = []
    for intent, (market, why) in enumerate(zip(markets, reasons, strict=True), start=1):
        rows.append((0, ev.RentIntended(intent, market, 3, None, 1, 4.0, False, START + HOUR)))
        rows.append((MINUTE, ev.RentRefused(intent, why, "no")))
    missing = {(markets[2], True): 0, (markets[2], False): 0}
    found = state(*rows)
    assert refused_of(found, START + HOUR) == missing | {
        (markets[0], False): 3,
        (markets[1], False): 3,
    }
    assert refused_of(found, START + 3 * HOUR) == missing | {(markets[1], False): 3}


@pytest.mark.parametrize("offered", [False, True])
def test_the_spell_is_the_one_that_the_orders_of_the_run_met(offered: bool) -> None:
    """Refused for 40 minutes, last ten minutes ago; prices would say that spot was there all the
    time.
    """
    offer = OFFERS[0]
    events: list[tuple[int, ev.Event]] = [(0, ev.RunBegan("job", "aws", {}, "", 0))]
    for number, minutes in enumerate((0, 20, 40), start=1):
        order = ev.RentIntended(
            number, offer.market, 1, 9, 9, 1.0, reliable=False, lease_until=START + HOUR
        )
        events += [
            (minutes * MINUTE, order),
            (minutes * MINUTE, ev.RentRefused(number, NO_MACHINES, "none")),
        ]
    asked = Asked(offers=(offer,))
    history = SimpleNamespace(now=START, hazards={offer.market: PRIOR}, spells={})
    plan = SimpleNamespace(
        decider=asked,
        fleet=SimpleNamespace(work=64.0 * 5 * HOUR, market_history=history),
        demand=SimpleNamespace(worded=str),
        job=SimpleNamespace(spec=SimpleNamespace(program=Command("true"))),
    )
    live = LiveStrategy(cast("JobPlan", plan), lambda: state(*events), lambda: (1.5, 0.0), TARIFF)
    offers = (offer,) if offered else ()
    live.decide(
        Situation(START + 50 * MINUTE, offers, lambda _: 1, (), terms().baseline, 64.0, 1.0)
    )
    known = asked.given[0].spell
    assert known is not None
    spell = known()
    assert spell is not None
    assert spell.up is offered
    minutes = AGES[spell.state % CLASSES] / MINUTE
    # If it may be asked again and has returned, it has done so at some time since the last refusal.
    assert minutes == (0 if offered else 50)
