"""`spotctl lab reproduce`, and the page that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spotctl.command_line import spotctl

PAGE = Path(__file__).parents[4] / "docs" / "papers.md"
FAST = ("pricing-tables", "pricing-speedups", "pricing-reductions", "gavel-hierarchy")


def test_the_page_is_what_the_command_writes(tmp_path: Path) -> None:
    """When one part of the page is written again, all other parts stay."""
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
