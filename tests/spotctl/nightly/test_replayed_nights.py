"""Nights on the local market: their money is replayed, is called so, and is in no sum with what a
cloud billed.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from pricing_data.units import DAY, HOUR
from spotctl.home.config import Settings
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.state import RunState
from spotctl.nightly.night_message import NightPaths, NightResult, NightTotals, night_message
from spotctl.nightly.reporting import write_report
from spotctl.run.notify import message_of_end
from tests.spotctl.show.costs.made import LOCAL, NIGHT, NOW, MadeRun, write_log

DOLLAR = 3600 * 10**9
PATHS = NightPaths("a", "job.yaml", "environment", "log")


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
        totals = NightTotals.of(runs)
        assert (totals.spent, totals.on_demand, totals.replayed) == (3 * DOLLAR, 12 * DOLLAR, False)
    alone = NightTotals.of([replayed])
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
    night = night_message(NightResult("done", ""), [run], date(2026, 6, 1), PATHS)
    for message in (night, message_of_end("a", run, run.ended)):
        assert message.lines["Cost"] == text
        assert (message.facts["cost_usd"], message.facts["replayed"]) == (5.0, provider == "local")


def made_run(run: str, provider: str, began: int) -> MadeRun:
    made = MadeRun(run, "a", began, provider=provider)
    made.begin()
    if provider == "local":
        made.price(LOCAL, [began, began + DAY], [100_000_000] * 2)
        made.end_machines(made.rent(LOCAL, 1, began), began + HOUR, "returned")
    made.finish(began + HOUR, clocks=10)
    return made


def test_a_local_night_of_a_job_that_ran_on_a_cloud_has_its_report(tmp_path: Path) -> None:
    write_log([made_run("a-0", "aws", NIGHT - DAY), made_run("a-1", "local", NIGHT)], tmp_path)
    answer = write_report(Settings(tmp_path), "a", NIGHT, NOW, tmp_path / "costs.html")
    assert [group["run"] for group in answer["groups"]] == ["a-1"]
    assert answer["replayed"]["reported"] is True
    assert "replayed, not billed" in (tmp_path / "costs.html").read_text()
    assert "replayed, not billed" in answer["markdown"].replace("\\", "")
