"""Sums of a report: by hand, and under every grouping."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing_data.market import Market
from pricing_data.units import DAY, HOUR
from spotctl.errors import BadRequest
from spotctl.files.job.reader import loads, written
from spotctl.ledger import NANO_SECONDS_PER_DOLLAR, Kind, Row, Use
from spotctl.reports.answers import as_csv, as_json, as_markdown
from spotctl.reports.cost import By, figures, groups, parse_by, report
from spotctl.reports.run_timeline import Eviction, RunTimeline, story_of
from spotctl.runlog import events as ev
from tests.spotctl.reports.made import AWS, GCP, NIGHT, NOW, RELIABLE, MadeRun, report_of

DOLLAR = NANO_SECONDS_PER_DOLLAR

TRAINING = """\
name: a
kind: agileml
app: mf
stop: {clocks: 10}
resources: {clouds: [local], machines: 2..2}
"""


def story(run: str = "a-1", job: str = "a", **changes: object) -> RunTimeline:
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
    }
    return RunTimeline(**{**values, **changes})  # type: ignore[arg-type]


def row(
    amount: int, run: str = "a-1", job: str = "a", market: Market = AWS[0], at: int = NIGHT, **changes: object
) -> Row:
    values: dict[str, object] = {
        "run": run,
        "job": job,
        "machine": "i-1",
        "market": market,
        "reliable": False,
        "spot": True,
        "begin": at,
        "end": at + HOUR,
        "kind": Kind.COMPUTE,
        "use": Use.WORKING,
        "price": 1,
        "amount": amount,
        "on_demand": 2 * amount,
        "settled": True,
    }
    return Row(**{**values, **changes})  # type: ignore[arg-type]


def test_the_figures_of_a_run_by_hand() -> None:
    rows = [
        row(6 * DOLLAR),
        row(2 * DOLLAR, use=Use.REDONE, on_demand=0),
        row(DOLLAR, use=Use.STARTING),
        row(DOLLAR, use=Use.LOADING),
        row(DOLLAR, use=Use.IDLE),
        row(-DOLLAR, kind=Kind.REFUND, use=Use.REDONE, on_demand=0),
        row(DOLLAR // 2, kind=Kind.DISK, on_demand=DOLLAR // 2, settled=False),
    ]
    evictions = (Eviction(NIGHT, "i-1", AWS[0], warned=True),)
    found = figures(rows, [story(evictions=evictions)])
    assert found.total == 10 * DOLLAR + DOLLAR // 2
    assert found.on_demand == 18 * DOLLAR + DOLLAR // 2
    assert found.saved_pct == pytest.approx(100 * (1 - 10.5 / 18.5), abs=1e-4)
    assert (found.free, found.lost_work, found.waiting) == (DOLLAR, DOLLAR, 3 * DOLLAR)
    assert (found.besides, found.unsettled) == (DOLLAR // 2, DOLLAR // 2)
    assert (found.evictions, found.work) == (1, 100)
    assert found.usd_per_work == pytest.approx(0.105)
    assert sum(found.uses.values()) + found.besides == found.total


def test_the_json_is_the_contract() -> None:
    answer = as_json(report([row(3 * DOLLAR)], [story()], {"a-1"}, [By.JOB], NOW))
    assert list(answer) == [
        *("total_usd", "on_demand_usd", "saved_pct", "free_usd", "lost_work_usd", "waiting_usd", "evictions", "work"),
        *("usd_per_work", "groups"),
    ]
    assert answer["total_usd"] == 3.0
    assert answer["on_demand_usd"] == 6.0
    assert answer["saved_pct"] == 50.0
    assert answer["usd_per_work"] == 0.03
    (group,) = answer["groups"]
    assert group["job"] == "a"
    assert group["total_usd"] == 3.0
    assert (group["runs"], group["running"]) == (1, 0)


def test_what_nobody_knows_is_null() -> None:
    """Nothing was used: no share of nothing is saved. A command counts no work, and two jobs count different work."""
    nothing = as_json(report([], [story(work=None)], {"a-1"}, [By.JOB], NOW))
    assert nothing["saved_pct"] is None
    assert nothing["work"] is None
    assert nothing["usd_per_work"] is None
    two = [story(), story("b-1", "b")]
    assert as_json(report([row(1), row(1, "b-1", "b")], two, {"a-1", "b-1"}, [By.JOB], NOW))["work"] is None


def test_a_run_that_got_no_machine_is_one_of_its_job() -> None:
    (group,) = groups([row(DOLLAR)], [story(), story("a-2", work=0)], [By.JOB])
    assert group.figures.runs == 2
    assert group.figures.work == 100


def test_work_belongs_to_whole_runs_only() -> None:
    rows = [row(DOLLAR), row(DOLLAR, market=GCP)]
    assert [one.figures.work for one in groups(rows, [story()], [By.RUN])] == [100]
    assert [one.figures.work for one in groups(rows, [story()], [By.CLOUD])] == [None, None]


def test_a_row_and_an_eviction_belong_to_their_day_and_market() -> None:
    evictions = (
        Eviction(NIGHT, "i-1", AWS[0], warned=False),
        Eviction(NIGHT + DAY, "i-2", GCP, warned=False),
        Eviction(NIGHT + DAY, "i-3", GCP, warned=False),
    )
    rows = [row(DOLLAR), row(2 * DOLLAR, market=GCP, at=NIGHT + DAY)]
    found = groups(rows, [story(evictions=evictions)], [By.DAY, By.TYPE])
    told = [(dict(one.key), one.figures.total // DOLLAR, one.figures.evictions) for one in found]
    assert told == [
        ({By.DAY: "2026-06-01", By.TYPE: "c6i.2xlarge"}, 1, 1),
        ({By.DAY: "2026-06-02", By.TYPE: "n2-standard-8"}, 2, 2),
    ]


def test_tags_are_one_group_together() -> None:
    tagged = [story(tags={"team": "ml", "env": "prod"}), story("a-2")]
    found = groups([row(1), row(1, "a-2")], tagged, [By.TAG])
    assert [one.key[By.TAG] for one in found] == ["env=prod, team=ml", "untagged"]


rows_of_any_run = st.lists(
    st.builds(
        row,
        st.integers(-(10**15), 10**15),
        run=st.sampled_from(["a-1", "a-2", "b-1"]),
        market=st.sampled_from([*AWS, GCP, RELIABLE]),
        at=st.integers(0, 5).map(lambda days: NIGHT + days * DAY),
        kind=st.sampled_from(Kind),
        use=st.sampled_from(Use),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(rows_of_any_run, st.sampled_from([by for n in (1, 2) for by in permutations(By, n)]))
def test_groups_sum_to_the_whole(rows: list[Row], by: tuple[By, ...]) -> None:
    """Exactly, under every grouping."""
    stories = [story("a-1"), story("a-2", tags={"team": "ml"}), story("b-1", "b")]
    whole = figures(rows, stories)
    found = [one.figures for one in groups(rows, stories, by)]
    for name in ("total", "on_demand", "free", "lost_work", "waiting", "besides", "unsettled", "machine_micros"):
        assert sum(getattr(one, name) for one in found) == getattr(whole, name), name


def test_csv_has_a_line_a_group_and_no_sum() -> None:
    text = as_csv(report([row(DOLLAR // 3)], [story(work=None)], {"a-1"}, [By.JOB, By.CLOUD], NOW))
    head, line = text.splitlines()
    told = dict(zip(head.split(","), line.split(","), strict=True))
    assert (told["job"], told["cloud"], told["total_usd"]) == ("a", "aws", "0.333333333")
    assert told["work"] == told["usd_per_work"] == ""


def test_markdown_cannot_be_broken_out_of() -> None:
    evil = "a|b](http://x) <script>`"
    text = as_markdown(report([row(DOLLAR, job=evil)], [story(job=evil)], {"a-1"}, [By.JOB], NOW))
    line = text.splitlines()[-1]
    assert "<script>" not in text
    assert line.replace(r"\|", "").count("|") == 10


@pytest.mark.parametrize(("text", "says"), [("job,colour", "'colour' is none of job, run"), (",", "names no grouping")])
def test_a_bad_grouping_is_named(text: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        parse_by(text)


def test_a_grouping_is_taken_once() -> None:
    assert parse_by(" job, day,job") == (By.JOB, By.DAY)


def test_the_story_of_a_run() -> None:
    """What the events tell besides money."""
    made = MadeRun("a-1", "a", NIGHT)
    made.begin(budget="25 USD")
    made.plan(4.0, 5.0)
    made.rent(RELIABLE, 1, NIGHT, spot=False, reliable=True)
    first = made.rent(AWS[0], 2, NIGHT + HOUR)
    made.end_machines(first, NIGHT + 2 * HOUR, "evicted", warned=True)
    second = made.rent(AWS[1], 8, NIGHT + 3 * HOUR)
    for name in second[:3]:
        # It is often told later than it happened.
        made.tell(NIGHT + 5 * HOUR, ev.MachineEnded(name, NIGHT + 4 * HOUR, "evicted"))
    told = story_of(made.log())
    assert told.goes_on
    assert (told.outcome, told.work) == (None, 3 * 60 + 5)
    assert [(one.at - NIGHT, one.warned) for one in told.evictions] == [
        *[(2 * HOUR, True)] * 2,
        *[(4 * HOUR, False)] * 3,
    ]
    assert [((one.at - NIGHT) // HOUR, one.reliable, one.spot) for one in told.footings] == [
        (0, 1, 0),
        (1, 1, 2),
        (2, 1, 0),
        (3, 1, 8),
        (4, 1, 5),
    ]
    assert [one.number for one in told.stages] == [1, 2]
    assert told.expected.budget_usd == 25.0
    assert (told.expected.usd, told.expected.usd_low, told.expected.hours) == (4.0, 3.2, 5.0)
    made.finish(NIGHT + 6 * HOUR, clocks=400)
    ended = story_of(made.log())
    assert (ended.outcome, ended.work, ended.wall_ended) == ("done", 400, NIGHT + 6 * HOUR)


def test_a_command_counts_no_work_and_a_training_that_did_not_begin_none() -> None:
    for kind, work in (("command", None), ("agileml", 0)):
        made = MadeRun("a-1", "a", NIGHT)
        made.begin(kind=kind)
        assert story_of(made.log()).work == work


def test_earlier_runs_of_the_same_job_are_the_history() -> None:
    runs = [MadeRun(f"{job}-{i}", job, NIGHT + i * DAY) for job in "ab" for i in range(3)]
    for made in runs:
        made.begin()
        made.finish(made.wall + HOUR)
    told = report_of(runs, only={"a-2"})
    assert [one.story.run for one in told.history] == ["a-0", "a-1", "a-2"]
    assert [one.run for one in told.stories] == ["a-2"]


def test_tags_of_a_job_file_reach_the_report(tmp_path: Path) -> None:
    spec = loads(TRAINING + "tags: {team: search}\n", tmp_path / "job.yaml")
    assert loads(json.dumps(written(spec)), tmp_path / "job.yaml").tags == {"team": "search"}
    made = MadeRun("a-1", "a", NIGHT)
    made.tell(NIGHT, ev.RunBegan("a", "local", written(spec), "", NIGHT))
    assert story_of(made.log()).tags == {"team": "search"}
