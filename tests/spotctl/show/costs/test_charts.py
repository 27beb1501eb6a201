"""Charts: coordinates of values, computed by hand."""

from __future__ import annotations

import re

import pytest

from pricing_data.units import HOUR
from spotctl.show.costs import markup
from spotctl.show.costs.charts import (
    Bar,
    Series,
    footprint,
    line_chart,
    share_bar,
    stacked_bars,
)
from tests.spotctl.show.costs.made import NIGHT

CANVAS = markup.Canvas(960, 280)


def rects(text: str, class_: str) -> list[dict[str, float]]:
    """The attributes of the rectangles with a class."""
    elements = re.findall(rf'<rect ([^>]*class="{class_}"[^>]*)/>', text)
    return [
        {key: float(value) for key, value in re.findall(r'(\w+)="([\d.]+)"', one)}
        for one in elements
    ]


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


@pytest.mark.parametrize("count", [1, 599, 600, 601, 1201, 5000])
def test_a_line_of_many_points_keeps_at_most_600_and_the_last(count: int) -> None:
    text = line_chart(CANVAS, "loss", [(step, float(step)) for step in range(count)])
    (path,) = re.findall(r'<path d="([^"]*)"', str(text))
    drawn = re.findall(r"[ML]([\d.]+) ([\d.]+)", path)
    assert min(count, 300) <= len(drawn) <= 601
    assert drawn[-1] == re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', str(text))[-1]
    assert count == 1 or float(drawn[-1][0]) == max(float(x) for x, _ in drawn) == CANVAS.width - 12
