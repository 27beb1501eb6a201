"""The quick start does what the README says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bidbrain.forecast.windows import played_of, run_from
from bidbrain.replay.market import MarketReplay
from pricing_data.units import HOUR
from spotctl.clouds.wiring import library
from spotctl.files.job.reader import load as read_job
from spotctl.home.config import load
from spotctl.log.folding import fold
from spotctl.log.store import EventLog
from spotctl.planning.forecast import forecast_job, forecast_of
from spotctl.run.start.launch_plans import stored_plans
from tests.spotctl.command_line import spotctl

EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
RECORDING = Path(__file__).parents[2] / "docs" / "pictures" / "launch.svg"


def test_the_recording_shows_a_plan_that_contains_its_own_outcome() -> None:
    text = re.sub(r"<[^>]+>", "", RECORDING.read_text(encoding="utf-8"))
    low, high = map(float, re.findall(r"\$[\d.]+ \(\$([\d.]+) to \$([\d.]+)\)", text)[0])
    paid = float(re.findall(r"\$([\d.]+) for [\d.]+ hours of market time", text)[0])
    assert low <= paid <= high


def test_the_interval_holds_for_most_speeds_of_this_computer(tmp_path: Path) -> None:
    """The quick start in what really follows its start, launched faster and slower."""
    settings = load({}, tmp_path)
    known = library(settings)
    plan = stored_plans([read_job(EXAMPLE)], settings).plans[0]
    job, (low, high) = forecast_job(plan), forecast_of(plan).usd.likely
    histories = {offer.market: known.series(offer.market) for offer in job.offers}
    market = MarketReplay(histories.values())
    lucks = np.random.default_rng(7).normal(size=24).tolist()
    launched = [replace(job, times=job.times.drawn(one)) for one in lucks]
    runs = [run_from(one, market, histories, plan.at)[0] for one in launched]
    paid = [
        played_of(run, one, histories, plan.at).usd for run, one in zip(runs, launched, strict=True)
    ]
    # Costs come in whole hours, which the forecast scales to today's prices: a bound lies within a
    # cent of some.
    assert np.mean([0.99 * low <= one <= 1.01 * high for one in paid]) >= 0.7
    assert high < 1.5 * low


@pytest.mark.slow
def test_quick_start(tmp_path: Path) -> None:
    ended = spotctl("launch", EXAMPLE, "--yes", "--json")
    assert ended.code == 0, ended.err
    answer = ended.json
    assert (answer["outcome"], answer["updates_lost"], answer["updates_doubled"]) == ("done", 0, 0)
    assert answer["cost_usd"] < answer["on_demand_usd"] / 2
    with EventLog(tmp_path / "home" / "log.sqlite") as log:
        state = fold(log.of_run(answer["run"]))
    evicted = [held for held in state.machines.values() if held.end_reason == "evicted"]
    # The market goes on while machines start: how many groups it evicts depends on the computer.
    assert evicted
    # How many hours are begun depends on how fast the computer is; a busy one begins more.
    planned = state.planned
    assert planned is not None
    width, longer = (
        planned.usd_high - planned.usd_low,
        max((state.at - state.started) / HOUR / planned.hours, 1.0),
    )
    assert planned.usd_low - width <= answer["cost_usd"] <= (planned.usd_high + width) * longer
    log_file = Path(answer["model"]).with_name("iterations.jsonl")
    lines = [json.loads(line) for line in log_file.read_text().splitlines()][:-1]
    # How far it comes depends on the computer; that it falls does not.
    assert lines[-1]["loss"] < lines[0]["loss"] / 2
    assert not state.alive
