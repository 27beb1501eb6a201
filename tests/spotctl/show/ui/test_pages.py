"""The pages of `spotctl ui`: valid, complete, and with nothing from outside unescaped."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from pricing_data.units import HOUR, MINUTE, parse_time
from spotctl.log.ledger.rows import CostSoFar
from spotctl.show.costs.markup import fragment, times
from spotctl.show.costs.periods import By
from spotctl.show.runs.reading import WatchedRun
from spotctl.show.runs.run_view import HeldMachine, Money, RunView
from spotctl.show.ui.pages import ACTIVE, MAX_ENDED, overview_page, run_page
from tests.spotctl.show.costs.made import ALWAYS, NIGHT, report
from tests.spotctl.show.costs.test_cost import row, timeline
from tests.spotctl.show.page_reader import Reader
from tests.spotctl.show.runs.made_up_run import CALM, at, run_events, watched

EVIL = """</main></pre><script>alert("1")</script>'&"""
DOLLAR = 3600 * 10**9


def view(name: str, status: str = "done", machines: int = 0, **changes: Any) -> RunView:  # noqa: ANN401
    ended = None if status in ACTIVE else parse_time("2026-01-02T03:04:05Z")
    one = HeldMachine(
        "m", CALM, reliable=False, pricing="spot", since=0, warned_until=None, lease_until=0
    )
    values = {
        "job": name,
        "status": status,
        "attended": status == "running",
        "ended": ended,
        "machines": (one,) * machines,
        "clock": 12,
        "model_loss": 0.25,
        "evictions": 3,
        "is_replayed": False,
        "money": Money(CostSoFar(2 * DOLLAR, 2 * DOLLAR)),
        **changes,
    }
    return replace(run_at().view, **values)


def night(name: str, **last: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"name": name, "next": "2026-01-02 02:00", "problems": [], "last_night": last or None}


def run_at(minutes: float = 10, **changes: Any) -> WatchedRun:  # noqa: ANN401
    """The run at a moment, with changes to what is watched, or to its view."""
    money = Money(CostSoFar(DOLLAR, DOLLAR), 4 * DOLLAR, 5 * DOLLAR)
    run = watched(
        [(when, event) for when, event in run_events() if when <= minutes], minutes, money, 100
    )
    of_view = {name: value for name, value in changes.items() if hasattr(run.view, name)}
    rest = {name: value for name, value in changes.items() if name not in of_view}
    return replace(run, view=replace(run.view, **of_view), **rest)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert len([tag for tag, _ in reader.seen if tag == "h1"]) == 1
    assert len([tag for tag, _ in reader.seen if tag == "script"]) == 1
    assert not re.search(r'"[^"]*\b(nan|inf)\b[^"]*"', page, re.IGNORECASE)
    return reader


def links(reader: Reader) -> list[str | None]:
    return [attributes["href"] for tag, attributes in reader.seen if tag == "a"]


def test_an_empty_home_has_a_page() -> None:
    texts = read(overview_page([], [], [])).texts
    assert "No runs yet" in texts
    assert "spotctl launch job.yaml" in " ".join(texts)


@pytest.mark.parametrize(
    ("clouds", "tiles"),
    [
        (["local"], ["Replayed today", "$2.00", "Paid in 2026-06", "$0.00"]),
        (
            ["local", "aws"],
            ["Paid today", "$3.00", "Replayed today", "$2.00", "Paid in 2026-06", "$3.00"],
        ),
        (["aws"], ["Paid today", "$3.00", "Paid in 2026-06", "$3.00"]),
    ],
)
def test_what_was_replayed_is_never_next_to_what_was_paid_without_a_word(
    clouds: list[str], tiles: list[str]
) -> None:
    spent = {"local": 2 * DOLLAR, "aws": 3 * DOLLAR}
    timelines = [timeline(cloud, provider=cloud) for cloud in clouds]
    rows = [row(spent[cloud], cloud) for cloud in clouds]
    today = report(rows, timelines, ALWAYS, [By.JOB], NIGHT + 2 * HOUR)
    texts = read(overview_page([view("a")], [], [], today=today)).texts
    assert [text for text in texts if re.match(r"Paid|Replayed|\$[023]\.00$", text)][
        : len(tiles)
    ] == tiles


@pytest.mark.parametrize("count", [1, 20, 500])
def test_active_runs_come_first_and_only_the_latest_of_many_ended_ones(count: int) -> None:
    ended = [view(f"job{number}", ended=number * MINUTE) for number in range(count)]
    reader = read(overview_page([*ended, view("live", "running", 4)], [], []))
    runs = [link for link in links(reader) if link and link.startswith("run/")]
    assert runs[0] == "run/live"
    assert runs[1] == f"run/job{count - 1}", "the latest of those that have ended"
    assert len(runs) == 1 + min(count, MAX_ENDED)
    whole = links(read(overview_page(ended, [], [], whole=True)))
    assert ("?all" in links(reader)) is (count > MAX_ENDED)
    assert len([link for link in whole if link and link.startswith("run/")]) == count
    assert "?all" not in whole


