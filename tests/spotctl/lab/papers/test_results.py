"""Results of papers, and whether ours agree."""

from __future__ import annotations

import pytest

from spotctl.lab.papers.results import PaperFigure, all_results, papers_file, verdict


def figure(**values: object) -> PaperFigure:
    return PaperFigure.model_validate({"where": "Figure 1", "line": "N1", **values})


@pytest.mark.parametrize(
    ("values", "ours", "switched", "said"),
    [
        ({"paper": 2.0}, 2.2, None, "reproduced"),
        ({"paper": 2.0}, 2.21, None, "not explained"),
        ({"paper": 2.0}, 3.0, 2.33, "explained"),
        ({"paper": 2.0}, 3.0, 2.34, "not explained"),
        ({"paper": 2.0}, 1.0, 2.33, "explained"),
        ({"low": 0.42, "high": 0.47}, 0.47, None, "reproduced"),
        ({"low": 0.42, "high": 0.47}, 0.27, 0.37, "explained"),
        ({"low": 0.42, "high": 0.47}, 0.27, 0.36, "not explained"),
        ({"high": 3.0}, 3.0, None, "reproduced"),
        ({"low": 3.0}, 2.9, None, "not explained"),
        ({"paper": 0.0}, 0.0, None, "reproduced"),
        ({"paper": 2.0, "beyond": "lower"}, 1.9, None, "better"),
        ({"paper": 2.0, "beyond": "higher"}, 1.9, None, "not better"),
    ],
)
def test_a_gap_is_explained_if_its_cause_closes_two_thirds_of_it(
    values: dict[str, object], ours: float, switched: float | None, said: str
) -> None:
    assert verdict(figure(**values), ours, switched) == said


def test_every_result_has_figures_of_a_paper_and_a_time() -> None:
    text = papers_file()
    assert set(all_results()) == set(text.results)
    assert {result.paper for result in text.results.values()} <= set(text.papers)
    for result in all_results().values():
        assert (result.run is None) == (result.seconds == 0), result.name
        assert (result.switched is None) == (result.cause == ""), result.name
