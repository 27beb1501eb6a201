"""What the same work would have cost on demand, recomputed here from the raw events, and the steps
to what was paid.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pricing_data.units import DAY, HOUR, MINUTE
from spotctl.log import event_json, events as ev
from spotctl.log.folding import fold
from spotctl.log.ledger.rows import nano_dollars
from spotctl.log.ledger.same_work import MAYBE_REDONE, NOT_MEASURED, same_work
from spotctl.show.costs.answers import as_json
from tests.spotctl.command_line import spotctl
from tests.spotctl.log.ledger.recount import recounted
from tests.spotctl.show.costs.made import LOCAL, NIGHT, MadeRun, month, report_of, write_log

PRICE = 400_000_000
OFFER = ev.OnDemandOffer(LOCAL, 1, PRICE, 1.0, 5 * MINUTE, 0.05)


def _run(
    minutes: list[float], outcome: str = "done", name: str = "r-1", offer: ev.OnDemandOffer = OFFER
) -> MadeRun:
    """A training on one spot machine whose clocks take these minutes, planned against one machine
    on demand.
    """
    made = MadeRun(name, "r", NIGHT, provider="local")
    made.begin()
    made.add(NIGHT, ev.Planned(1.0, 0.5, 2.0, 1.0, 1.0, assumed=False, instead=offer))
    made.price(LOCAL, [NIGHT, NIGHT + 3 * DAY], [PRICE // 4] * 2)
    order = ev.RentIntended(1, LOCAL, 1, PRICE, PRICE, offer.nu, False, NIGHT + DAY)
    made.add(NIGHT, order)
    made.add(NIGHT, ev.Rented(1, (ev.Granted("m", NIGHT),)))
    made.add(NIGHT + MINUTE, ev.MachineRan("m"))
    at = NIGHT + 5 * MINUTE
    made.add(at, ev.Progressed(0, None, 1, ready=(ev.Moment("m", at),)))
    for clock, length in enumerate(minutes, 1):
        at += round(length * MINUTE)
        made.add(at, ev.Progressed(clock, 1.0, 1))
    made.add(at, ev.StopRequested(outcome, ""))
    made.end_machines(["m"], at, "returned")
    made.finish(at, outcome, len(minutes))
    return made


def _on_reliable(
    clocks: int, offer: ev.OnDemandOffer, spot_from: int | None = None, resumed: int = 0
) -> MadeRun:
    """A training whose clocks take a minute on a reliable machine; with `spot_from`, a spot machine
    joins after this number of clocks, and a clock takes half a minute."""
    made = MadeRun("r-1", "r", NIGHT, provider="local")
    made.begin()
    made.add(NIGHT, ev.Planned(1.0, 0.5, 2.0, 1.0, 1.0, assumed=False, instead=offer))
    made.price(LOCAL, [NIGHT, NIGHT + 3 * DAY], [PRICE // 4] * 2)
    at = NIGHT
    for number, name, bid in ((1, "keeps", None), (2, "m", PRICE))[: 1 if spot_from is None else 2]:
        made.add(
            NIGHT, ev.RentIntended(number, LOCAL, 1, bid, PRICE, offer.nu, bid is None, NIGHT + DAY)
        )
        made.add(NIGHT, ev.Rented(number, (ev.Granted(name, NIGHT),)))
        made.add(NIGHT, ev.MachineRan(name))
    ready: tuple[ev.Moment, ...] = (ev.Moment("keeps", NIGHT),)
    for clock in range(resumed + 1, resumed + clocks + 1):
        if clock - resumed - 1 == spot_from:
            ready = (*ready, ev.Moment("m", at))
        at += MINUTE // (2 if spot_from is not None and clock - resumed > spot_from else 1)
        goes_on = resumed if clock == resumed + 1 else None
        made.add(at, ev.Progressed(clock, 1.0, 1, ready=ready, resumed_clock=goes_on))
        ready = ()
    made.add(at, ev.StopRequested("done", ""))
    made.end_machines(["keeps", "m"][: 1 if spot_from is None else 2], at, "returned")
    made.finish(at, "done", clocks)
    return made


def test_a_saving_is_unknown_if_no_machine_but_reliable_ones_was_measured(tmp_path: Path) -> None:
    unmeasured = _on_reliable(200, replace(OFFER, spread=None))
    found = _saving(unmeasured)
    assert (found["on_demand_usd"], found["saved_pct"]) == (None, None)
    saving = as_json(report_of([unmeasured]))["saving"]
    assert saving["on_demand_unknown"] == f"r-1: {NOT_MEASURED}"
    assert (saving["on_demand_usd"], saving["on_demand_low_usd"], saving["on_demand_high_usd"]) == (
        None,
        None,
        None,
    )
    assert sum(step["usd"] for step in saving["steps"]) == pytest.approx(-saving["paid_usd"])
    # With other runs in the report, their sum is as unknown.
    assert _saving(unmeasured, _run([1.0] * 41, name="r-2"))["saved_pct"] is None
    write_log([unmeasured], tmp_path)
    assert recounted(tmp_path / "log.sqlite")["r-1"].on_demand is None


@pytest.mark.parametrize("resumed", [0, 1000])
def test_work_of_reliable_machines_counts_as_on_the_machines_that_were_measured(
    tmp_path: Path, resumed: int
) -> None:
    """Where the plan knew a speed, it counts; where a spot machine was measured, its clocks do."""
    planned = _on_reliable(200, replace(OFFER, nu=60.0), resumed=resumed)
    assert _saving(planned)["on_demand_usd"] == pytest.approx(4 * 0.4), "200 minutes and 5 to start"
    # Half a minute for each of 300 clocks, the first 100 of which a reliable machine did alone.
    measured = _on_reliable(300, replace(OFFER, spread=None), 100, resumed)
    assert _saving(measured)["on_demand_usd"] == pytest.approx(3 * 0.4), (
        "150 minutes and 5 to start"
    )
    for made, dollars in ((planned, 1.6), (measured, 1.2)):
        write_log([made], tmp_path / str(dollars))
        assert recounted(tmp_path / str(dollars) / "log.sqlite")["r-1"].on_demand == round(
            dollars * 1e9
        )


def test_clocks_that_others_did_for_the_most_part_are_measured_if_no_better_ones_are(
    tmp_path: Path,
) -> None:
    """On a busy computer, progress is seen seldom: the reliable machine does the first clock alone,
    and is still alone when the next begin."""
    made, at = MadeRun("r-1", "r", NIGHT, provider="local"), NIGHT + 100 * MINUTE
    made.begin()
    made.add(
        NIGHT,
        ev.Planned(1.0, 0.5, 2.0, 1.0, 1.0, assumed=False, instead=replace(OFFER, spread=None)),
    )
    made.price(LOCAL, [NIGHT, NIGHT + 3 * DAY], [PRICE // 4] * 2)
    for number, name, bid in ((1, "keeps", None), (2, "m", PRICE)):
        made.add(
            NIGHT, ev.RentIntended(number, LOCAL, 1, bid, PRICE, OFFER.nu, bid is None, NIGHT + DAY)
        )
        made.add(NIGHT, ev.Rented(number, (ev.Granted(name, NIGHT),)))
        made.add(NIGHT, ev.MachineRan(name))
    made.add(at, ev.Progressed(1, 1.0, 1, ready=(ev.Moment("keeps", NIGHT),), resumed_clock=0))
    joined, at = at + 2 * MINUTE, at + 5 * MINUTE
    made.add(at, ev.Progressed(15, 1.0, 1, ready=(ev.Moment("m", joined),)))
    made.add(at, ev.StopRequested("done", ""))
    made.end_machines(["keeps", "m"], at, "returned")
    made.finish(at, "done", 15)
    assert _saving(made)["on_demand_usd"] == pytest.approx(0.4)
    write_log([made], tmp_path)
    assert recounted(tmp_path / "log.sqlite")["r-1"].on_demand == PRICE


def test_evictions_between_which_reliable_machines_work_leave_the_cost_on_demand_as_planned(
    tmp_path: Path,
) -> None:
    """A machine does 60 clocks an hour; six are evicted, each after ten clocks, and as many are
    done without them.
    """
    made, at = MadeRun("r-1", "r", NIGHT, provider="local"), NIGHT
    made.begin()
    made.add(
        NIGHT, ev.Planned(1.0, 0.5, 2.0, 1.0, 0.8, assumed=False, instead=replace(OFFER, nu=60.0))
    )
    made.price(LOCAL, [NIGHT, NIGHT + 3 * DAY], [PRICE // 4] * 2)
    made.add(NIGHT, ev.RentIntended(1, LOCAL, 1, None, PRICE, 60.0, True, NIGHT + DAY))
    made.add(NIGHT, ev.Rented(1, (ev.Granted("keeps", NIGHT),)))
    made.add(NIGHT, ev.MachineRan("keeps"))
    made.add(NIGHT, ev.Progressed(0, None, 1, ready=(ev.Moment("keeps", NIGHT),), resumed_clock=0))
    for clock in range(1, 101):
        if clock % 20 == 1 or clock == 91:
            name = f"m{clock}"
            made.add(
                at, ev.RentIntended(clock + 1, LOCAL, 1, PRICE, PRICE, 60.0, False, NIGHT + DAY)
            )
            made.add(at, ev.Rented(clock + 1, (ev.Granted(name, at),)))
            made.add(at, ev.MachineRan(name))
            made.add(at, ev.Progressed(clock - 1, 1.0, 1, ready=(ev.Moment(name, at),)))
        at += MINUTE
        made.add(at, ev.Progressed(clock, 1.0, 1))
        if clock % 20 == 10:
            made.end_machines([name], at, "evicted")
    made.add(at, ev.StopRequested("done", ""))
    made.end_machines(["keeps", "m91"], at, "returned")
    made.finish(at, "done", 100)
    # 100 minutes and 5 to start, as in the plan; the spot machines worked for 60 minutes.
    assert _saving(made)["on_demand_usd"] == pytest.approx(0.8)
    write_log([made], tmp_path)
    assert recounted(tmp_path / "log.sqlite")["r-1"].on_demand == 2 * PRICE


def _saving(*runs: MadeRun) -> dict[str, object]:
    answer = as_json(report_of(list(runs)))
    return {**answer, **{step["name"]: step["usd"] for step in answer["saving"]["steps"]}}


def test_a_run_that_goes_badly_does_not_save_more() -> None:
    """Three hours of standing still are paid for, and no on-demand machine would have stood
    still."""
    calm, stalled = _run([1.0] * 41), _run([1.0] * 20 + [181.0] + [1.0] * 20)
    good, bad = _saving(calm), _saving(stalled)
    # 41 minutes at work and 5 to start: one begun hour at the list price.
    assert good["on_demand_usd"] == bad["on_demand_usd"] == pytest.approx(0.4)
    assert good["total_usd"] == pytest.approx(0.1)
    assert bad["total_usd"] == pytest.approx(0.4)
    assert (good["saved_pct"], bad["saved_pct"]) == (75.0, 0.0)
    # What was paid is in proportion to the time, and 180 of 221 minutes at work were a standstill.
    assert bad["waiting"] == pytest.approx(-0.1 * 180 / 60, rel=1e-6)
    assert bad["rest of paid hours"] == pytest.approx(-0.1 * 14 / 60, rel=1e-6)


def test_a_slow_computer_does_not_save_more(tmp_path: Path) -> None:
    """The plan knew that a machine does 60 clocks an hour; this one did 20, then 40 and 120."""
    known = replace(OFFER, nu=60.0)
    savings = [_saving(_run([minutes] * 60, offer=known)) for minutes in (3.0, 1.5, 0.5)]
    # 60 minutes and 5 to start: two begun hours. A faster machine would be as fast on demand.
    assert [saving["on_demand_usd"] for saving in savings] == pytest.approx([0.8, 0.8, 0.4])
    assert savings[0]["total_usd"] == pytest.approx(0.4)
    low, high = (
        as_json(report_of([_run([3.0] * 60, offer=known)]))["saving"][f"on_demand_{end}_usd"]
        for end in ("low", "high")
    )
    assert low <= 0.8 <= high
    write_log([_run([3.0] * 60, offer=known)], tmp_path)
    assert recounted(tmp_path / "log.sqlite")["r-1"].on_demand == 2 * PRICE


def test_a_failed_run_saved_nothing_and_its_cost_is_a_loss() -> None:
    failed, both = (
        _saving(_run([1.0] * 41, "failed")),
        _saving(_run([1.0] * 41), _run([1.0] * 41, "failed", "r-2")),
    )
    assert (failed["on_demand_usd"], failed["saved_pct"], failed["loss_usd"]) == (
        0.0,
        None,
        pytest.approx(0.1),
    )
    assert both["on_demand_usd"] == pytest.approx(0.4)
    assert (both["total_usd"], both["loss_usd"], both["failed runs"]) == pytest.approx(
        (0.2, 0.1, -0.1)
    )
    assert both["saved_pct"] == 50.0


def test_the_interval_holds_the_speed_of_fast_and_slow_clocks() -> None:
    rng = np.random.default_rng(3)
    minutes = rng.lognormal(1.0, 0.3, 300).tolist()
    saving = as_json(report_of([_run(minutes)]))["saving"]
    hours = [np.ceil((5 + 300 * float(np.quantile(minutes, share))) / 60) for share in (0.25, 0.5)]
    assert saving["on_demand_low_usd"] == pytest.approx(0.4 * hours[0], abs=0.41)
    assert saving["on_demand_usd"] == pytest.approx(0.4 * hours[1], abs=0.41)
    assert saving["on_demand_low_usd"] < saving["on_demand_usd"] <= saving["on_demand_high_usd"]


def _command(instead: ev.OnDemandOffer) -> MadeRun:
    """Of two hours, the checkpoint after 30 minutes was kept; the second attempt did the rest in 90
    minutes.
    """
    made = MadeRun("c-1", "c", NIGHT, provider="local")
    made.begin(kind="command")
    made.price(LOCAL, [NIGHT, NIGHT + DAY], [PRICE // 4] * 2)
    made.add(NIGHT, ev.Planned(1.0, 0.5, 2.0, 1.0, 1.0, assumed=False, instead=instead))
    made.add(NIGHT, ev.RentIntended(1, LOCAL, 1, PRICE, PRICE, 1.0, False, NIGHT + DAY))
    made.add(NIGHT, ev.Rented(1, (ev.Granted("m", NIGHT),)))
    made.add(NIGHT, ev.MachineRan("m"))
    made.add(NIGHT, ev.AttemptBegan(1, ("m",), 1))
    made.add(NIGHT, ev.Progressed(1, None, 0, ready=(ev.Moment("m", NIGHT),)))
    made.add(NIGHT + 30 * MINUTE, ev.Checkpointed(1, 0, 1, 9, 1.0, 60.0))
    made.add(NIGHT + 120 * MINUTE, ev.AttemptStopped(1, "warned"))
    made.add(NIGHT + 120 * MINUTE, ev.AttemptBegan(2, ("m",), 1))
    end = NIGHT + 210 * MINUTE
    made.add(end, ev.StopRequested("done", ""))
    made.end_machines(["m"], end, "returned")
    made.finish(end)
    return made


def test_work_of_a_command_that_was_lost_does_not_count(tmp_path: Path) -> None:
    made = _command(replace(OFFER, work=float(DAY)))
    state = fold(made.log())
    found = same_work(state, state.at)
    # 120 of 210 minutes were useful; with 5 to start, three hours have begun.
    assert float(found.useful) == pytest.approx(120 / 210)
    assert found.amount == 3 * PRICE * 3600
    write_log([made], tmp_path)
    assert recounted(tmp_path / "log.sqlite")["c-1"].on_demand == 3 * PRICE


def test_what_a_command_of_unknown_length_repeated_is_unknown(tmp_path: Path) -> None:
    """Its checkpoint was copied; nothing says whether it was loaded."""
    made = _command(OFFER)
    state = fold(made.log())
    assert same_work(state, state.at).unknown == MAYBE_REDONE
    assert as_json(report_of([made]))["saving"]["on_demand_unknown"] == f"c-1: {MAYBE_REDONE}"
    write_log([made], tmp_path)
    assert recounted(tmp_path / "log.sqlite")["c-1"].on_demand is None


def test_a_command_on_slow_machines_does_not_save_more(tmp_path: Path) -> None:
    """Its earlier runs took 50 minutes; if they took longer than this one did, this one counts."""
    for minutes, hours in ((50, 1), (150, 3)):
        made = _command(replace(OFFER, work=float(minutes * MINUTE)))
        state = fold(made.log())
        work = same_work(state, state.at)
        assert work.amount == hours * PRICE * 3600
        assert work.low <= work.amount <= work.high == 3 * PRICE * 3600
        write_log([made], tmp_path / str(minutes))
        assert recounted(tmp_path / str(minutes) / "log.sqlite")["c-1"].on_demand == hours * PRICE


def test_the_steps_add_up_to_what_was_saved() -> None:
    report = report_of([*month(), _run([1.0] * 41, "failed")])
    for figures in (report.whole, *(group.figures for group in report.groups)):
        assert sum(amount for _, amount in figures.steps) == figures.saved
        least, middle, most = (
            amount or 0
            for amount in (figures.on_demand_low, figures.on_demand, figures.on_demand_high)
        )
        assert least <= middle <= most
    works = {run.run: run.same_work.amount for run in report.runs}
    assert report.whole.on_demand == sum(3600 * nano_dollars(amount) for amount in works.values())


def test_the_counterfactual_is_recomputed_from_raw_rows_alone() -> None:
    """Bodies as JSON and prices; nothing of the product computes here."""
    rng = np.random.default_rng(5)
    made = _run((1.0 + rng.exponential(0.4, 60)).tolist())
    rows = [(row.at, type(row.event).__name__, json.loads(_json(row.event))) for row in made.log()]
    offer = next(body["instead"] for _, kind, body in rows if kind == "Planned")
    ready = next(at for at, kind, body in rows if kind == "Progressed" and body["ready"])
    done = [
        (ready, 0),
        *((at, body["clock"]) for at, kind, body in rows if kind == "Progressed" and body["clock"]),
    ]
    spans = sorted(after - before for (before, _), (after, _) in pairwise(done[1:]))
    middle = spans[(len(spans) + 1) // 2 - 1]
    clocks = len(spans) + min(1.0, (done[1][0] - ready) / middle)
    needed = (
        min(clocks * middle, done[-1][0] - ready) / offer["machines"] / offer["nu"]
        + offer["startup"]
    )
    hours = -(-needed // HOUR)
    assert report_of([made]).whole.on_demand == hours * offer["price"] * 3600 * offer["machines"]


def _json(event: ev.Event) -> str:
    return event_json.to_json(event)


def test_the_report_prints_the_contract(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    write_log([_run([1.0] * 41)], tmp_path / "home")
    saving = spotctl("report", "cost", "--json").json["saving"]
    assert (saving["on_demand_usd"], saving["paid_usd"]) == pytest.approx((0.4, 0.1))
    assert sum(step["usd"] for step in saving["steps"]) == pytest.approx(0.3)
    table = spotctl("report", "cost").out
    assert "75.0% below on demand" in table
    assert "saved $0.3000: spot discount" in table


def test_machines_on_demand_that_the_run_did_not_use_are_uncertain() -> None:
    """Clocks of equal length: all that is uncertain is how fast another type would have been."""
    other = replace(LOCAL, instance_type="c-16")
    known, guessed = (
        as_json(report_of([_run([1.0] * 300, offer=replace(OFFER, market=market, spread=0.5))]))[
            "saving"
        ]
        for market in (LOCAL, other)
    )
    assert (
        known["on_demand_low_usd"]
        == known["on_demand_usd"]
        == known["on_demand_high_usd"]
        == pytest.approx(2.4)
    )
    assert guessed["on_demand_usd"] == pytest.approx(2.4)
    assert guessed["on_demand_low_usd"] == pytest.approx(
        0.4 * np.ceil((5 + 300 * np.exp(-0.5)) / 60)
    )
    assert guessed["on_demand_high_usd"] == pytest.approx(
        0.4 * np.ceil((5 + 300 * np.exp(0.5)) / 60)
    )
