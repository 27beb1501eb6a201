"""What earlier runs teach: by hand, from made-up truths, and whether plans come closer to what
happens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bidbrain.eviction.hazard import PRIOR
from pricing_data.library import Library
from pricing_data.market import Market
from pricing_data.store import PriceStore
from pricing_data.units import DAY, HOUR, MINUTE
from spotctl.files.job import reader
from spotctl.files.job.reader import loads
from spotctl.home.config import Settings
from spotctl.log import events as ev
from spotctl.log.budget import Tariff
from spotctl.log.events import Event
from spotctl.log.folding import fold
from spotctl.log.ledger.same_work import same_work
from spotctl.log.ledger_reader import read
from spotctl.log.state import LogRow
from spotctl.planning.facts import Learned, Observed, completed, hazards, job_of, learn
from spotctl.planning.values import TypeSpeed
from spotctl.run.start.earlier_runs import learn_from_runs, observations_of
from tests.samples import LONG_RUN
from tests.spotctl.command_line import spotctl
from tests.spotctl.log.ledger.histories import FIRST_NIGHT, JOB, Truth, plan_of
from tests.spotctl.planning.closer import missed

VCPUS = {"small": 4.0, "large": 8.0}
AT = DAY * 20_000
SMALL = Market.parse("aws/us-east-1/us-east-1a/c4.xlarge")


WorkOfSize = tuple[int, float, dict[str, float]]
"""A number of machines, the clocks while that many ran, and their hours by type."""


def run_of(*work: WorkOfSize, wall: int = 0, done: bool = True) -> Observed:
    clocks, hours = (
        {size: clocks for size, clocks, _ in work},
        {size: hours for size, _, hours in work},
    )
    total = sum(sum(by_type.values()) for by_type in hours.values())
    return Observed(wall, done, total, clocks, hours, (), (), ())


def learned_of(*runs: Observed, machines: int | None = 1) -> Learned:
    found = learn(runs, VCPUS, machines, 5 * MINUTE, MINUTE)
    assert found is not None
    return found


def events(market: Market, reason: str, price: int, *told: tuple[int, Event]) -> list[LogRow]:
    """A reliable machine and two under a bid of 100 for two hours, the last of which somebody may
    take.
    """
    began: list[tuple[int, Event]] = [
        (0, ev.RunBegan("job", "aws", {"kind": "agileml"}, "", 0)),
        (0, ev.RentIntended(1, market, 2, 100, 400, 4.0, False, AT + HOUR)),
        (0, ev.Rented(1, (ev.Granted("a", AT), ev.Granted("b", AT)))),
        (0, ev.RentIntended(2, market, 1, None, 400, 4.0, True, AT + HOUR)),
        (0, ev.Rented(2, (ev.Granted("reliable", AT),))),
        (1, ev.MachineRan("reliable")),
        (1, ev.MachineRan("a")),
        (1, ev.MachineRan("b")),
    ]
    ended: list[tuple[int, Event]] = [
        (120, ev.MachineEnded("reliable", AT + 120 * MINUTE, "returned")),
        (120, ev.MachineEnded("a", AT + 120 * MINUTE, "returned")),
        (120, ev.MachineEnded("b", AT + 120 * MINUTE, reason)),
        (
            120,
            ev.Priced(
                market, "per-second", (AT, AT + 119 * MINUTE, AT + 120 * MINUTE), (50, price, price)
            ),
        ),
        (120, ev.RunEnded("done", "", 77)),
    ]
    return [
        LogRow(number, "job-1", AT + at * MINUTE, event)
        for number, (at, event) in enumerate([*began, *told, *ended])
    ]


def no_prices() -> Tariff:
    def asked(*_: object) -> Any:  # noqa: ANN401 - nothing comes back
        raise AssertionError("an ended run has its own")

    return Tariff(asked, asked)


def test_evictions_of_own_runs_give_the_market_a_hazard() -> None:
    one = observations_of(events(SMALL, "evicted", 50), no_prices())
    assert one is not None
    assert hazards((), AT)(SMALL) is None
    met = hazards((), AT, learned_of(one).evidence)(SMALL)
    assert met is not None
    # Between what is assumed without a record, and one eviction in the four hours of the run.
    assert PRIOR.rate[0] < met.rate[0] < 1 / 4


def test_a_run_that_goes_on_teaches_nothing_yet() -> None:
    assert observations_of(events(SMALL, "returned", 50)[:-1], no_prices()) is None
    assert learn((), VCPUS, 1, 1, 1) is None


def test_throughput_is_what_was_done_in_an_hour() -> None:
    found = learned_of(*(run_of((4, 80.0, {"large": 8.0}), wall=wall) for wall in (3, 9, 5)))
    (one,) = found.speeds.values()
    assert (one.nu, found.size) == pytest.approx((10.0, 4.0))
    assert one.source == "throughput of large: 10 clocks/h from 3 runs, last 1970-01-01"
    assert found.per_hour("large", 16) == pytest.approx(10.0)


def test_types_are_told_apart_when_both_were_used_and_alike_before() -> None:
    """A small machine does 9 clocks an hour, a large one 10: vCPUs alone would say 2 to 1."""
    once = learned_of(run_of((4, 9.0 * 3 + 10.0, {"small": 3.0, "large": 1.0}))).speeds
    assert once["large"].nu / once["small"].nu == pytest.approx(2.0, rel=0.35)
    # Two runs that hardly differ but by chance do not tell types apart: exactly solved, a small one
    # would do nothing.
    twice = [run_of((4, 37.0, {"small": a, "large": 1.0})) for a in (3.0, 3.2)]
    alike = learned_of(*twice).speeds
    assert 1.3 < alike["large"].nu / alike["small"].nu < 4
    mixes = [(3.0, 1.0), (1.0, 3.0), (8.0, 0.5), (0.5, 8.0), (2.0, 2.0)]
    runs = [run_of((4, 9 * a + 10 * b, {"small": a, "large": b})) for a, b in mixes]
    found = learned_of(*runs).speeds
    assert found["small"].nu == pytest.approx(9.0, rel=0.01)
    assert found["large"].nu == pytest.approx(10.0, rel=0.01)


def test_scaling_shows_within_runs_and_leans_on_none() -> None:
    def scaled(size: int) -> WorkOfSize:
        return (size, 1000 * size**0.9, {"large": 100.0 * size})

    assert learned_of(run_of(scaled(8))).scaling == 0.0
    many = learned_of(*(run_of(*map(scaled, (1, 2, 4, 8))) for _ in range(20)))
    assert many.scaling == pytest.approx(-0.1, rel=0.05)
    few = learned_of(run_of(scaled(4), scaled(8)))
    assert -0.05 < few.scaling < -0.01
    assert many.per_hour("large", 1) == pytest.approx(10.0, rel=0.02)
    assert many.per_hour("large", 16) == pytest.approx(10 * 16**-0.1, rel=0.02)


def test_types_that_were_used_at_different_sizes_are_compared_at_one() -> None:
    def cell(size: int, name: str) -> WorkOfSize:
        return (size, VCPUS[name] * 100 * size**0.9, {name: 100.0 * size})

    runs = [
        run_of(*(cell(size, name) for size in (1, 2, 4, 8))) for name in VCPUS for _ in range(9)
    ]
    found = learned_of(*runs, run_of(cell(1, "small")), run_of(cell(8, "large")))
    apart = learned_of(
        *runs[:4], *(run_of(cell(1, "small")) for _ in range(8)), *(run_of(cell(8, "large")),) * 8
    )
    for one in (found, apart):
        assert one.per_hour("small", 8) == pytest.approx(4 * 8**-0.1, rel=0.04)
        assert one.per_hour("large", 8) == pytest.approx(8 * 8**-0.1, rel=0.04)


def test_spans_lean_on_what_was_assumed() -> None:
    def started(count: int) -> float:
        run = Observed(0, True, 1.0, {}, {}, (11.0 * MINUTE,) * count, (), ())
        return learned_of(run).startup / MINUTE

    assert [started(count) for count in (0, 1, 4, 20)] == pytest.approx([5.0, 6.2, 8.0, 10.0])
    assert not learned_of(run_of()).remarks, "nothing was measured"
    once = learned_of(Observed(0, True, 1.0, {}, {}, (11.0 * MINUTE,), (), ()))
    assert once.remarks == ("start-up 6.2 minutes (assumed 5.0, measured once)",)


def test_hours_of_work_that_is_not_counted_are_those_of_runs_that_were_done() -> None:
    runs = [
        run_of((2, 0.0, {"small": hours}), done=done)
        for hours, done in ((4.0, True), (6.0, True), (1.0, False))
    ]
    assert learned_of(*runs, machines=2).hours == 2.5
    assert learned_of(*runs, machines=None).hours is None


def test_old_runs_are_left_out() -> None:
    old = [run_of((1, 10.0, {"small": 10.0}), wall=wall) for wall in range(30)]
    new = [run_of((1, 20.0, {"small": 10.0}), wall=100 + wall) for wall in range(20)]
    assert learned_of(*new, *old).speeds["small"].nu == pytest.approx(2.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_hidden_truth_is_found_in_noisy_runs(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def noisy() -> Observed:
        pace, cells = rng.normal(1, 0.05), []
        for size in rng.choice([2, 4, 6, 8], 3, replace=False):
            a, b = rng.uniform(1, 20, 2)
            cells.append(
                (int(size), float(pace * (5 * a + 11 * b) * size**-0.08), {"small": a, "large": b})
            )
        return run_of(*cells)

    found = learned_of(*(noisy() for _ in range(20)))
    assert found.per_hour("small", 8) == pytest.approx(5 * 8**-0.08, rel=0.15)
    assert found.per_hour("large", 8) == pytest.approx(11 * 8**-0.08, rel=0.15)


@LONG_RUN
def test_plans_come_closer_with_every_night(tmp_path: Path) -> None:
    """Each night is planned after what the nights before it taught; no plan knows the truth."""
    home = tmp_path / "home"
    settings, known = Settings(home=home), Library(PriceStore(home / "prices"))
    first, *later = missed(home, 4, 1, Truth(lost=20.0, loading=12.0))
    assert min(first) > 0.5
    assert max(hours for hours, _ in later) < 0.15
    assert max(usd for _, usd in later) < 0.3

    runs = {run.run: run for run in (fold(run.events) for run in read(settings))}
    for run in read(settings):
        state = runs[run.events[0].run]
        ended = state.ended
        assert ended is not None
        assert ended.facts["spent"] == run.ledger.amount
        assert ended.facts["on_demand"] == same_work(state, state.at).amount

    spec = reader.load(home / "job.yaml")
    walls = sorted(run.ended.wall_us for run in runs.values() if run.ended is not None)
    learned = learn_from_runs(settings, known, (spec,), walls[1])
    assert learned[spec.name].runs == 2
    overheads = plan_of(spec, known, FIRST_NIGHT + DAY, learned).decider.overheads
    assert (overheads.startup, overheads.eviction) == (
        learned[spec.name].startup,
        learned[spec.name].eviction,
    )

    told = spotctl("plan", home / "job.yaml", "--json")
    assert told.code == 0
    assert told.json["throughputs"]["c4.xlarge"]["source"].endswith(
        "clocks/h from 4 runs, last 2026-11-20"
    )
    shown = spotctl("plan", home / "job.yaml")
    assert "nightly-recsys: start-up" in shown.err
    other = home / "other.yaml"
    other.write_text(JOB.replace("app: mf", "app: mf\nargs: {rank: 99}"))
    assert "runs" not in spotctl("plan", other, "--json").json["throughputs"]["c4.xlarge"]["source"]
    assert reader.load(other).name == spec.name


def test_a_job_that_ends_after_minutes_is_not_planned_by_the_hours_of_earlier_runs() -> None:
    text = (
        "name: a\nkind: agileml\napp: mf\nresources: {clouds: [local], machines: 2..2}\nstop: "
        "{%s}\n"
    )
    learned = learned_of(run_of((2, 0.0, {"small": 5.0}), done=True), machines=2)
    assert learned.hours is not None
    for stop, expected in (
        ("minutes: 90", None),
        ("clocks: 9", None),
        ("loss: 0.1", learned.hours),
    ):
        assert job_of(loads(text % stop, Path("job.yaml")), 0, learned).hours == expected
    # The time that earlier runs took overrules the one that the job file says.
    assert (
        job_of(loads(f"{text % 'loss: 0.1'}hours: 9h\n", Path("job.yaml")), 0, learned).hours
        == learned.hours
    )


def test_other_jobs_tell_how_fast_a_job_is_on_a_type_that_it_has_not_run_on() -> None:
    """On `large` all do three times the work of `small`, in their own units, although it has twice
    the vCPUs.
    """
    others = [
        {"small": speed, "large": 3 * speed * (1 + 0.01 * number)}
        for number, speed in enumerate([1, 20, 7, 0.3] * 2)
    ]
    own = {"small": TypeSpeed(5.0, "measured")}
    told = completed({}, own, others, VCPUS)
    assert told["small"] is own["small"]
    assert told["large"].nu == pytest.approx(15.0, rel=0.05)
    assert told["large"].source.startswith(
        "completed from 8 other jobs (2% off on 8 held-out throughputs, by vCPUs 4"
    )
    assert told["large"].spread < 0.1
    assert "large" not in completed({"large": 9.0}, own, others, VCPUS)
    # Too few jobs: vCPUs decide.
    assert completed({}, own, others[:3], VCPUS) == own
