"""The words of the product: no replaced word comes back in a text that users read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("spotctl", "bidbrain", "agileml", "pricing_data")

REPLACED = {
    "mandate": "constraints",
    "refuge": "on-demand fallback",
    "purse": "budget",
    "lookout": "watcher",
    "diary": "night log",
    "harvest(s|ed)?": "fetched rows",
    "workbench": "chunk runner",
    "keeper": "checkpoint sync",
    "fates?": "planned ending",
    "meetings?": "rendezvous",
    "steering": "live strategy",
    "commanding": "command workload",
    "dearer|dearest": "more expensive",
    "mend(s|ed|ing)?": "fix",
    "anew": "again, from scratch",
    "beside": "next to, in addition to",
    "befalls?": "faults to inject",
    "whoever|whomever": "name the subject",
    "nobody": "no process, no caller, you",
    "so many": "say which parameter",
    "(is|are|was|were) told of": "name the event",
    "goes by": "uses",
    "for all that": "even so",
    "left over": "orphaned, remaining",
    "of which (nobody|none)": "rephrase",
    "restless(ness)?": "volatility",
    "given? back|giv(es|ing) back|gave back": "return",
    r"(factor|maxim|minim|normal|optim|penal|real|recogn|regular|serial|summar)is(e[ds]?|ing|ation)": "-ize",
    "learnt|(mis)?spelt": "-ed",
    r"\w*(behavi|col|fav|neighb)our\w*": "-or",
}
"""Old words (whole words, any case) and what to write instead."""

_WORDS = re.compile(rf"\b({'|'.join(REPLACED)})\b", re.IGNORECASE)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module with their lines, docstrings included; of another file its lines."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def replaced_words(path: Path) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {found.group()!r}: write {instead(found.group())!r}"
        for line, text in texts(path)
        for found in _WORDS.finditer(text)
    ]


def instead(word: str) -> str:
    return next(new for old, new in REPLACED.items() if re.fullmatch(old, word, re.IGNORECASE))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_replaced_word_in_a_string_of(package: str) -> None:
    found = [line for path in sorted((ROOT / package).rglob("*.py")) for line in replaced_words(path)]
    assert not found, "\n".join(found)


def test_no_replaced_word_in_the_documents() -> None:
    documents = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").iterdir(),
    ]
    found = [line for path in sorted(documents) if path.is_file() for line in replaced_words(path)]
    assert not found, "\n".join(found)


def test_a_replaced_word_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    module = tmp_path / "module.py"
    module.write_text('def price() -> str:\n    """A mandate is dearer."""\n    return f"{1} anew"\n')
    assert [line.split(": write")[0] for line in replaced_words(module)] == [
        "module.py:2: 'mandate'",
        "module.py:2: 'dearer'",
        "module.py:3: 'anew'",
    ]
