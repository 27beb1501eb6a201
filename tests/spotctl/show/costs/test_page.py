"""The HTML page: its content, its safety, and its layout in a browser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pricing_data.units import DAY, HOUR, MINUTE, NANO_SECONDS_PER_DOLLAR
from spotctl.log import events as ev
from spotctl.log.ledger.rows import Use
from spotctl.show.costs import page
from spotctl.show.costs.columns import digits_of, money
from spotctl.show.costs.cost import Report
from spotctl.show.costs.periods import By
from tests.spotctl.show.costs import browser
from tests.spotctl.show.costs.made import AWS, NIGHT, MadeRun, month, night, report_of
from tests.spotctl.show.page_reader import Reader

EVIL = '<script>alert("x")</script> & "co" \' </svg>'


@pytest.fixture(scope="module")
def month_report() -> Report:
    return report_of(month(), (By.JOB, By.REGION))


def read(report: Report) -> Reader:
    reader = Reader()
    reader.feed(page.html(report))
    assert reader.open == []
    return reader


def pages() -> dict[str, Sequence[MadeRun]]:
    """Runs for every kind of report."""
    rng = np.random.default_rng(5)
    nothing = MadeRun("none-1", "none", NIGHT)
    nothing.begin()
    nothing.finish(NIGHT + MINUTE, "no capacity")
    only_started = MadeRun("started-1", "started", NIGHT)
    only_started.begin()
    costly = MadeRun("costly-1", "costly", NIGHT, provider="local")
    costly.begin(kind="command")
    costly.price(AWS[0], [NIGHT, NIGHT + DAY], [900_000_000] * 2)
    costly.end_machines(costly.rent(AWS[0], 1, NIGHT), NIGHT + 3 * HOUR, "returned")
    costly.finish(NIGHT + 3 * HOUR, "failed")
    return {
        "one": [night(0, rng)],
        "running": [night(0, rng), night(1, rng, is_running=True)],
        "no runs": [],
        "no machine": [nothing],
        "only started": [only_started],
        "more expensive than on demand": [costly],
        "half a year": [night(i, rng) for i in range(0, 180, 3)],
    }


@pytest.mark.parametrize("name", list(pages()))
def test_every_report_makes_a_valid_page(name: str) -> None:
    report = report_of(pages()[name])
    reader = read(report)
    text = " ".join(reader.texts)
    assert "nan" not in text.lower().split()
    assert not re.search(r'"[^"]*\b(nan|inf)\b[^"]*"', page.html(report), re.IGNORECASE)
    assert len([tag for tag, _ in reader.seen if tag == "h1"]) == 1
    for tag, attributes in reader.seen:
        if tag == "svg":
            assert attributes.get("aria-hidden") or (
                attributes["role"] == "img" and attributes["aria-label"]
            )


def test_the_page_has_all_amounts_and_sections(month_report: Report) -> None:
    text = " ".join(read(month_report).texts)
    whole = month_report.whole
    for amount in (
        whole.total,
        whole.on_demand or 0,
        whole.saved or 0,
        whole.free,
        -sum(dict(whole.steps)[name] for name in ("start-up", "redone work", "waiting")),
        whole.lost_work,
    ):
        assert f"${amount / NANO_SECONDS_PER_DOLLAR:,.2f}" in text
    assert all(run.run in text for run in month_report.runs)
    assert all(
        title in text
        for title in ("Plan against actual", "Trend", "By job and region", "Machines over time")
    )


def test_a_page_without_runs_says_so_and_has_no_empty_tables() -> None:
    reader = read(report_of([]))
    assert "No runs" in reader.texts
    assert not [tag for tag, _ in reader.seen if tag == "table"]


def test_the_steps_from_on_demand_to_paid_are_shown(month_report: Report) -> None:
    text = " ".join(read(month_report).texts)
    begin = text.index("From on demand to paid")
    shown = text[begin : text.index("Cost over time", begin)]
    digits = digits_of(month_report)
    steps = dict(month_report.whole.steps)
    steps["time lost to evictions, start-up and waiting"] = sum(
        map(steps.pop, ("start-up", "redone work", "waiting"))
    )
    for name, amount in steps.items():
        assert not amount or f"{name} {money(-amount, digits)}" in shown


@pytest.mark.parametrize("name", ["month", "failed"])
def test_a_word_has_one_amount_on_the_page(name: str) -> None:
    """The step "start-up $0.49" was next to "starting" and "loading" of all machines, together
    $0.52, as was "waiting" next to "idle"."""
    runs = month()[:2]
    if name == "failed":
        runs.append(MadeRun("lost-1", "lost", NIGHT))
        runs[-1].begin()
        runs[-1].price(AWS[0], [NIGHT, NIGHT + DAY], [900_000_000] * 2)
        runs[-1].end_machines(runs[-1].rent(AWS[0], 1, NIGHT), NIGHT + 3 * HOUR, "returned")
        runs[-1].finish(NIGHT + 4 * HOUR, "failed")
    report = report_of(runs)
    texts = read(report).texts
    cells, uses = [text for text in texts if text.strip()], report.whole.uses
    for use, word in {
        Use.STARTING: "start-up: boot",
        Use.LOADING: "start-up: loading data and code",
        Use.REDONE: "redone work",
        Use.IDLE: "waiting",
        Use.UNUSED: "rest of paid hours",
    }.items():
        amounts = [
            after for text, after in pairwise(cells) if text == word and after.startswith("$")
        ]
        assert amounts == ([money(uses[use], digits_of(report))] if uses[use] else [])
    assert len([use for use in uses.values() if use]) > 3
    assert not re.search(r"\bidle|\bstarting\b", " ".join(texts))


def test_the_page_is_self_contained(month_report: Report) -> None:
    text = page.html(month_report)
    assert not re.search(r"https?://|//cdn|@import|url\(|<script|<iframe|<object", text)
    links = [attributes.get("href") for tag, attributes in read(month_report).seen if tag == "link"]
    assert links == ["data:,"]
    assert len(text) < 400_000


def test_text_from_outside_is_escaped() -> None:
    """Names of jobs and tags, outcomes, reasons."""
    runs = [MadeRun(f"run {i} {EVIL}", EVIL, NIGHT, tags={EVIL: EVIL}) for i in range(3)]
    for made in runs:
        made.begin()
        made.plan(0.2, 1.0)
        made.price(AWS[0], [NIGHT, NIGHT + DAY], [100_000_000] * 2)
        made.end_machines(made.rent(AWS[0], 2, NIGHT), NIGHT + HOUR, "evicted")
        made.finish(NIGHT + 2 * HOUR, EVIL, clocks=3)
    for report in (report_of(runs, (By.TAG,)), report_of(runs[:1])):
        assert "<script" not in page.html(report)
        assert EVIL in " ".join(read(report).texts)


# -- colors ----------------------------------------------------------------------------------------


def schemes() -> dict[str, dict[str, str]]:
    """The colors of the page: light, dark and print."""
    style = files("spotctl.show.costs").joinpath("page.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    colors = [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{3,6})", block)) for block in blocks]
    return dict(zip(("light", "dark", "print"), colors, strict=True))


def luminance(color: str) -> float:
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_contrast_is_sufficient(scheme: str) -> None:
    """WCAG 2.2: 4.5 for text (1.4.3), 3 for graphics (1.4.11)."""
    colors = schemes()[scheme]
    text = [
        ("ink", "paper"),
        ("soft", "paper"),
        ("good", "paper"),
        ("warn", "warn-paper"),
        ("ink", "warn-paper"),
    ]
    text += [("band-ink", f"stage{i}") for i in (1, 2, 3)]
    shapes = [
        f"s{i}" for i in range(6)
    ] + "working starting loading redone idle other reliable ondemand spot".split()
    pairs = [(name, other, 4.5) for name, other in text] + [(name, "paper", 3.0) for name in shapes]
    ratios = [
        (name, other, contrast(colors[name], colors[other]), least) for name, other, least in pairs
    ]
    assert [one for one in ratios if one[2] < one[3]] == []


# -- in a browser ----------------------------------------------------------------------------------


CUT = """[...document.querySelectorAll(".scroll")].filter(table => table.scrollWidth > table.clientWidth)
  .map(table => table.innerText)"""
"""The tables that do not fit on a phone."""

BROKEN_CELLS = """[...document.querySelectorAll("td")].filter(cell => {
  const style = getComputedStyle(cell), padding = parseFloat(style.paddingTop) + parseFloat(style.paddingBottom);
  return cell.clientHeight > padding + 1.5 * parseFloat(style.lineHeight);
}).map(cell => cell.innerText)"""
"""Cells in rows of two lines."""


@pytest.mark.parametrize("name", ["month", "evil"])
def test_the_page_in_a_browser(name: str, month_report: Report, tmp_path: Path) -> None:
    """No console messages, no requests but for the page itself, and no horizontal scrolling on a
    phone.
    """
    program = browser.installed()
    if program is None:
        pytest.skip(f"none of {', '.join(browser.NAMES)} is installed")
    report = month_report
    if name == "evil":
        made = MadeRun(f"run-{EVIL}" + 60 * "x", EVIL + 60 * "y", NIGHT)
        made.begin()
        made.add(NIGHT, ev.Planned(1e-5, 1e-6, 1e-4, 0.1, 1.0, assumed=True))
        made.price(AWS[0], [NIGHT, NIGHT + DAY], [100_000_000] * 2)
        made.end_machines(made.rent(AWS[0], 2, NIGHT), NIGHT + 2 * HOUR, "returned")
        made.finish(NIGHT + 2 * HOUR, EVIL, clocks=10**9)
        report = report_of([made])
    path = tmp_path / "costs.html"
    path.write_text(page.html(report), encoding="utf-8")
    with browser.opened(program, path) as tab:
        for width in (1280, 390, 320):
            tab.resize(width, 800)
            assert tab.value("document.documentElement.scrollWidth") <= width
            visible = (
                "[...document.querySelectorAll('figure svg')].filter(one => one.clientWidth > "
                "0).length"
            )
            assert tab.value(visible) > 0
        if name == "month":
            tab.resize(390, 800)
            tab.value(
                "document.querySelectorAll('details').forEach(figures => figures.open = true)"
            )
            assert tab.value(CUT) == []
            tab.resize(1280, 800)
            assert tab.value(BROKEN_CELLS) == []
        tab.resize(390, 800, dark=True)
        assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(18, 20, 23)"
        tab.save_pdf(tmp_path / "costs.pdf")
        assert (tmp_path / "costs.pdf").read_bytes().startswith(b"%PDF")
        assert (
            tab.received("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
            == []
        )
        assert [one["request"]["url"] for one in tab.received("Network.requestWillBeSent")] == [
            path.as_uri()
        ]