def test_waiting_jobs_and_nights_are_shown_with_their_problems() -> None:
    waits = [{"name": "late", "state": "waiting", "after": ["first"], "begins": None}]
    nights = [
        night("n1"),
        night("n2", night="2026-01-01", outcome="failed", cost_usd=1.25, replayed=False),
    ]
    nights[0]["problems"] = ["its timer is gone"]
    texts = read(overview_page([view("a")], waits, nights, ["the log is damaged"])).texts
    for text in (
        "first",
        "unknown",
        "none yet",
        "2026-01-01 failed",
        "$1.25",
        "the log is damaged",
    ):
        assert text in texts
    assert "n1: its timer is gone" in texts
    assert "0 active runs, 1 job waiting" in texts


def test_only_runs_that_need_it_show_the_commands_that_help() -> None:
    texts = read(
        overview_page([view("calm", "running", 4), view("lost", "interrupted", 4)], [], [])
    ).texts
    assert [text for text in texts if "'spotctl stop" in text] == [
        "run small-1 has 4 machines, rented until their leases end: 'spotctl stop lost' returns "
        "them now, 'spotctl resume lost' continues it"
    ]


@pytest.mark.parametrize("minutes", [0, 1, 5, 10])
def test_a_run_has_a_page_at_every_moment(minutes: float) -> None:
    reader = read(run_page(run_at(minutes), []))
    assert ("None was rented yet." in reader.texts) is False
    assert "20% of the budget" in reader.texts
    charts = [
        attributes
        for tag, attributes in reader.seen
        if tag == "svg" and attributes.get("role") == "img"
    ]
    assert all(attributes["aria-label"] for attributes in charts)


def test_a_run_page_has_evictions_loss_prices_and_output() -> None:
    page = run_page(run_at(), ["r: hello"])
    reader = read(page)
    labels = " ".join(
        str(attributes.get("aria-label")) for tag, attributes in reader.seen if tag == "svg"
    )
    assert "Machines over time, at most 6; 4 evicted" in labels
    assert "Loss by clock, 0.2 now" in labels
    triangles = [str(attributes["class"]) for tag, attributes in reader.seen if tag == "polygon"]
    assert sorted(triangles) == ["unwarned", "unwarned", "warned", "warned"], (
        "one each for wide and narrow screens"
    )
    assert "r: hello" in reader.texts
    assert "evicted without warning: 1 x c4.xlarge (sim-east-a)" in reader.texts


def test_only_a_run_that_goes_on_may_yet_rent_machines() -> None:
    for status, text in (("running", "None was rented yet."), ("done", "None was rented.")):
        assert text in read(run_page(run_at(status=status, footprint=()), [])).texts


def test_a_phone_shows_the_date_of_an_event_where_a_day_begins() -> None:
    page = fragment(*times([at(0), at(-1), at(-2)]))
    assert re.findall(r'class="(\w+)">([0-9-]+)', page) == [
        ("day", "2026-01-01"),
        ("day", "2025-12-31"),
        ("less", "2025-12-31"),
    ]


def test_a_loss_that_is_not_a_number_leaves_a_gap() -> None:
    losses = ((1, 2.0), (2, float("nan")), (3, float("inf")), (4, 1.0))
    assert "M52" in run_page(run_at(losses=losses), [])
    read(run_page(run_at(losses=((1, float("nan")),)), []))


@pytest.mark.parametrize(
    ("losses", "dots"), [(((1, 2.0), (2, 1.0)), 2), (((1, 2.0),), 2), (((1, float("nan")),), 0)]
)
def test_the_latest_loss_is_a_dot_also_without_a_line(
    losses: tuple[tuple[int, float], ...], dots: int
) -> None:
    """It is drawn for wide and narrow screens."""
    assert run_page(run_at(losses=losses), []).count("<circle") == dots


def test_text_from_outside_is_escaped() -> None:
    page = overview_page([view(EVIL, EVIL)], [], [night(EVIL)], [EVIL])
    page += run_page(run_at(job=EVIL, run=EVIL, status=EVIL), [EVIL])
    assert 'alert("1")' not in page
    assert "run/%3C%2Fmain%3E" in page


CONTROLS = "\x00\x07\x1b]0;owned\x07\x9b2J\x7f\r\u202eback"


def test_control_characters_are_shown() -> None:
    """In text and in attributes: of output, names, problems, and what a cloud says."""
    page = overview_page([view(CONTROLS, CONTROLS)], [], [night(CONTROLS)], [CONTROLS])
    page += run_page(run_at(job=CONTROLS, run=CONTROLS, status=CONTROLS), [CONTROLS])
    assert not [
        letter for letter in set(page) - {"\n"} if letter in CONTROLS and not letter.isprintable()
    ]
    assert r"\x00\x07\x1b]0;owned\x07\x9b2J\x7f\r\u202eback" in page
