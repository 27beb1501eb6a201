from __future__ import annotations

from pathlib import Path

from bench import history
from bench.harness import Row, table
from bench.history import Ratio

FASTER, START_UP = Ratio("Plans", "whole plan", 4.0, True), Ratio("Plans", "help", 1.5, False)
SECTION = table(
    "Plans",
    "",
    [
        Row("whole plan", "75 ms", "300 ms", "4x"),
        Row("help", "1 s", "1 s", "1.5, limit 2"),
        Row("a", "1", "-"),
    ],
)


def test_ratios_are_read_from_the_tables() -> None:
    assert history.ratios([SECTION]) == [FASTER, START_UP]


def test_ratios_come_back_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    history.append([FASTER], path)
    history.append([Ratio("Plans", "whole plan", 2.0, True), START_UP], path)
    assert history.earlier(path) == {("Plans", "whole plan"): 3.0, ("Plans", "help"): 1.5}


def test_a_ratio_clearly_worse_than_its_history_is_reported() -> None:
    before = {("Plans", "whole plan"): 6.0, ("Plans", "help"): 1.0}
    assert history.regressions([FASTER, START_UP], before) == [
        "Plans: whole plan: ratio 4, 1.50 times worse than the median 6",
        "Plans: help: ratio 1.5, 1.50 times worse than the median 1",
    ]


def test_noise_and_gains_are_not_reported() -> None:
    assert (
        history.regressions(
            [FASTER, START_UP], {("Plans", "whole plan"): 4.8, ("Plans", "help"): 2.0}
        )
        == []
    )
    assert history.regressions([FASTER], {}) == []
