"""Decisions have one form, consecutive numbers, and a line in the index; every decision that a text
names exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
NUMBERS = {int(page.name[:4]): page.name for page in PAGES}
HEADINGS = ["Decision", "Alternatives"]
MAX_WORDS = 400
"""Outside of blocks that a command printed."""
FOLDERS = ("docs", "spotctl", "bidbrain", "agileml", "pricing_data", "bench", "tests", "examples")
SUFFIXES = {".md", ".py", ".sh", ".yaml"}


class Head(NamedTuple):
    """The first lines of a decision: number, title, and the conclusion in bold."""

    number: int
    title: str
    conclusion: str


def head(page: Path) -> Head:
    match = re.match(
        r"# (\d+)\. (.+)\n\n\*\*(.+?)\*\*\n\n## ", page.read_text(encoding="utf-8"), re.DOTALL
    )
    assert match, f"{page.name} does not begin with '# NUMBER. TITLE' and a conclusion in bold"
    return Head(int(match[1]), match[2], " ".join(match[3].split()))


def texts() -> Iterator[tuple[str, str]]:
    """Every text of the repository that may name a decision."""
    paths = [
        *ROOT.glob("*.md"),
        *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")),
    ]
    for path in paths:
        if path.suffix in SUFFIXES and path != Path(__file__) and "_build" not in path.parts:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def wrong_references(text: str) -> list[str]:
    """Names of files and numbers that no decision has, and links whose number is not that of their
    page.
    """
    files = re.findall(r"\b(\d{4}-[a-z][\w-]*\.md)", text)
    links = re.findall(r"\[(?:[Dd]ecisions?\s+)?(\d+)\]\([^)]*?(\d{4}-[a-z][\w-]*\.md)\)", text)
    named = [
        int(number)
        for numbers in re.findall(
            r"\bdecisions?\s+(\d+(?:(?:,| and|, and)\s+\d+)*)(?!\d*\.\d)\b", text, re.IGNORECASE
        )
        for number in re.findall(r"\d+", numbers)
    ]
    return [
        *(f"{name} does not exist" for name in files if name not in NUMBERS.values()),
        *(f"{number} is not {name}" for number, name in links if NUMBERS.get(int(number)) != name),
        *(f"decision {number} does not exist" for number in named if number not in NUMBERS),
    ]


def test_numbers_are_consecutive() -> None:
    assert [int(page.name[:4]) for page in PAGES] == list(range(1, len(PAGES) + 1))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_has_the_form_of_all(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert head(page).number == int(page.name[:4])
    assert re.findall(r"^##+ (.+)", text, re.MULTILINE) == HEADINGS
    assert (
        len(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).split()) <= MAX_WORDS
    )


def test_the_index_lists_every_decision_with_its_conclusion() -> None:
    rows = [
        line
        for line in (FOLDER / "index.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| [")
    ]
    heads = {page.name: head(page) for page in PAGES}
    assert rows == [
        f"| [{number}]({name}) | {title} | {end} |" for name, (number, title, end) in heads.items()
    ]


def test_every_decision_that_a_text_names_exists() -> None:
    assert [(name, wrong) for name, text in texts() for wrong in wrong_references(text)] == []


def test_a_wrong_reference_is_found() -> None:
    text = (
        "[decision\n2](decisions/0001-price-store.md), decisions 3 and 98, Decision 99, "
        "decisions/0001-x.md; decision 1"
    )
    assert wrong_references(text) == [
        "0001-x.md does not exist",
        "2 is not 0001-price-store.md",
        "decision 98 does not exist",
        "decision 99 does not exist",
    ]
