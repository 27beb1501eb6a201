"""Charts: coordinates of values, computed by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from pricing_data.units import DAY, HOUR, MINUTE, NANO_SECONDS_PER_DOLLAR
from spotctl.log import events as ev
from spotctl.log.ledger.rows import ChargeKind, LedgerRow, Use, usd
from spotctl.show.costs import markup
from spotctl.show.costs.charts import (
    Bar,
    Series,
    footprint,
    line_chart,
    share_bar,
    stacked_bars,
)
from spotctl.show.costs.markup import Html, el, fragment
from spotctl.show.costs.money import cumulative_of, held_prices, markets_of, minimum_bids, parts_of
from tests.spotctl.show.costs.made import AWS, NIGHT, MadeRun, month, report_of, started_hour

CANVAS = markup.Canvas(960, 280)


def rects(text: str, class_: str) -> list[dict[str, float]]:
    """The attributes of the rectangles with a class."""
    elements = re.findall(rf'<rect ([^>]*class="{class_}"[^>]*)/>', text)
    return [
        {key: float(value) for key, value in re.findall(r'(\w+)="([\d.]+)"', one)}
        for one in elements
    ]


@given(st.floats(1e-6, 1e9), st.integers(2, 8))
def test_axes_start_at_zero_and_reach_the_highest_value(most: float, count: int) -> None:
    values = markup.nice(most, count)
    assert values[0] == 0
    assert values[-1] >= most * (1 - 1e-6)
    assert 2 <= len(values) <= count + 2
    steps = [later - earlier for earlier, later in pairwise(values)]
    assert max(steps) == pytest.approx(min(steps), rel=1e-6)


@given(st.integers(0, 10**6), st.integers(2, 8))
def test_axes_of_machines_have_whole_numbers(most: int, count: int) -> None:
    values = markup.whole(most, count)
    assert all(value == int(value) for value in values)
    assert values[-1] >= most


@pytest.mark.parametrize(
    ("values", "label"),
    [
        ([0, 0.5], "$0.50"),
        ([0, 2.0], "$2"),
        ([0, 0.0025], "$0.0025"),
        ([0, 2.5], "$2.50"),
        ([0, 1000.0], "$1,000"),
    ],
)
def test_dollars_have_as_many_decimals_as_the_axis_needs(values: list[float], label: str) -> None:
    assert markup.dollars_axis(values)(values[1]) == label


@given(st.integers(10 * MINUTE, 2000 * DAY), st.integers(0, 500 * DAY), st.sampled_from([960, 340]))
def test_labels_of_a_time_axis_stay_inside_the_chart(span: int, after: int, width: int) -> None:
    canvas = markup.Canvas(width, 200)
    text = markup.time_axis(canvas, canvas.x(NIGHT + after, NIGHT + after + span))
    places = [
        (float(x), anchor, words)
        for x, anchor, words in re.findall(
            r'<text x="([\d.]+)"[^>]*text-anchor="(\w+)">([^<]*)<', text
        )
    ]
    assert len(places) <= 9
    for x, anchor, words in places:
        begin = x - 6.8 * len(words) * {"start": 0, "middle": 0.5, "end": 1}[anchor]
        assert begin >= -1
        assert begin + 6.8 * len(words) <= width + 1


def test_bar_heights_are_proportional() -> None:
    bars = [
        Bar("a", "a", (Series("s0", "x", 1.0), Series("s1", "y", 3.0))),
        Bar("b", "b", (Series("s0", "x", 2.0), Series("s1", "y", -1.0))),
    ]
    text = stacked_bars(CANVAS, "", bars)
    first, second = rects(text, "s0")
    (other,) = rects(text, "s1")
    unit = first["height"]
    assert second["height"] == pytest.approx(2 * unit, abs=0.1)
    assert other["height"] == pytest.approx(3 * unit, abs=0.1)
    assert other["y"] + other["height"] == pytest.approx(first["y"], abs=0.1)
    assert first["y"] + first["height"] == pytest.approx(CANVAS.height - CANVAS.bottom, abs=0.1)


def test_share_bar_is_divided_by_value() -> None:
    text = share_bar("", [Series("a", "a", 3.0), Series("b", "b", 0.0), Series("c", "c", 1.0)])
    (first,), none, (last,) = rects(text, "a"), rects(text, "b"), rects(text, "c")
    assert (first["width"], last["x"], last["width"]) == (748, 750, 248)
    assert none == []


def test_footprint_steps_at_the_right_times() -> None:
    hours = [NIGHT, NIGHT + HOUR, NIGHT + 2 * HOUR]
    layers = [
        Series("reliable", "", tuple(zip(hours, (1.0, 1.0, 1.0), strict=True))),
        Series("spot", "", tuple(zip(hours, (4.0, 0.0, 0.0), strict=True))),
    ]
    text = footprint(
        CANVAS,
        "five machines",
        layers,
        [(NIGHT, NIGHT + HOUR, 2)],
        [(NIGHT + HOUR, False, "gone")],
    )
    (spot,) = re.findall(r'd="([^"]*)" class="spot"', text)
    points = [tuple(map(float, pair.split())) for pair in spot.strip("MZ").split("L")]
    middle = CANVAS.left + (CANVAS.width - CANVAS.left - CANVAS.right) / 2
    tops = {y for x, y in points if x < middle - 1}
    low, high = CANVAS.height - CANVAS.bottom, CANVAS.top
    assert sorted(tops) == pytest.approx(
        [high + (low - high) * (1 - share) for share in (5 / 6, 1 / 6)], abs=0.1
    )
    assert 'class="stage2"' in text
    assert 'class="unwarned"' in text
    assert 'aria-label="five machines"' in text


def held(machine: str, begin: int, end: int, price: int) -> LedgerRow:
    amount = (end - begin) // 1_000_000 * price
    listed = (end - begin) // 1_000_000 * 400
    return LedgerRow(
        "a",
        "a",
        machine,
        AWS[0],
        False,
        True,
        begin,
        end,
        ChargeKind.COMPUTE,
        Use.WORKING,
        price,
        amount,
        listed,
        True,
        400,
    )


def test_prices_are_the_mean_over_held_machines() -> None:
    """One machine at 25%, joined by one at 75%, and after a gap one at 50%."""
    rows = [
        held("i-1", NIGHT, NIGHT + 2 * HOUR, 100),
        held("i-2", NIGHT + HOUR, NIGHT + 2 * HOUR, 300),
        held("i-3", NIGHT + 3 * HOUR, NIGHT + 4 * HOUR, 200),
    ]
    made = MadeRun("a", "a", NIGHT)
    made.begin()
    report = report_of([made])
    markets = markets_of(replace(report, rows=tuple(rows)))
    (one,) = held_prices(rows, markets)
    assert [((begin - NIGHT) // HOUR, (end - NIGHT) // HOUR) for begin, end, _ in one.data] == [
        (0, 1),
        (1, 2),
        (3, 4),
    ]
    assert [percent for _, _, percent in one.data] == pytest.approx([25.0, 50.0, 50.0])


def test_a_minimum_bid_is_drawn_from_one_look_at_hosts_to_the_next() -> None:
    made = MadeRun("a", "a", NIGHT)
    made.begin()
    made.rent(AWS[0], 1, NIGHT, spot=False)
    looks = ((1, AWS[0], 136), (2, AWS[1], 999), (2, AWS[0], 170))
    for hour, market, least in looks:
        made.add(NIGHT + hour * HOUR, ev.HostsListed(market, 3, least * 1_000_000))
    made.add(NIGHT + 2 * HOUR, ev.HostsListed(AWS[0], 0, 0))
    made.finish(NIGHT + 4 * HOUR)
    report = report_of([made])
    (line,) = minimum_bids(report.runs[0], markets_of(report))
    assert [(begin - NIGHT, end - NIGHT) for begin, end, _ in line.data] == [
        (HOUR, 2 * HOUR),
        (2 * HOUR, 4 * HOUR),
    ]
    assert [percent for _, _, percent in line.data] == pytest.approx([40.0, 50.0])


@pytest.mark.parametrize("started", [False, True])
def test_cumulative_cost_ends_at_the_total(started: bool) -> None:
    """Including a charge for time after the end of a machine."""
    made = started_hour() if started else month()[4]
    report = report_of([made])
    markets = markets_of(report)
    ends = [layer.data[-1][1] for layer in cumulative_of(report.rows, markets)]
    assert sum(ends) == pytest.approx(report.whole.total / NANO_SECONDS_PER_DOLLAR, rel=1e-9)
    assert sum(one.paid for one in markets) == report.whole.total
    assert sum(one.evictions for one in markets) == report.whole.evictions


def test_parts_add_up_to_the_total() -> None:
    report = report_of(month()[:3])
    assert sum(part.data for part in parts_of(report.whole)) == pytest.approx(
        usd(report.whole.total), abs=5e-6
    )


def test_text_is_escaped_everywhere() -> None:
    text = "<b>"
    drawn = fragment(
        text,
        el(text.strip("<>"), text, title=text),
        markup.paragraph(text),
        markup.subheading(text, text),
        markup.section(text),
        markup.table([markup.ColumnHead(text)], [[text]], [text], caption=text),
        markup.figure(Html(), [("s0", text)]),
        markup.text(0, 0, text),
        markup.titled(Html(), text),
        CANVAS.drawing('"<b>"'),
    )
    assert drawn.count("&lt;b&gt;") == 15
    assert drawn.replace("<b title", "").count("<b>") == 0


@pytest.mark.parametrize("count", [1, 599, 600, 601, 1201, 5000])
def test_a_line_of_many_points_keeps_at_most_600_and_the_last(count: int) -> None:
    text = line_chart(CANVAS, "loss", [(step, float(step)) for step in range(count)])
    (path,) = re.findall(r'<path d="([^"]*)"', str(text))
    drawn = re.findall(r"[ML]([\d.]+) ([\d.]+)", path)
    assert min(count, 300) <= len(drawn) <= 601
    assert drawn[-1] == re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', str(text))[-1]
    assert count == 1 or float(drawn[-1][0]) == max(float(x) for x, _ in drawn) == CANVAS.width - 12
