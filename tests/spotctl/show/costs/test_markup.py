"""Elements of charts and pages."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from pricing_data.units import DAY, MINUTE
from spotctl.show.costs import markup
from spotctl.show.costs.markup import Html, el, fragment
from tests.spotctl.show.costs.made import NIGHT
from tests.spotctl.show.costs.test_charts import CANVAS


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
