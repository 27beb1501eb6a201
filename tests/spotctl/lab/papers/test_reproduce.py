"""`spotctl lab reproduce`, and the page that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.lab.papers.results import PaperFigure, all_results, papers_file, verdict
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl

PAGE = Path(__file__).parents[4] / "docs" / "papers.md"
FAST = ("pricing-tables", "pricing-speedups", "pricing-reductions", "gavel-hierarchy")


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


def test_the_page_is_what_the_command_writes(tmp_path: Path) -> None:
    """A fast part of the page, made anew: all other parts stay."""
    pytest.importorskip("matplotlib")
    written = tmp_path / "papers.md"
    written.write_text(PAGE.read_text())
    ended = spotctl("lab", "reproduce", *FAST, "--page", written)
    assert ended.code == 0, ended.err
    assert written.read_text() == PAGE.read_text()


def test_the_answer_states_paper_and_ours_and_the_time_comes_first() -> None:
    ended = spotctl("lab", "reproduce", "pricing-reductions", "pricing-google", "--json")
    found, google = ended.json["results"]
    assert found["figures"][0]["paper"] == [3.5, 3.5]
    assert found["figures"][1]["verdict"] == "reproduced"
    assert google["label"] == "not reproducible"
    assert google["figures"] == []
    assert ended.err.startswith("pricing-reductions: about ")


def test_a_picture_of_each_result(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    spotctl("lab", "reproduce", "pricing-tables", "--plot", tmp_path / "pictures")
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["pricing-tables.png"]


@pytest.mark.parametrize("words", [("gavel",), ("pricing-tables", "--data", "nowhere")])
def test_what_it_refuses(words: tuple[str, ...], approved: Approved) -> None:
    approved(spotctl("lab", "reproduce", *words))
