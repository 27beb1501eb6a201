"""Jobs that share the local market: one clock for all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pricing_data.units import HOUR, parse_time
from spotctl.clouds.wiring import local_provider
from spotctl.files.job.programs import Command
from spotctl.files.job.reader import from_fields, written
from spotctl.files.job.spec import JobSpec
from spotctl.files.job.values import Nodes
from spotctl.home.config import load
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log import events as ev
from spotctl.log.events import RunBegan
from spotctl.log.folding import fold
from spotctl.log.jobs import JobLock
from spotctl.log.state import LogRow, RunState
from spotctl.log.store import EventLog
from spotctl.run.start.live_markets import begin_market, continue_market, market_now, on_one_market
from spotctl.run.start.runs import awaits_programs
from tests.spotctl.run.turn.test_budget_check_rest import JOB
from tests.spotctl.run.worlds import OFFERS


def job(name: str, clouds: tuple[str, ...] = ("local",), **local: object) -> JobSpec:
    described = {
        "name": name,
        "kind": "command",
        "run": "true",
        "resources": {"clouds": list(clouds)},
    }
    return from_fields({**described, "local": local} if local else described)


def test_the_first_start_and_the_lowest_speed_hold_for_all() -> None:
    asked = [
        job("a", speed=600),
        job("b", start="2026-01-20T00:00:00Z", speed=60),
        job("c", start="2026-01-25T00:00:00Z"),
    ]
    shared, (remark,) = on_one_market(asked)
    start = parse_time("2026-01-20T00:00:00Z")
    assert [(one.name, one.local.start, one.local.speed) for one in shared] == [
        (name, start, 60) for name in "abc"
    ]
    assert (
        remark
        == "the jobs share one local market, which runs at speed 60 from 2026-01-20T00:00:00Z on"
    )


def test_jobs_that_agree_or_that_are_alone_stay_as_they_are() -> None:
    for asked in (
        [job("a", speed=60)],
        [job("a", speed=60), job("b", speed=60, seed=4)],
        [job("a", ("aws",)), job("b")],
    ):
        assert on_one_market(asked) == (asked, ())


def begun(home: Path, spec: JobSpec) -> RunState:
    """A run that has just begun, in the log."""
    settings = load({}, home)
    begin_market(spec, settings)
    now = local_provider(settings, spec).now()
    with EventLog(home / "log.sqlite") as log:
        log.append(
            f"{spec.name}-1", now, RunBegan(spec.name, "local", written(spec), "", wall_us())
        )
        return fold(log.of_run(f"{spec.name}-1"))


def test_a_market_on_which_a_run_waits_without_machines_is_joined(tmp_path: Path) -> None:
    settings = load({}, tmp_path)
    waiting, other = job("a", start="2026-01-20T00:00:00Z"), job("b", start="2026-01-15T00:00:00Z")
    state = begun(tmp_path, waiting)
    with JobLock(Paths(tmp_path).locks, "a"):
        begin_market(other, settings)
        assert local_provider(settings, other).now() >= state.at
        planned_for = market_now([other], settings)
        assert planned_for is not None
        assert planned_for >= state.at
        with pytest.raises(BadRequest, match="wait for them, or set the same speed"):
            begin_market(job("c", speed=60), settings)
    begin_market(other, settings)
    assert local_provider(settings, other).now() < state.at


@pytest.mark.parametrize("since", ["2026-01-15T00:00:00Z", "2026-01-25T00:00:00Z"])
def test_an_interrupted_run_goes_on_at_its_own_time_if_the_market_was_started_again(
    tmp_path: Path, since: str
) -> None:
    settings = load({}, tmp_path)
    interrupted, other = job("a", start="2026-01-20T00:00:00Z"), job("b", start=since)
    state = begun(tmp_path, interrupted)
    begun(tmp_path, other)
    continue_market(state, interrupted, settings)
    assert state.at <= local_provider(settings, interrupted).now() < state.at + HOUR


def test_a_run_is_not_resumed_while_the_market_is_at_an_earlier_time_for_others(
    tmp_path: Path,
) -> None:
    interrupted, other = (
        job("a", start="2026-01-20T00:00:00Z"),
        job("b", start="2026-01-15T00:00:00Z"),
    )
    state = begun(tmp_path, interrupted)
    begun(tmp_path, other)
    with (
        JobLock(Paths(tmp_path).locks, "b"),
        pytest.raises(BadRequest, match="resume it once they have ended"),
    ):
        continue_market(state, interrupted, load({}, tmp_path))


def test_a_market_that_went_on_is_left_alone(tmp_path: Path) -> None:
    spec = job("a", start="2026-01-20T00:00:00Z", speed=1000)
    state = begun(tmp_path, spec)
    before = (tmp_path / "local" / "clock.json").read_text()
    continue_market(state, spec, load({}, tmp_path))
    assert (tmp_path / "local" / "clock.json").read_text() == before


ORDER = ev.RentIntended(1, OFFERS[0].market, 1, None, 1, 4.0, reliable=False, lease_until=HOUR)
RENTED = (ORDER, ev.Rented(1, (ev.Granted("m-1", 0),)))
BEGAN = ev.AttemptBegan(1, ("m-1",), 0)


@pytest.mark.parametrize(
    ("kind", "events", "awaits"),
    [
        ("command", (), False),
        ("command", (ORDER,), False),
        ("command", RENTED, True),
        ("two nodes", RENTED, False),
        ("command", (*RENTED, BEGAN), False),
        ("command", (*RENTED, BEGAN, ev.AttemptStopped(1, "moves")), True),
        ("command", (*RENTED, ev.MachineWarned("m-1", HOUR, "eviction", "local")), False),
        ("command", (*RENTED, ev.MachineEnded("m-1", 1, "evicted")), False),
        ("command", (*RENTED, ev.StopRequested("done", "", {})), False),
        ("training", RENTED, True),
        ("training", (*RENTED, ev.Progressed(1, None, 2)), False),
    ],
)
def test_a_run_awaits_programs_only_if_it_has_its_machines_and_none_works(
    kind: str, events: tuple[ev.Event, ...], awaits: bool
) -> None:
    """While a run waits for the market, a market that waits for the run would last a minute
    longer."""
    spec = job("waits")
    if kind == "training":
        spec = from_fields(JOB)
    elif kind == "two nodes":
        spec = replace(spec, program=Command("true", Nodes(2, 2)))
    state = fold(LogRow(number, "r", number, event) for number, event in enumerate(events, start=1))
    assert awaits_programs(spec, state) is awaits
