"""A figure that is shown twice is the same: on the page, in the tables, in JSON and in CSV, for
random made-up runs.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser

import numpy as np
from hypothesis import given, settings, strategies as st

from pricing_data.units import DAY, HOUR
from spotctl.log import events as ev
from spotctl.log.ledger.rows import usd
from spotctl.show.costs import answers, page, tables
from spotctl.show.costs.answers import cost_summary
from spotctl.show.costs.columns import counted_runs, digits_of, hours, money, whole_number
from spotctl.show.costs.cost import Report
from spotctl.show.costs.money import MAX_BARS, bars_of, markets_of
from spotctl.show.costs.periods import By, Period, Subject, keeps_runs_whole, key_of
from tests.spotctl.show.costs.made import ALWAYS, NIGHT, MadeRun, night, report_of

GROUPINGS = (
    (By.JOB,),
    (By.CLOUD,),
    (By.CLOUD, By.TYPE),
    (By.DAY,),
    (By.KIND, By.MONTH),
    (By.RUN, By.PRICING),
    (By.TAG,),
)


def runs_of(seed: int, number: int) -> list[MadeRun]:
    """Nights of two jobs; some failed, some are still going on, and some got no machine."""
    rng = np.random.default_rng(seed)
    runs = []
    for i in range(number):
        kind = rng.choice(
            ["done", "failed", "running", "without machines"], p=[0.5, 0.2, 0.15, 0.15]
        )
        if kind == "without machines":
            made = MadeRun(f"none-{i}", "none", NIGHT + i * DAY)
            made.begin()
            made.finish(NIGHT + i * DAY + HOUR, "failed")
        else:
            made = night(
                i, rng, str(rng.choice(["nightly-recsys", "weekly"])), is_running=kind == "running"
            )
            if kind == "failed":
                at, ended = made.events.pop()
                assert isinstance(ended, ev.RunEnded)
                made.finish(at, "failed", clocks=10, message="out of memory")
        runs.append(made)
    return runs


reports = st.builds(
    lambda seed, number, by, cut: report_of(runs_of(seed, number), by, cut),
    st.integers(0, 10_000),
    st.integers(1, 5),
    st.sampled_from(GROUPINGS),
    st.sampled_from([ALWAYS, Period(NIGHT + HOUR, None), Period(None, NIGHT + DAY + 2 * HOUR)]),
)


@dataclass
class Page(HTMLParser):
    """The tiles of a page, and the rows of the tables below each heading."""

    tiles: dict[str, str] = field(default_factory=dict)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    text: str = ""
    heading: str = ""
    name: str = ""
    tag: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tag = f"{tag}.{dict(attrs).get('class') or ''}" if tag == "dd" else tag
        if tag == "tr":
            self.tables.setdefault(self.heading, []).append([])
        if tag in ("td", "th"):
            self.tables[self.heading][-1].append("")

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self.tag = ""

    def handle_data(self, data: str) -> None:
        self.text += data
        match self.tag:
            case "h2":
                self.heading = data
            case "dt":
                self.name = data
            case "dd.figure":
                self.tiles[self.name] = data
            case "td" | "th":
                self.tables[self.heading][-1][-1] += data

    def column(self, heading: str, name: str) -> dict[str, str]:
        """The cells of a column by the first cells of their rows."""
        head, *rows = self.tables[heading]
        return {row[0]: row[head.index(name)] for row in rows}


def read(report: Report) -> Page:
    reader = Page()
    reader.feed(page.html(report))
    return reader


LOST_TIME = ("start-up", "waiting", "redone work")
"""Steps that are one on the page, where each word has one amount."""


@settings(max_examples=25)
@given(reports)
def test_a_figure_of_the_whole_is_the_same_everywhere(report: Report) -> None:
    if not report.runs:
        return
    whole, digits, shown, answer = (
        report.whole,
        digits_of(report),
        read(report),
        answers.as_json(report),
    )
    terminal, (_, summary) = tables.plain_text(report), cost_summary(report)
    (paid,) = (line for line in summary.splitlines() if line.startswith("- paid: "))
    total = money(whole.total, digits)
    assert answer["total_usd"] == answer["saving"]["paid_usd"] == usd(whole.total)
    assert shown.tables["Where the money went"][-1][1] == total
    for text in (shown.text, terminal, paid):
        assert total in text
    for step in answer["saving"]["steps"]:
        name, cost = step["name"], money(-dict(whole.steps)[step["name"]], digits)
        assert step["usd"] == usd(dict(whole.steps)[name])
        assert shown.tiles.get(name.capitalize(), cost) == cost
        if whole.on_demand and dict(whole.steps)[name]:
            if name not in LOST_TIME:
                assert shown.column("From on demand to paid", "cost")[name] == cost
            assert f"{name} {money(dict(whole.steps)[name], digits)}" in re.sub(
                r"\s+", " ", terminal
            )
    lost = sum(dict(whole.steps).get(name, 0) for name in LOST_TIME)
    if whole.on_demand and not whole.is_least and lost:
        steps = shown.column("From on demand to paid", "cost")
        assert steps["time lost to evictions, start-up and waiting"] == money(-lost, digits)
    assert shown.tiles["Refunded"] == money(whole.free, digits)
    assert shown.tiles["Evictions"] == whole_number(answer["evictions"])
    assert shown.tiles["Machine-hours"] == hours(whole.machine_micros)


@settings(max_examples=25)
@given(reports)
def test_parts_add_up_to_the_whole(report: Report) -> None:
    whole, markets = report.whole, markets_of(report)
    for figure in (
        "total",
        "on_demand",
        "free",
        "lost_work",
        "waiting",
        "evictions",
        "machine_micros",
        "unsettled",
    ):
        assert sum(getattr(group.figures, figure) for group in report.groups) == getattr(
            whole, figure
        ), figure
    assert sum(market.paid for market in markets) == whole.total
    assert sum(market.refunded for market in markets) == whole.free
    assert sum(market.evictions for market in markets) == whole.evictions
    assert sum(market.machine_micros for market in markets) == whole.machine_micros
    bars, _ = bars_of(report, markets)
    assert abs(sum(bar.value for bar in bars) - usd(whole.total)) < 1e-6
    assert sum(amount for _, amount in whole.steps) == whole.saved
    assert dict(whole.steps)["failed runs"] == -whole.loss
    parts = list(csv.DictReader(io.StringIO(answers.as_csv(report))))
    in_json = answers.as_json(report)["groups"]
    for name in ("total_usd", "lost_work_usd", "waiting_usd", "runs", "evictions"):
        assert [float(part[name] or 0) for part in parts] == [
            float(group[name] or 0) for group in in_json
        ], name


@settings(max_examples=25)
@given(reports)
def test_the_runs_in_the_header_are_those_of_the_rows(report: Report) -> None:
    if not report.runs:
        return
    counts, answer, shown = counted_runs(report), answers.as_json(report), read(report)
    assert counts in shown.text
    assert counts in re.sub(r"\s+", " ", tables.plain_text(report))
    assert answer["runs"] == len(report.runs) == int(counts.split()[0])
    assert answer["running"] == sum(run.is_running for run in report.runs)
    of_groups = _runs_of_groups(report)
    without = re.search(r"\((\d+) without machines\)", counts)
    assert len(of_groups) == len(report.runs) - int(without[1] if without else 0)
    if keeps_runs_whole(report.by):
        assert sum(group["runs"] for group in answer["groups"]) == answer["runs"]
    else:
        assert sum(group["runs"] for group in answer["groups"]) == sum(of_groups.values())


def _runs_of_groups(report: Report) -> Counter[str]:
    """The number of groups that each run is in, from the rows and evictions of the report."""
    run_of = {run.run: run for run in report.runs}
    if keeps_runs_whole(report.by):
        return Counter(run_of)
    subjects = [Subject(row, run_of[row.run]) for row in report.rows]
    subjects += [Subject(eviction, run) for run in report.runs for eviction in run.evictions]
    return Counter(
        run for run, _ in {(subject.run.run, key_of(report.by, subject)) for subject in subjects}
    )


def test_bars_of_months_are_the_months_of_the_table() -> None:
    """Runs across the end of a month: both divide their rows by the provider's clock."""
    runs: Sequence[MadeRun] = [
        night(i, np.random.default_rng(i)) for i in range(28, 28 + MAX_BARS + 1)
    ]
    report = report_of(runs, (By.MONTH,))
    bars, unit = bars_of(report, markets_of(report))
    assert unit == "month"
    assert [round(bar.value, 6) for bar in bars] == [
        round(usd(group.figures.total), 6) for group in report.groups
    ]
