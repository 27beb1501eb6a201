"""Sums of a cost report: by hand, and under every grouping."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given, settings, strategies as st

from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, NANO_SECONDS_PER_DOLLAR
from spotctl.log.ledger.account import Eviction, RunTimeline
from spotctl.log.ledger.rows import ChargeKind, LedgerRow, SameWork, Use, nano_dollars, usd
from spotctl.show.costs.answers import as_json
from spotctl.show.costs.cost import figures, groups
from spotctl.show.costs.periods import UNTAGGED, By, parse_by
from tests.spotctl.show.costs.made import (
    ALWAYS,
    AWS,
    GCP,
    NIGHT,
    NOW,
    RELIABLE,
    parts,
    report,
)

DOLLAR = NANO_SECONDS_PER_DOLLAR


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


def test_traffic_is_grouped_by_where_it_went() -> None:
    sent = row(DOLLAR, kind=ChargeKind.EGRESS)
    rows = [sent._replace(target=target) for target in ("aws/us-west-2", "gcp/us-central1", "")]
    found = groups(parts(rows, [timeline()]), [By.KIND])
    assert {one.key[By.KIND] for one in found} == {
        "traffic to another region",
        "traffic to another cloud",
        "traffic",
    }
