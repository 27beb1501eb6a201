"""The page that is handed to whoever pays: what it says, what it never does, and how it stands in a browser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from pricing_data.units import DAY, HOUR, MINUTE
from spotctl.ledger import NANO_SECONDS_PER_DOLLAR
from spotctl.reports import page
from spotctl.reports.cost import By, Report
from spotctl.runlog import events as ev
from tests.spotctl.reports import browser
from tests.spotctl.reports.made import AWS, NIGHT, MadeRun, month, night, report_of

VOID = {"meta", "link", "br"}
EVIL = '<script>alert("x")</script> & "co" \' </svg>'


@pytest.fixture(scope="module")
def month_report() -> Report:
    return report_of(month(), (By.JOB, By.REGION))


class Reader(HTMLParser):
    """Elements and words of a page; every element has to end in its place."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)


def read(report: Report) -> Reader:
    reader = Reader()
    reader.feed(page.html(report))
    assert reader.open == []
    return reader


def pages() -> dict[str, Sequence[MadeRun]]:
    """Reports of every kind."""
    rng = np.random.default_rng(5)
    nothing = MadeRun("none-1", "none", NIGHT)
    nothing.begin()
    nothing.finish(NIGHT + MINUTE, "no capacity")
    only_begun = MadeRun("begun-1", "begun", NIGHT)
    only_begun.begin()
    dear = MadeRun("dear-1", "dear", NIGHT, provider="local")
    dear.begin(kind="command")
    dear.price(AWS[0], [NIGHT, NIGHT + DAY], [900_000_000] * 2)
    dear.end_machines(dear.rent(AWS[0], 1, NIGHT), NIGHT + 3 * HOUR, "returned")
    dear.finish(NIGHT + 3 * HOUR, "failed")
    return {
        "one": [night(0, rng)],
        "going on": [night(0, rng), night(1, rng, goes_on=True)],
        "no machine": [nothing],
        "only begun": [only_begun],
        "dearer than on demand": [dear],
        "half a year": [night(i, rng) for i in range(0, 180, 3)],
    }


@pytest.mark.parametrize("name", list(pages()))
def test_every_report_makes_a_whole_page(name: str) -> None:
    report = report_of(pages()[name])
    reader = read(report)
    told = " ".join(reader.words)
    assert "nan" not in told.lower().split()
    assert not re.search(r'"[^"]*\b(nan|inf)\b[^"]*"', page.html(report), re.IGNORECASE)
    assert len([tag for tag, _ in reader.seen if tag == "h1"]) == 1
    for tag, attributes in reader.seen:
        if tag == "svg":
            assert attributes.get("aria-hidden") or (attributes["role"] == "img" and attributes["aria-label"])


def test_the_page_says_what_was_paid(month_report: Report) -> None:
    told = " ".join(read(month_report).words)
    whole = month_report.whole
    for amount in (whole.total, whole.on_demand, whole.saved, whole.free, whole.waiting, whole.lost_work):
        assert f"${amount / NANO_SECONDS_PER_DOLLAR:,.2f}" in told
    assert all(story.run in told for story in month_report.stories)
    assert all(title in told for title in ("Plan against actual", "Trend", "By job and region", "Machines over time"))


def test_a_run_that_failed_says_why() -> None:
    made = MadeRun("a-1", "a", NIGHT)
    made.begin()
    made.finish(NIGHT + HOUR, "failed", message=f"no module named {EVIL}")
    assert f"a-1: failed. no module named {EVIL}" in " ".join(read(report_of([made])).words)


def test_runs_that_go_on_are_marked() -> None:
    told = " ".join(read(report_of(pages()["going on"])).words)
    assert "1 run still goes on" in told
    assert " so far." in told


def test_nothing_comes_from_elsewhere(month_report: Report) -> None:
    text = page.html(month_report)
    assert not re.search(r"https?://|//cdn|@import|url\(|<script|<iframe|<object", text)
    links = [attributes.get("href") for tag, attributes in read(month_report).seen if tag == "link"]
    assert links == ["data:,"]
    assert len(text) < 400_000


def test_words_from_outside_stay_words() -> None:
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
        assert EVIL in " ".join(read(report).words)


# -- colours -----------------------------------------------------------------------------------------------------------


def schemes() -> dict[str, dict[str, str]]:
    """The colours of the page by day, by night, and on paper."""
    style = files("spotctl.reports").joinpath("page.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    found = [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{3,6})", block)) for block in blocks]
    return dict(zip(("day", "night", "paper"), found, strict=True))


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["day", "night", "paper"])
def test_colours_can_be_told_from_the_paper(scheme: str) -> None:
    """WCAG 2.2: 4.5 for words (1.4.3), 3 for what a chart is made of (1.4.11)."""
    colours = schemes()[scheme]
    words = [("ink", "paper"), ("soft", "paper"), ("good", "paper"), ("warn", "warn-paper"), ("ink", "warn-paper")]
    words += [("band-ink", f"stage{i}") for i in (1, 2, 3)]
    shapes = [f"s{i}" for i in range(6)] + "working starting loading redone idle besides reliable ondemand spot".split()
    pairs = [(name, other, 4.5) for name, other in words] + [(name, "paper", 3.0) for name in shapes]
    told = [(name, other, contrast(colours[name], colours[other]), least) for name, other, least in pairs]
    assert [one for one in told if one[2] < one[3]] == []


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["month", "evil"])
def test_a_browser_shows_it_without_complaint(name: str, month_report: Report, tmp_path: Path) -> None:
    """No word on the console, no request but for the page itself, and at a phone's width nothing to scroll sideways."""
    program = browser.installed()
    if program is None:
        pytest.skip(f"none of {', '.join(browser.NAMES)} is installed")
    report = month_report
    if name == "evil":
        made = MadeRun(f"run-{EVIL}" + 60 * "x", EVIL + 60 * "y", NIGHT)
        made.begin()
        made.tell(NIGHT, ev.Planned(1e-5, 1e-6, 1e-4, 0.1, 1.0, assumed=True))
        made.price(AWS[0], [NIGHT, NIGHT + DAY], [100_000_000] * 2)
        made.end_machines(made.rent(AWS[0], 2, NIGHT), NIGHT + 2 * HOUR, "returned")
        made.finish(NIGHT + 2 * HOUR, EVIL, clocks=10**9)
        report = report_of([made])
    path = tmp_path / "costs.html"
    path.write_text(page.html(report), encoding="utf-8")
    with browser.opened(program, path) as tab:
        for width in (1280, 390, 320):
            tab.sized(width, 800)
            assert tab.value("document.documentElement.scrollWidth") <= width
            shown = "[...document.querySelectorAll('figure svg')].filter(one => one.clientWidth > 0).length"
            assert tab.value(shown) > 0
        tab.sized(390, 800, dark=True)
        assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(18, 20, 23)"
        tab.printed(tmp_path / "costs.pdf")
        assert (tmp_path / "costs.pdf").read_bytes().startswith(b"%PDF")
        assert tab.said("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []
        assert [one["request"]["url"] for one in tab.said("Network.requestWillBeSent")] == [path.as_uri()]
