"""Sums of a cost report: by hand, and under every grouping."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, NANO_SECONDS_PER_DOLLAR
from spotctl.files.job.reader import loads, written
from spotctl.home.errors import BadRequest
from spotctl.log import events as ev
from spotctl.log.ledger.account import STEPS, Eviction, RunTimeline
from spotctl.log.ledger.final_cost import timeline_of
from spotctl.log.ledger.rows import ChargeKind, LedgerRow, SameWork, Use, nano_dollars, usd
from spotctl.show.costs.answers import as_csv, as_json, as_markdown
from spotctl.show.costs.cost import figures, groups
from spotctl.show.costs.periods import UNTAGGED, By, Period, check_tags, months_of_tags, parse_by
from tests.spotctl.show.costs.made import (
    ALWAYS,
    AWS,
    GCP,
    NIGHT,
    NOW,
    RELIABLE,
    MadeRun,
    parts,
    report,
    report_of,
)

DOLLAR = NANO_SECONDS_PER_DOLLAR

TRAINING = """\
name: a
kind: agileml
app: mf
stop: {clocks: 10}
resources: {clouds: [local], machines: 2..2}
"""


def timeline(run: str = "a-1", job: str = "a", **changes: object) -> RunTimeline:
    values: dict[str, object] = {
        "run": run,
        "job": job,
        "provider": "aws",
        "tags": {},
        "wall_began": NIGHT,
        "wall_ended": NIGHT + HOUR,
        "began": NIGHT,
        "until": NIGHT + HOUR,
        "outcome": "done",
        "message": "",
        "work": 100,
        "same_work": SameWork(6 * DOLLAR, 5 * DOLLAR, 8 * DOLLAR, Fraction(1)),
    }
    return RunTimeline(**{**values, **changes})  # type: ignore[arg-type]


def row(
    amount: int,
    run: str = "a-1",
    job: str = "a",
    market: Market = AWS[0],
    at: int = NIGHT,
    **changes: object,
) -> LedgerRow:
    values: dict[str, object] = {
        "run": run,
        "job": job,
        "machine": "i-1",
        "market": market,
        "reliable": False,
        "spot": True,
        "begin": at,
        "end": at + HOUR,
        "kind": ChargeKind.COMPUTE,
        "use": Use.WORKING,
        "price": 1,
        "amount": amount,
        "on_demand": 2 * amount,
        "settled": True,
        "listed": 2,
    }
    return LedgerRow(**{**values, **changes})  # type: ignore[arg-type]


def test_the_figures_of_a_run_by_hand() -> None:
    rows = [
        row(6 * DOLLAR),
        row(2 * DOLLAR, use=Use.REDONE, on_demand=0),
        row(DOLLAR, use=Use.STARTING),
        row(DOLLAR, use=Use.LOADING),
        row(DOLLAR, use=Use.IDLE),
        row(-DOLLAR, kind=ChargeKind.REFUND, use=Use.REDONE, on_demand=0),
        row(DOLLAR // 2, kind=ChargeKind.DISK, on_demand=DOLLAR // 2, settled=False),
    ]
    evictions = (Eviction(NIGHT, "i-1", AWS[0], warned=True),)
    total = figures(parts(rows, [timeline(evictions=evictions)]))
    assert total.total == 10 * DOLLAR + DOLLAR // 2
    assert total.on_demand == 18 * DOLLAR + DOLLAR // 2
    assert total.saved_pct == pytest.approx(100 * (1 - 10.5 / 18.5), abs=1e-4)
    assert (total.free, total.lost_work, total.waiting) == (DOLLAR, DOLLAR, 3 * DOLLAR)
    assert (total.other_charges, total.unsettled) == (DOLLAR // 2, DOLLAR // 2)
    assert (total.evictions, total.work) == (1, 100)
    assert total.usd_per_work == pytest.approx(0.105)
    assert sum(total.uses.values()) + total.other_charges == total.total


def test_reliable_machines_have_no_saving_apart_from_the_spot_machines_that_they_serve() -> None:
    """They would be compared with the work of the few minutes in which another on-demand machine
    worked.
    """
    rows = [
        row(40 * DOLLAR),
        row(DOLLAR // 100, spot=False),
        row(5 * DOLLAR, market=RELIABLE, spot=False, reliable=True, listed=1),
    ]

    def saved(by: By) -> dict[str, float | None]:
        made = report(rows, [timeline()], ALWAYS, [by], NOW)
        return {group.key[by]: group.figures.saved_pct for group in made.groups}

    apart = saved(By.PRICING)
    assert apart["on-demand"] is None
    assert apart["spot"] is not None
    assert saved(By.JOB) == {"a": saved(By.REGION)["us-east-1"]}
    assert saved(By.JOB)["a"] == pytest.approx(100 * (6 - 45.01) / 6, abs=1e-3)


def test_json_keys_and_values() -> None:
    answer = as_json(report([row(3 * DOLLAR)], [timeline()], ALWAYS, [By.JOB], NOW))
    assert list(answer) == [
        *(
            "total_usd",
            "on_demand_usd",
            "saved_pct",
            "free_usd",
            "lost_work_usd",
            "waiting_usd",
            "evictions",
            "work",
        ),
        *(
            "usd_per_work",
            "runs",
            "running",
            "loss_usd",
            "samples",
            "usd_per_million_samples",
            "successes",
        ),
        *(
            "usd_per_success",
            "budget_usd",
            "sent_bytes",
            "received_bytes",
            "traffic_runs",
            "total_low_usd",
        ),
        *("total_high_usd", "rows_lost", "saving", "trend", "left_plan", "month"),
        *("months_of_tags", "replayed", "time_zone", "groups"),
    ]
    assert answer["total_usd"] == 3.0
    assert answer["on_demand_usd"] == 6.0
    assert answer["saved_pct"] == 50.0
    assert list(answer["saving"]) == [
        *(
            "on_demand_usd",
            "on_demand_low_usd",
            "on_demand_high_usd",
            "steps",
            "paid_usd",
            "on_demand_unknown",
        ),
    ]
    assert [step["name"] for step in answer["saving"]["steps"]] == list(STEPS)
    assert answer["usd_per_work"] == 0.03
    (group,) = answer["groups"]
    assert group["job"] == "a"
    assert group["total_usd"] == 3.0
    assert (group["runs"], group["running"]) == (1, 0)


def test_unknown_values_are_null() -> None:
    """Without use there is no saving; commands count no work; the work of two jobs cannot be
    added."""
    nothing = as_json(report([], [timeline(work=None)], ALWAYS, [By.JOB], NOW))
    assert nothing["saved_pct"] is None
    assert nothing["work"] is None
    assert nothing["usd_per_work"] is None
    two = [timeline(), timeline("b-1", "b")]
    assert as_json(report([row(1), row(1, "b-1", "b")], two, ALWAYS, [By.JOB], NOW))["work"] is None


def test_a_run_without_machines_counts_in_its_group() -> None:
    (group,) = groups(parts([row(DOLLAR)], [timeline(), timeline("a-2", work=0)]), [By.JOB])
    assert group.figures.runs == 2
    assert group.figures.work == 100


def test_work_is_only_known_for_whole_runs() -> None:
    rows = [row(DOLLAR), row(DOLLAR, market=GCP)]
    assert [one.figures.work for one in groups(parts(rows, [timeline()]), [By.RUN])] == [100]
    assert [one.figures.work for one in groups(parts(rows, [timeline()]), [By.CLOUD])] == [
        None,
        None,
    ]


def test_rows_and_evictions_are_grouped_by_day_and_type() -> None:
    evictions = (
        Eviction(NIGHT, "i-1", AWS[0], warned=False),
        Eviction(NIGHT + DAY, "i-2", GCP, warned=False),
        Eviction(NIGHT + DAY, "i-3", GCP, warned=False),
    )
    rows = [row(DOLLAR), row(2 * DOLLAR, market=GCP, at=NIGHT + DAY)]
    found = groups(parts(rows, [timeline(evictions=evictions)]), [By.DAY, By.TYPE])
    sums = [(dict(one.key), one.figures.total // DOLLAR, one.figures.evictions) for one in found]
    assert sums == [
        ({By.DAY: "2026-06-01", By.TYPE: "c6i.2xlarge"}, 1, 1),
        ({By.DAY: "2026-06-02", By.TYPE: "n2-standard-8"}, 2, 2),
    ]


def test_all_tags_of_a_run_form_one_group() -> None:
    tagged = [timeline(tags={"team": "ml", "env": "prod"}), timeline("a-2")]
    found = groups(parts([row(1), row(1, "a-2")], tagged), [By.TAG])
    assert [one.key[By.TAG] for one in found] == ["env=prod, team=ml", "untagged"]


rows_of_any_run = st.lists(
    st.builds(
        row,
        st.integers(-(10**15), 10**15),
        run=st.sampled_from(["a-1", "a-2", "b-1"]),
        market=st.sampled_from([*AWS, GCP, RELIABLE]),
        at=st.integers(NIGHT, NIGHT + 5 * DAY),
        settled=st.booleans(),
        doubtful=st.integers(0, 10**12),
        kind=st.sampled_from(ChargeKind),
        use=st.sampled_from(Use),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(rows_of_any_run, st.sampled_from([by for n in (1, 2) for by in permutations(By, n)]))
def test_groups_add_up_to_the_total_exactly(rows: list[LedgerRow], by: tuple[By, ...]) -> None:
    """To the nano-dollar, as they are printed; rows have fractions of it, and a day has parts of
    rows.
    """
    work = SameWork(10**15 + 1, 10**14, 10**16, Fraction(2, 3))
    runs = [
        timeline("a-1", same_work=work),
        timeline("a-2", tags={"team": "ml"}),
        timeline("b-1", "b", outcome="failed"),
    ]
    whole = figures(parts(rows, runs))
    found = [one.figures for one in groups(parts(rows, runs), by)]
    assert sum(one.machine_micros for one in found) == whole.machine_micros
    for name in (
        "total",
        "on_demand",
        "free",
        "lost_work",
        "waiting",
        "other_charges",
        "unsettled",
        "low",
        "loss",
    ):
        printed = [round(usd(getattr(one, name)) * 1e9) for one in found]
        assert sum(printed) == round(usd(getattr(whole, name)) * 1e9), name
    for name, amount in whole.steps:
        assert sum(round(usd(dict(one.steps)[name]) * 1e9) for one in found) == round(
            usd(amount) * 1e9
        ), name


@given(rows_of_any_run)
def test_a_run_costs_what_its_rows_cost_rounded_once(rows: list[LedgerRow]) -> None:
    """Whatever the other runs have."""
    runs = [timeline("a-1"), timeline("a-2"), timeline("b-1", "b")]
    of_run = {
        group.key[By.RUN]: group.figures.total for group in groups(parts(rows, runs), (By.RUN,))
    }
    for name, total in of_run.items():
        assert total == 3600 * nano_dollars(sum(row.amount for row in rows if row.run == name))


def test_csv_has_a_line_per_group_and_no_total() -> None:
    text = as_csv(
        report([row(DOLLAR // 3)], [timeline(work=None)], ALWAYS, [By.JOB, By.CLOUD], NOW)
    )
    head, line = text.splitlines()
    cells = dict(zip(head.split(","), line.split(","), strict=True))
    assert (cells["job"], cells["cloud"], cells["total_usd"]) == ("a", "aws", "0.333333333")
    assert cells["work"] == cells["usd_per_work"] == ""


def test_markdown_is_escaped() -> None:
    evil = "a|b](http://x) <script>`"
    text = as_markdown(report([row(DOLLAR, job=evil)], [timeline(job=evil)], ALWAYS, [By.JOB], NOW))
    line = text.splitlines()[-1]
    assert "<script>" not in text
    assert line.replace(r"\|", "").count("|") == 10


def test_bad_groupings_are_errors() -> None:
    with pytest.raises(BadRequest, match="--by is empty"):
        parse_by(",")
    with pytest.raises(
        BadRequest, match=r"'color'; allowed are job, run.*, or the name of a tag \(team, user\)"
    ):
        check_tags(parse_by("job,color"), [{"team": "search"}, {"user": "ada"}])


def test_costs_are_grouped_by_the_values_of_a_tag() -> None:
    """A run without the tag is one of `untagged`; a tag never splits a run."""
    runs = [timeline("a-0", tags={"team": "search"}), timeline("a-1", tags={"user": "ada"})]
    rows, by = [row(DOLLAR, run="a-0"), row(2 * DOLLAR, run="a-1")], parse_by("team,cloud")
    totals = [
        (tuple(group.key.values()), group.figures.total)
        for group in report(rows, runs, ALWAYS, by, NOW).groups
    ]
    assert totals == [(("search", "aws"), DOLLAR), ((UNTAGGED, "aws"), 2 * DOLLAR)]
    first = as_json(report(rows, runs, ALWAYS, by, NOW))["groups"][0]
    assert (first["team"], first["cloud"]) == ("search", "aws")
    whole = groups(parts(rows, runs), parse_by("team,job"))
    assert [group.figures.work for group in whole] == [100, 100]


def test_repeated_groupings_count_once() -> None:
    assert parse_by(" job, day,job") == (By.JOB, By.DAY)


def test_timeline_of_a_run() -> None:
    """What the events tell besides money."""
    made = MadeRun("a-1", "a", NIGHT)
    made.begin(budget="25 USD")
    made.plan(4.0, 5.0)
    made.rent(RELIABLE, 1, NIGHT, spot=False, reliable=True)
    first = made.rent(AWS[0], 2, NIGHT + HOUR)
    made.end_machines(first, NIGHT + 2 * HOUR, "evicted", warned=True)
    second = made.rent(AWS[1], 8, NIGHT + 3 * HOUR)
    for name in second[:3]:
        # Events are often logged later than they happened.
        made.add(NIGHT + 5 * HOUR, ev.MachineEnded(name, NIGHT + 4 * HOUR, "evicted"))
    found = timeline_of(made.log())
    assert found.is_running
    assert (found.outcome, found.work) == (None, 3 * 60 + 5)
    assert [(one.at - NIGHT, one.warned) for one in found.evictions] == [
        *[(2 * HOUR, True)] * 2,
        *[(4 * HOUR, False)] * 3,
    ]
    assert [((one.at - NIGHT) // HOUR, one.reliable, one.spot) for one in found.mixes] == [
        (0, 1, 0),
        (1, 1, 2),
        (2, 1, 0),
        (3, 1, 8),
        (4, 1, 5),
    ]
    assert [number for _, number in found.stages] == [1, 2]
    assert found.expected.budget_usd == 25.0
    assert (found.expected.usd, found.expected.usd_low, found.expected.hours) == (4.0, 3.2, 5.0)
    made.finish(NIGHT + 6 * HOUR, clocks=400)
    ended = timeline_of(made.log())
    assert (ended.outcome, ended.work, ended.wall_ended) == ("done", 400, NIGHT + 6 * HOUR)


def test_work_of_a_run_without_progress() -> None:
    for kind, work in (("command", None), ("agileml", 0)):
        made = MadeRun("a-1", "a", NIGHT)
        made.begin(kind=kind)
        assert timeline_of(made.log()).work == work


def test_units_of_a_job_and_their_trend() -> None:
    """Four successful nights that become cheaper, and a failed one that is paid for by the
    others."""
    nights = [timeline(f"a-{i}", wall_began=NIGHT + i * DAY, samples=2_000_000) for i in range(4)]
    failed = timeline("a-9", wall_began=NIGHT + 9 * DAY, outcome="failed", work=50)
    rows = [row(cost * DOLLAR, f"a-{i}") for i, cost in enumerate((4, 6, 3, 3))] + [
        row(2 * DOLLAR, "a-9")
    ]
    found = as_json(report(rows, [*nights, failed], ALWAYS, [By.JOB], NOW))
    assert (found["successes"], found["usd_per_success"], found["samples"]) == (4, 4.5, 9_000_000)
    assert found["usd_per_million_samples"] == pytest.approx(2.0)
    (trend,) = found["trend"]
    assert (trend["unit"], trend["runs"], trend["before_usd"], trend["latest_usd"]) == (
        "clock",
        2,
        0.05,
        0.03,
    )
    assert trend["change_pct"] == pytest.approx(-40)


def test_the_month_and_its_forecast() -> None:
    """A dollar on each of the last ten days is expected on each day that is left; the third of July
    has three.
    """
    begins = [NOW - i * DAY for i in range(1, 11)]
    nights = [
        timeline(f"a-{at}", wall_began=at, began=at, wall_ended=at + HOUR, until=at + HOUR)
        for at in begins
    ]
    rows = [row(DOLLAR, one.run, at=one.began) for one in nights]
    month = as_json(report(rows, nights, ALWAYS, [By.JOB], NOW, 35.0))["month"]
    assert (month["month"], month["paid_usd"], month["budget_usd"]) == ("2026-07", 1.0, 35.0)
    left = 30 - 9 / 24
    assert month["forecast_usd"] == pytest.approx(1 + left * 0.9, abs=0.01)
    assert month["forecast_low_usd"] < month["forecast_usd"] < month["forecast_high_usd"]


def test_each_tag_with_a_budget_has_a_month_of_its_own() -> None:
    runs = [
        timeline("a-1", tags={"user": "ada", "team": "x"}),
        timeline("a-2", tags={"user": "bob"}),
        timeline("a-3"),
    ]
    parts = [
        (run, [row(dollars * DOLLAR, run.run)])
        for run, dollars in zip(runs, (1, 2, 4), strict=True)
    ]
    months = months_of_tags(
        parts, NIGHT + 2 * HOUR, {"user=ada": 3.0, "user=bob": 1.0, "team=y": 9.0}
    )
    assert [(month.tag, month.paid / DOLLAR, month.budget) for month in months] == [
        ("user=ada", 1.0, 3.0),
        ("user=bob", 2.0, 1.0),
        ("team=y", 0.0, 9.0),
    ]


def test_history_has_all_runs_of_the_reported_jobs() -> None:
    runs = [MadeRun(f"{job}-{i}", job, NIGHT + i * DAY) for job in "ab" for i in range(3)]
    for made in runs:
        made.begin()
        made.finish(made.wall + HOUR)
    report_ = report_of(runs[:3], period=Period(NIGHT + 2 * DAY))
    assert [one.timeline.run for one in report_.history] == ["a-0", "a-1", "a-2"]
    assert [one.run for one in report_.runs] == ["a-2"]


def test_tags_of_the_job_file_are_in_the_timeline(tmp_path: Path) -> None:
    spec = loads(TRAINING + "tags: {team: search}\n", tmp_path / "job.yaml")
    assert loads(json.dumps(written(spec)), tmp_path / "job.yaml").tags == {"team": "search"}
    made = MadeRun("a-1", "a", NIGHT)
    made.add(NIGHT, ev.RunBegan("a", "local", written(spec), "", NIGHT))
    assert timeline_of(made.log()).tags == {"team": "search"}


def test_traffic_is_grouped_by_where_it_went() -> None:
    sent = row(DOLLAR, kind=ChargeKind.EGRESS)
    rows = [sent._replace(target=target) for target in ("aws/us-west-2", "gcp/us-central1", "")]
    found = groups(parts(rows, [timeline()]), [By.KIND])
    assert {one.key[By.KIND] for one in found} == {
        "traffic to another region",
        "traffic to another cloud",
        "traffic",
    }
