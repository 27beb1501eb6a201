"""The pages of `spotctl ui` in headless Chromium, at the widths of a phone and of a desk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from spotctl.log.ledger.rows import CostSoFar
from spotctl.show.costs.markup import el
from spotctl.show.runs.run_view import Money
from spotctl.show.ui.pages import ACTIVE, overview_page, renewed_page, run_page
from spotctl.show.ui.server import PageServer
from tests.spotctl.show.costs import browser
from tests.spotctl.show.ui.test_pages import DOLLAR, night, run_at, view

pytestmark = pytest.mark.skipif(
    browser.installed() is None, reason=f"none of {', '.join(browser.NAMES)} is installed"
)

JOBS = [
    view(f"{name}-{number}", "failed" if number % 7 == 0 else "done", is_replayed=number % 2 == 0)
    for number in range(100)
    for name in ("mf", "bert-large-finetune", "vit_b16_pretrain_imagenet21k")
]
LIVE = view("live", "running", 9, evictions=1234)
LONG_NAME = "vit_b16_pretrain_imagenet21k"
UNSURE = CostSoFar(2000 * DOLLAR, 1000 * DOLLAR)
STATES = [
    view(f"{LONG_NAME}-{number}", state, 128, is_replayed=True, money=Money(UNSURE))
    for number, state in enumerate((*ACTIVE, "failed", "budget reached", "not in time", "stopped"))
]
PAGES = {
    "empty": overview_page([], [], []),
    "single": overview_page([LIVE], [], []),
    "twenty": overview_page(
        [*JOBS[:20], LIVE], [], [night("n1"), night("n2", night="2026-01-01", outcome="failed")]
    ),
    "many": overview_page([*JOBS, LIVE], [], [], whole=True),
    "states": overview_page(
        STATES,
        [
            {
                "name": LONG_NAME,
                "state": "waiting",
                "after": [f"{LONG_NAME}-1"],
                "begins": "2026-01-03T04:00:00Z",
            }
        ],
        [
            night(
                LONG_NAME,
                night="2026-01-01",
                outcome="budget reached",
                cost_usd=1234.5,
                replayed=True,
            )
        ],
    ),
    "run": run_page(run_at(), ["0123abcd-1: a line " + "word " * 60, "0123abcd-1: " + "x" * 300]),
}
HIDDEN = """[...document.querySelectorAll("main *")].filter(element => {
  const box = element.getBoundingClientRect(), style = getComputedStyle(element);
  const isCut = element.clientWidth && element.scrollWidth > element.clientWidth + 1;
  return box.width && style.display !== "none" && !element.closest("svg") &&
    (isCut || box.right > innerWidth + 1 || box.left < -1);
}).map(element => element.outerHTML.slice(0, 100))"""
"""Elements that leave the screen, or whose content leaves them."""

LABELS = """[...document.querySelectorAll("main svg")].filter(svg => svg.getBoundingClientRect().width).flatMap(svg => {
  const boxes = [...svg.querySelectorAll("text")].map(text => text.getBoundingClientRect());
  return boxes.flatMap((box, place) => boxes.slice(place + 1).filter(other =>
    Math.min(box.right, other.right) > Math.max(box.left, other.left) + 1 &&
    Math.min(box.bottom, other.bottom) > Math.max(box.top, other.top) + 1)).map(() => svg.getAttribute("aria-label"));
})"""
"""Charts in which labels overlap."""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Tab]:
    program = browser.installed()
    assert program is not None
    empty = tmp_path_factory.mktemp("page") / "empty.html"
    empty.write_text("")
    with browser.opened(program, empty) as tab:
        yield tab


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_everything_fits_on_the_screen(
    tab: browser.Tab, tmp_path: Path, name: str, width: int
) -> None:
    path = tmp_path / f"{name}.html"
    path.write_text(PAGES[name], encoding="utf-8")
    tab.resize(width, 800)
    tab.visit(path.as_uri())
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert tab.value(HIDDEN) == []
    assert tab.value(LABELS) == []
    assert tab.received("Runtime.consoleAPICalled", "Runtime.exceptionThrown") == []


def test_words_that_a_person_reads(tab: browser.Tab, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    path.write_text(PAGES["run"], encoding="utf-8")
    tab.resize(400, 800)
    tab.visit(path.as_uri())
    text = tab.value("document.querySelector('main').innerText")
    for part in (
        "small-1: running",
        "20% of the budget",
        "evicted without warning: 1 x c4.xlarge (sim-east-a)",
    ):
        assert part in text
    assert tab.value("getComputedStyle(document.querySelector('.over')).display") == "none"


def test_a_renewed_page_keeps_focus_and_place_and_says_when_the_server_has_ended(
    tab: browser.Tab,
) -> None:
    """The chosen link is in another row after a new run has appeared above it."""
    shown = [view("a", "running", 1), view("b", "running", 1)]
    server = PageServer(0, "token", lambda path, query: overview_page(shown, [], []), str)  # noqa: ARG005
    with server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        tab.resize(400, 200)
        tab.visit(server.address)
        for _ in range(3):
            tab.press("Tab")
        assert tab.value("document.activeElement.innerText") == "b"
        assert "solid" in tab.value("getComputedStyle(document.activeElement).outline")
        tab.value("scrollTo(0, 100)")
        shown.insert(0, view("new", "running", 1))
        tab.wait("document.body.innerText.includes('3 active runs')")
        assert tab.value("document.activeElement.innerText") == "b"
        assert tab.value("scrollY") == 100
        assert tab.value("document.title") == "spotctl: 3 active runs"
        assert not tab.value("document.body.classList.contains('stale')")
        server.shutdown()
        thread.join()
    tab.wait("document.body.classList.contains('stale')")
    assert tab.value("document.querySelector('.over').getBoundingClientRect().height") > 0
    assert tab.received("Runtime.consoleAPICalled", "Runtime.exceptionThrown") == []


def test_renewing_changes_only_what_is_other(tab: browser.Tab) -> None:
    """Nodes that stay keep what was selected or opened in them."""
    body, details = ["1"], el("details", el("summary", "more"), "text")

    def answer(path: str, query: str) -> str:  # noqa: ARG001
        return renewed_page("t", el("h1", "kept"), details, *(el("p", text) for text in body))

    server = PageServer(0, "token", answer, str)
    with server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        tab.visit(server.address)
        tab.value(
            "document.querySelector('details').open = true; window.kept = "
            "document.querySelector('h1'); 0"
        )
        body[:] = ["2", "3"]
        tab.wait("document.querySelectorAll('main p').length == 2")
        assert tab.value("document.querySelector('details').open")
        assert tab.value("window.kept.isConnected")
        body[:] = []
        tab.wait("document.querySelectorAll('main p').length == 0")
        server.shutdown()
        thread.join()


def test_what_one_types_stays_while_a_page_is_renewed_and_is_sent_from_the_page_itself(
    tab: browser.Tab,
) -> None:
    events, begun = ["1"], list[str]()

    def answer(path: str, query: str) -> str:  # noqa: ARG001
        return run_page(run_at(), events)

    def begin(words: str) -> str:
        begun.append(words)
        return "run/small"

    with PageServer(0, "token", answer, begin) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        tab.resize(400, 800)
        tab.visit(f"{server.address}run/small")
        form = "document.querySelector('form:has(input[value=\"stop small\"])')"
        field = f"{form}.querySelector('input[name=typed]')"
        tab.value(f"{field}.value = 'stop small'; 0")
        events.append("a new line of output")
        tab.wait("document.body.innerText.includes('a new line of output')")
        assert tab.value(f"{field}.value") == "stop small"
        tab.events.clear()
        tab.value(f"{form}.querySelector('button').click(); 0")
        tab.until("Page.loadEventFired")
        assert begun == ["stop small"], tab.value("document.body.innerText")
        budget = "document.querySelector('form:has(input[value$=\"--budget\"])')"
        tab.value(
            f"{budget}.querySelector('input[name=typed]').value = 'resume small --budget 20'; 0"
        )
        tab.events.clear()
        tab.value(f"{budget}.querySelector('button').click(); 0")
        tab.until("Page.loadEventFired")
        assert begun == ["stop small", "resume small --budget 20"]
        assert tab.value("location.pathname") == "/token/run/small"
        assert (
            tab.received("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
            == []
        )
        server.shutdown()
        thread.join()
