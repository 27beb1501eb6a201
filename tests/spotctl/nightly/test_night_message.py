"""Messages about nights."""

from __future__ import annotations

from datetime import date, time
from pathlib import Path

import pytest

from pricing_data.units import HOUR
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.state import RunState
from spotctl.nightly.hours import Hours
from spotctl.nightly.night_message import NightResult, NightTotals, night_message
from spotctl.nightly.state_dir import Installed
from spotctl.run.notify import message_of_end
from tests.spotctl.show.costs.made import NIGHT, MadeRun

DOLLAR = 3600 * 10**9


NIGHTLY = Installed("a", Path("job.yaml"), Hours(time(2)), "cron", "")
PLACES = (Path("environment"), Path("log"))


def ended(provider: str, dollars: int) -> RunState:
    """A run that has ended and cost this much."""
    made = MadeRun(f"a-{provider}", "a", NIGHT, provider=provider)
    made.begin(kind="command")
    facts = {"spent": dollars * DOLLAR, "on_demand": 4 * dollars * DOLLAR}
    made.add(NIGHT + HOUR, ev.RunEnded("done", "", NIGHT + HOUR, facts))
    return fold(made.log())


def test_the_totals_of_a_night_do_not_mix_billed_and_replayed_money() -> None:
    billed, replayed = ended("aws", 3), ended("local", 5)
    for runs in ([billed], [billed, replayed]):
        totals = NightTotals(runs)
        assert (totals.spent, totals.on_demand, totals.replayed) == (3 * DOLLAR, 12 * DOLLAR, False)
    alone = NightTotals([replayed])
    assert (alone.spent, alone.on_demand, alone.replayed) == (5 * DOLLAR, 20 * DOLLAR, True)


@pytest.mark.parametrize(
    ("provider", "text"),
    [
        ("aws", "$5.00 (on demand $20.00)"),
        ("local", "$5.00 (on demand $20.00), replayed: nothing was billed"),
    ],
)
def test_messages_say_that_nothing_was_billed(provider: str, text: str) -> None:
    run = ended(provider, 5)
    assert run.ended is not None
    night = night_message(NightResult("done", ""), [run], date(2026, 6, 1), NIGHTLY, *PLACES)
    for message in (night, message_of_end("a", run, run.ended)):
        assert message.lines["Cost"] == text
        assert (message.facts["cost_usd"], message.facts["replayed"]) == (5.0, provider == "local")
